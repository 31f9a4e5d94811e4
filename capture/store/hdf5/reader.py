"""Reading an HDF5 store: closed, live, or left by a killed process."""

import zlib
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, reduce
from itertools import product
from pathlib import Path
from typing import Any

import google_crc32c
import h5py
import numpy as np
from numpy.typing import NDArray
from outcrop.capture.errors import DamagedStore
from outcrop.capture.format import CHECKSUMS, ROWS, VALUES
from outcrop.capture.store.cutting import Coordinates, paste, put_row
from outcrop.capture.store.grids import Grid
from outcrop.capture.store.lazy_rows import LazyRows
from outcrop.capture.store.model import ArraySpec
from outcrop.capture.store.row_values import unpacked

from .arrays import Stored
from .block_reader import Hdf5BlockReader
from .files import as_json, chunk_place, codec_of, naming
from .scales import INTERNAL, dimension_names
from .snapshot import Snapshot, opened, take_snapshot


class Hdf5Reader:
    """A snapshot of a store: the records that are committed when it is made.

    Parameters
    ----------
    path : Path
        The run's file.

    Raises
    ------
    FileNotFoundError
        If there is nothing.
    FormatError
        If it is not a store of ours, or of another version.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._snapshot: Snapshot = take_snapshot(path)
        self.document = self._snapshot.document
        self.state = self._snapshot.state

    def length(self, stream: str) -> int:
        """Count the committed records of a stream."""
        return self._sealed(stream) + len(self._snapshot.entries.get(stream, ()))

    def spec(self, stream: str, path: str) -> ArraySpec:
        """Describe an array; its shape is that of one record."""
        with self._array(stream, path) as (array, _):
            return _spec_of(path, array, None)

    def rows(self, stream: str) -> LazyRows:
        """Give all arrays of rows of a stream, by path, read when they are used."""
        paths: list[str] = self.document["streams"][stream]["rows"]
        numbers = {path: number for number, path in enumerate(paths)}
        return LazyRows(paths, lambda path: self._read_rows(stream, path, numbers[path]))

    def blocks(self, stream: str, number: int) -> Hdf5BlockReader:
        """Make the reader of a block array."""
        group = self.document["streams"][stream]["arrays"][number]["group"]
        path = f"{group}/{VALUES}"
        with self._array(stream, path) as (array, home):
            spec = _spec_of(path, array, number)
            return Hdf5BlockReader(
                # Absolute, since other processes may have another working directory.
                path=self._path.absolute(),
                home=home.name,
                array=f"{stream}/{path}",
                shape=(self.length(stream), *spec.shape),
                dtype=np.dtype(spec.dtype),
                fill=spec.fill,
                grid=Grid(array.chunks, array.chunks),
                codec=codec_of(array),
                checksums=self._checksums(stream, number),
                pending={
                    record: Stored.of_json(item, len(spec.shape)).places
                    for record, item in self._pending_items[stream, number]
                },
            )

    # Finding.
    def _sealed(self, stream: str) -> int:
        return self._snapshot.sealed.get(stream, 0)

    @contextmanager
    def _array(self, stream: str, path: str) -> Iterator[tuple[h5py.Dataset, Path]]:
        name = f"{stream}/{path}"
        for home in self._snapshot.files:
            with opened(self._path, home.name) as file:
                if name in file:
                    with naming(f"{name!r} in {str(home)!r}"):
                        yield file[name], home
                    return
        raise DamagedStore(f"{str(self._path)!r} lacks the array {name!r}")

    # Rows.
    def _read_rows(self, stream: str, path: str, number: int) -> NDArray[Any]:
        sealed = self._sealed(stream)
        with self._array(stream, path) as (array, _):
            spec = _spec_of(path, array, None)
            values = np.full((self.length(stream), *spec.shape), spec.fill, spec.dtype)
            for start, checksum in self._seals(stream, number, array.chunks[0]):
                _read_sealed_rows(array, start, checksum, values[:sealed])
        for row, entry in enumerate(self._snapshot.entries.get(stream, ()), start=sealed):
            value = unpacked(entry.rows[number]) if number < len(entry.rows) else None
            if value is not None:
                put_row(values, row, np.asarray(value, spec.dtype))
        return values

    def _seals(self, stream: str, number: int, records: int) -> Iterator[tuple[int, int]]:
        """Give the first record, and the checksum, of each chunk of an array of rows."""
        if not self._sealed(stream):
            return
        table = self._table(stream, ROWS)
        for seal in range(-(-self._sealed(stream) // records)):
            checksum = int(table[seal, number]) if number < table.shape[1] else 0
            yield seal * records, checksum

    def _checksums(self, stream: str, number: int) -> NDArray[np.uint32]:
        sealed = self._sealed(stream)
        checksums = np.zeros(self.length(stream), np.uint32)
        table = self._table(stream, VALUES) if sealed else np.zeros((0, 0), np.uint32)
        if number < table.shape[1]:
            checksums[:sealed] = table[:sealed, number]
        for record, (_, checksum, *_) in self._pending_items[stream, number]:
            checksums[record] = checksum
        return checksums

    def _table(self, stream: str, name: str) -> NDArray[np.uint32]:
        if (stream, name) not in self._tables:
            with self._array(stream, f"{CHECKSUMS}/{name}") as (array, _):
                self._tables[stream, name] = array[()]
        return self._tables[stream, name]

    @cached_property
    def _tables(self) -> dict[tuple[str, str], NDArray[np.uint32]]:
        return {}

    @cached_property
    def _pending_items(self) -> dict[tuple[str, int], list[tuple[int, Any]]]:
        """Records and what the logs say of their chunks, by stream and array number."""
        found = defaultdict(list)
        for stream, entries in self._snapshot.entries.items():
            for entry in entries:
                for item in entry.blocks:
                    found[stream, item[0]].append((entry.record, item))
        return found


def _spec_of(path: str, array: h5py.Dataset, number: int | None) -> ArraySpec:
    dtype = array.dtype
    return ArraySpec(
        path=path,
        dims=dimension_names(array),
        shape=tuple(array.shape[1:]),
        dtype=dtype.name,
        fill=array.fillvalue.item(),
        number=number,
        attributes=_attributes(array),
    )


def _attributes(array: h5py.Dataset) -> dict[str, Any]:
    """Give the attributes that are ours, as JSON values."""
    names = [name for name in array.attrs if name not in INTERNAL]
    return {name: as_json(array.attrs[name]) for name in names}


def _read_sealed_rows(array: h5py.Dataset, start: int, expected: int, values: NDArray[Any]) -> None:
    """Read the chunks of some rows; none was written if no checksum is expected."""
    if not expected:
        return
    place = f"the rows from {start} of {array.name!r} in {array.file.filename!r}"
    pieces = list(_row_chunks(array, start // array.chunks[0]))
    if reduce(lambda found, piece: google_crc32c.extend(found, piece[1]), pieces, 0) != expected:
        raise DamagedStore(f"{place} fail their checksum: the store is damaged there")
    for chunk, data in pieces:
        piece = np.frombuffer(zlib.decompress(data), array.dtype).reshape(array.chunks)
        paste(piece, chunk, values)


def _row_chunks(array: h5py.Dataset, row: int) -> Iterator[tuple[Coordinates, bytes]]:
    """Give the encoded chunks of an array of rows at one place along its first dimension."""
    sizes = zip(array.shape[1:], array.chunks[1:], strict=True)
    for column in product(*(range(-(-size // part)) for size, part in sizes)):
        origin = (row, *column)
        # Columns that came with a later record have no chunk here.
        if chunk_place(array, origin) is not None:
            place = tuple(c * size for c, size in zip(origin, array.chunks, strict=True))
            yield origin, array.id.read_direct_chunk(place)[1]
