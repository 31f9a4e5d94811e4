"""A block array being written: encoded chunks go to shards that are still open."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .chunks import MISSING, ChunkCodec, encode_index
from .files import OpenFiles, append_whole
from .model import ArraySpec
from .nodes import Grid, chunk_key

OPEN = ".open."
"""Before the name of a shard that has no index yet."""

Coordinates = tuple[int, ...]


@dataclass(frozen=True)
class Stored:
    """Where a chunk was written."""

    chunk: Coordinates
    offset: int
    length: int


class BlockArray:
    """One block array.

    Parameters
    ----------
    spec : ArraySpec
        What it is.
    folder : Path
        Where it lies.
    grid : Grid
        How it is cut.
    codec : ChunkCodec
        How its chunks are encoded.
    files : OpenFiles
        Where open shards are kept open.
    """

    def __init__(
        self, spec: ArraySpec, folder: Path, *, grid: Grid, codec: ChunkCodec, files: OpenFiles
    ) -> None:
        self.sizes = spec.shape
        self._spec = spec
        self._dtype = np.dtype(spec.dtype).newbyteorder("<")
        self._folder = folder
        self._grid = grid
        self._codec = codec
        self._files = files
        # The index of each open shard, by the shard's coordinates.
        self._open: dict[Coordinates, NDArray[np.uint64]] = {}

    def grow(self, sizes: tuple[int, ...]) -> bool:
        """Make room for values of this shape; says whether the array has grown."""
        before = self.sizes
        self.sizes = tuple(map(max, before, sizes))
        return self.sizes != before

    def write(self, record: int, values: NDArray[Any]) -> list[Stored]:
        """Append the chunks of a record; they do not count before `commit`."""
        # Only the order of the bytes may differ; stores are little-endian.
        values = values.astype(self._dtype, casting="equiv", copy=False)
        return [
            Stored(chunk, *append_whole(self._file(record, chunk), self._codec.encode(piece)))
            for chunk, piece in self._pieces(values)
        ]

    def commit(self, record: int, stored: list[Stored]) -> None:
        """Enter the chunks of a record into the index."""
        for one in stored:
            shard, inside = self._place(record, one.chunk)
            if shard not in self._open:
                shape = (*self._grid.per_shard, 2)
                self._open[shard] = np.full(shape, MISSING, np.uint64)
            self._open[shard][inside] = one.offset, one.length

    def seal(self, *, sync: bool) -> None:
        """Give every open shard its index and its name."""
        for shard, index in self._open.items():
            name = chunk_key(shard)
            path = self._folder / (OPEN + name)
            append_whole(self._files[path], [encode_index(index.reshape(-1, 2))])
            self._files.close(path, sync=sync)
            path.rename(self._folder / name)
        self._open = {}

    def _pieces(self, values: NDArray[Any]) -> Iterator[tuple[Coordinates, NDArray[Any]]]:
        inner = self._grid.inner[1:]
        if values.shape == inner:  # the usual case
            yield (0,) * values.ndim, values
            return
        for chunk in product(*map(range, self._grid.cover(values.shape))):
            cut = values[
                tuple(slice(c * i, (c + 1) * i) for c, i in zip(chunk, inner, strict=True))
            ]
            if cut.shape != inner:
                full = np.full(inner, self._spec.fill, values.dtype)
                full[tuple(map(slice, cut.shape))] = cut
                cut = full
            yield chunk, cut

    def _place(self, record: int, chunk: Coordinates) -> tuple[Coordinates, Coordinates]:
        """Find the shard of a chunk, and its place there."""
        places = [divmod(c, n) for c, n in zip((record, *chunk), self._grid.per_shard, strict=True)]
        return tuple(place[0] for place in places), tuple(place[1] for place in places)

    def _file(self, record: int, chunk: Coordinates) -> int:
        shard, _ = self._place(record, chunk)
        return self._files[self._folder / (OPEN + chunk_key(shard))]
