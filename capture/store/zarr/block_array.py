"""A block array being written: encoded chunks go to shards that are still open."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from outcrop.capture.store.chunks import MISSING, ChunkCodec, encode_index
from outcrop.capture.store.cutting import Coordinates, cut
from outcrop.capture.store.files import OpenFiles, append_whole
from outcrop.capture.store.grids import Grid
from outcrop.capture.store.model import ArraySpec

from .nodes import chunk_key

OPEN = ".open."
"""Before the name of a shard that has no index yet."""


class Stored(NamedTuple):
    """Where a chunk was written: in which shard, at which place of its index, at which bytes."""

    chunk: Coordinates
    shard: Coordinates
    place: Coordinates
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class OpenShard:
    """A shard that has no index yet."""

    path: Path
    index: NDArray[np.uint64]


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
        self._per_shard = grid.per_shard
        self._open: dict[Coordinates, OpenShard] = {}

    def grow(self, sizes: tuple[int, ...]) -> None:
        """Make room for values of this shape."""
        self.sizes = tuple(map(max, self.sizes, sizes))

    def write(self, record: int, values: NDArray[Any]) -> list[Stored]:
        """Append the chunks of a record; they do not count before `commit`."""
        # Only the order of the bytes may differ; stores are little-endian.
        values = values.astype(self._dtype, casting="equiv", copy=False)
        pieces = cut(values, self._grid.inner[1:], fill=self._spec.fill)
        return [self._append(record, chunk, piece) for chunk, piece in pieces]

    def commit(self, stored: list[Stored]) -> None:
        """Enter the chunks of a record into the index."""
        for one in stored:
            self._open[one.shard].index[one.place] = one.offset, one.length

    def seal(self, *, sync: bool) -> None:
        """Give every open shard its index and its name."""
        for coordinates, shard in list(self._open.items()):
            append_whole(self._files[shard.path], [encode_index(shard.index.reshape(-1, 2))])
            self._files.close(shard.path, sync=sync)
            shard.path.rename(self._folder / chunk_key(coordinates))
            # One by one: a seal that fails is repeated for the others only.
            del self._open[coordinates]

    def _append(self, record: int, chunk: Coordinates, piece: NDArray[Any]) -> Stored:
        shard, place = self._locate(record, chunk)
        if shard not in self._open:
            self._open[shard] = self._new_shard(shard)
        file = self._files[self._open[shard].path]
        return Stored(chunk, shard, place, *append_whole(file, self._codec.encode(piece)))

    def _locate(self, record: int, chunk: Coordinates) -> tuple[Coordinates, Coordinates]:
        """Find the shard of a chunk, and its place in the shard's index."""
        if not any(chunk):  # the usual case
            column, inside = divmod(record, self._per_shard[0])
            return (column, *chunk), (inside, *chunk)
        places = [divmod(c, n) for c, n in zip((record, *chunk), self._per_shard, strict=True)]
        return tuple(p[0] for p in places), tuple(p[1] for p in places)

    def _new_shard(self, coordinates: Coordinates) -> OpenShard:
        index = np.full((*self._per_shard, 2), MISSING, np.uint64)
        return OpenShard(self._folder / (OPEN + chunk_key(coordinates)), index)
