"""Reading a block array of a Zarr store."""

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from outcrop.capture.errors import DamagedStore
from outcrop.capture.store.chunks import MISSING, ChunkCodec, decode_index, index_bytes
from outcrop.capture.store.cutting import Coordinates, paste
from outcrop.capture.store.grids import Grid

from .block_array import OPEN
from .nodes import chunk_key

Pending: TypeAlias = dict[int, list[tuple[Coordinates, int, int]]]
"""Coordinates, offset and length of the chunks of each record that is not sealed."""

_READ_BYTES = 16 * 2**20


class Wanted(NamedTuple):
    """A chunk to be read: where it is in its shard's file, and where it goes."""

    offset: int
    length: int
    record: int
    chunk: Coordinates


@dataclass(frozen=True)
class ZarrBlockReader:
    """Reads one block array; can be pickled.

    Parameters
    ----------
    folder : Path
        The array's folder.
    shape : tuple of int
        Sizes of all dimensions; the first counts the committed records.
    dtype : dtype
        As stored.
    fill : int or float
        Value of padding.
    grid : Grid
        How the array is cut.
    codec : ChunkCodec
        How its chunks are encoded.
    sealed : int
        Records in sealed shards.
    pending : dict
        Coordinates, offset and length of the chunks of each record beyond those.
    """

    folder: Path
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fill: float
    grid: Grid
    codec: ChunkCodec
    sealed: int
    pending: Pending

    def read(self, start: int, stop: int, extents: NDArray[np.intp]) -> NDArray[Any]:
        """Read the records from `start` to `stop`; see `BlockReader`."""
        values = np.empty((stop - start, *self.shape[1:]), self.dtype)
        wanted: dict[Coordinates, list[tuple[int, Coordinates]]] = defaultdict(list)
        for record, extent in zip(range(start, stop), extents, strict=True):
            covered = self.grid.cover(tuple(map(int, extent)))
            if prod(covered) != 1 or self.grid.inner[1:] != self.shape[1:]:
                values[record - start] = self.fill
            for chunk in product(*map(range, covered)):
                wanted[self._shard(record, chunk)].append((record, chunk))
        for shard, chunks in wanted.items():
            self._read_shard(shard, chunks, values, start)
        return values

    def _shard(self, record: int, chunk: Coordinates) -> Coordinates:
        return tuple(c // n for c, n in zip((record, *chunk), self.grid.per_shard, strict=True))

    def _read_shard(
        self,
        shard: Coordinates,
        chunks: list[tuple[int, Coordinates]],
        values: NDArray[Any],
        start: int,
    ) -> None:
        path = self.folder / chunk_key(shard)
        with _opened(path, chunks[0][0]) as file:
            places = sorted(self._find(file, path, chunks))
            for place, data in _read_all(file, places):
                name = f"the chunk of record {place.record} in {str(path)!r}"
                if len(data) != place.length:
                    raise DamagedStore(f"{name} is cut short: the file ends before it")
                self._decode(data, place, values[place.record - start], name)

    def _find(
        self, file: "_File", path: Path, chunks: list[tuple[int, Coordinates]]
    ) -> Iterator[Wanted]:
        index: NDArray[np.uint64] | None = None
        for record, chunk in chunks:
            if record >= self.sealed:
                yield self._find_pending(record, chunk, path)
                continue
            if index is None:
                index = self._read_index(file, path)
            inside = tuple(
                c % n for c, n in zip((record, *chunk), self.grid.per_shard, strict=True)
            )
            offset, length = map(int, index[inside])
            if offset == MISSING:
                raise _missing(record, path)
            yield Wanted(offset, length, record, chunk)

    def _find_pending(self, record: int, chunk: Coordinates, path: Path) -> Wanted:
        for found, offset, length in self.pending.get(record, ()):
            if found == chunk:
                return Wanted(offset, length, record, chunk)
        raise _missing(record, path)

    def _read_index(self, file: "_File", path: Path) -> NDArray[np.uint64]:
        size = index_bytes(prod(self.grid.per_shard))
        data = file.read(max(file.size - size, 0), size)
        if len(data) < size:
            raise DamagedStore(f"the shard {str(path)!r} is cut short: it has no index")
        return decode_index(data, repr(str(path))).reshape(*self.grid.per_shard, 2)

    def _decode(self, data: memoryview, place: Wanted, target: NDArray[Any], name: str) -> None:
        inner = self.grid.inner[1:]
        if target.shape == inner:
            self.codec.decode(data, target, name)
            return
        out = np.empty(inner, self.dtype)
        self.codec.decode(data, out, name)
        paste(out, place.chunk, target)


class _File:
    """A file open for reading at any place."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDONLY)
        self.size = os.fstat(self._file).st_size

    def read(self, offset: int, length: int) -> bytes:
        pieces = []
        # The system may give less than was asked for, never more than 2 GiB at a time.
        while length and (piece := os.pread(self._file, length, offset)):
            pieces.append(piece)
            offset, length = offset + len(piece), length - len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def __enter__(self) -> "_File":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)


def _opened(path: Path, record: int) -> _File:
    """Open a shard: sealed, or still open, or sealed in the meantime."""
    still_open = path.with_name(OPEN + path.name)
    for candidate in (path, still_open, path):
        try:
            return _File(candidate)
        except FileNotFoundError:
            continue
    raise _missing(record, path)


def _missing(record: int, path: Path) -> DamagedStore:
    return DamagedStore(
        f"record {record} has no chunk in {str(path)!r}, although its status says that it was "
        "recorded: a file is lost or damaged"
    )


def _read_all(file: _File, places: list[Wanted]) -> Iterator[tuple[Wanted, memoryview]]:
    """Read chunks, those that follow one another together, up to a size."""
    first = 0
    for last, place in enumerate(places, start=1):
        begin, end = places[first].offset, place.offset + place.length
        follows = last < len(places) and places[last].offset == end
        if follows and end + places[last].length - begin <= _READ_BYTES:
            continue
        data = memoryview(file.read(begin, end - begin))
        for one in places[first:last]:
            offset = one.offset - begin
            yield one, data[offset : offset + one.length]
        first = last
