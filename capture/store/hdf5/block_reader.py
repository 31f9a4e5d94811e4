"""Reading a block array of an HDF5 store: chunks are found by libhdf5 and read past it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import google_crc32c
import h5py
import numpy as np
from numcodecs import Zstd
from numpy.typing import NDArray
from outcrop.capture.errors import DamagedStore
from outcrop.capture.store.chunks import ChunkCodec
from outcrop.capture.store.cutting import Coordinates, paste
from outcrop.capture.store.grids import Grid

from .arrays import Place
from .files import chunk_place, naming, open_for_reading
from .snapshot import located


class _Source(NamedTuple):
    """An array, the file that its bytes are read from, and the places that only logs know."""

    array: h5py.Dataset
    file: int
    pending: dict[int, list[Place]]

    def chunks(
        self, record: int, covered: Coordinates, name: str
    ) -> Iterator[tuple[Coordinates, bytes]]:
        """Read the chunks of a record."""
        known = {place.chunk: place[1:] for place in self.pending.get(record, ())}
        for chunk in product(*map(range, covered)):
            # libhdf5 learns of chunks when they are sealed, the log when they are committed.
            place = known.get(chunk) or chunk_place(self.array, (record, *chunk))
            if place is None:
                raise DamagedStore(
                    f"{name} has no chunk, although its status says that it was recorded"
                )
            yield chunk, read_at(self.file, *place)


@dataclass(frozen=True)
class Hdf5BlockReader:
    """Reads one block array; can be pickled.

    Parameters
    ----------
    path : Path
        The run's file.
    home : str
        Name of the file that the array lay in, when this reader was made.
    array : str
        Path of the array in its file.
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
    checksums : array, shape (records)
        The crc32c of the chunks of each record.
    pending : dict
        The places of the chunks of each record that is not sealed.
    """

    path: Path
    home: str
    array: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fill: float
    grid: Grid
    codec: ChunkCodec
    checksums: NDArray[np.uint32]
    pending: dict[int, list[Place]]

    def read(self, start: int, stop: int, extents: NDArray[np.intp]) -> NDArray[Any]:
        """Read the records from `start` to `stop`; see `BlockReader`."""
        values = np.empty((stop - start, *self.shape[1:]), self.dtype)
        with self._source() as source:
            for record, extent in zip(range(start, stop), extents, strict=True):
                self._read_record(source, record, extent, values[record - start])
        return values

    @contextmanager
    def _source(self) -> Iterator[_Source]:
        home, pages = located(self.path, self.home)
        with (
            naming(f"{self.array!r} in {str(self.path)!r}"),
            open_for_reading(home, pages) as structure,
            home.open("rb", buffering=0) as file,
        ):
            # Of a further file that went into the run's own, libhdf5 knows all chunks.
            pending = self.pending if home.name == self.home else {}
            yield _Source(structure[self.array], file.fileno(), pending)

    def _read_record(
        self, source: _Source, record: int, extent: NDArray[np.intp], target: NDArray[Any]
    ) -> None:
        covered = self.grid.cover(tuple(map(int, extent)))
        if prod(covered) != 1 or self.grid.inner[1:] != self.shape[1:]:
            target[...] = self.fill
        if not prod(covered):
            return
        place = f"record {record} of {self.array!r} in {str(self.path)!r}"
        pieces = list(source.chunks(record, covered, place))
        if reduce(google_crc32c.extend, (data for _, data in pieces), 0) != self.checksums[record]:
            raise DamagedStore(f"{place} fails its checksum: the store is damaged there")
        for chunk, data in pieces:
            self._decode(data, chunk, target, place)

    def _decode(self, data: bytes, chunk: Coordinates, target: NDArray[Any], place: str) -> None:
        inner = self.grid.inner[1:]
        out = target if target.shape == inner else np.empty(inner, self.dtype)
        if self.codec.compression == "zstd":
            Zstd().decode(data, out=out)
        elif len(data) == out.nbytes:
            out.reshape(-1).view(np.uint8)[:] = np.frombuffer(data, np.uint8)
        else:
            raise DamagedStore(f"{place} has {len(data)} bytes; {out.nbytes} were expected")
        if out is not target:
            paste(out, chunk, target)


def read_at(file: int, offset: int, length: int) -> bytes:
    """Read some bytes of a file; fewer if it ends before."""
    pieces = []
    # The system may give less than was asked for, never more than 2 GiB at a time.
    while length and (piece := os.pread(file, length, offset)):
        pieces.append(piece)
        offset, length = offset + len(piece), length - len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
