"""The arrays of an HDF5 store being written."""

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, TypeAlias

import google_crc32c
import h5py
import numpy as np
from numpy.typing import NDArray
from outcrop.capture.store.chunks import ChunkCodec
from outcrop.capture.store.cutting import Coordinates, cut, table_of

from .files import deflated

Growth: TypeAlias = Literal["same", "grown"]


class Place(NamedTuple):
    """Where the bytes of a chunk lie in their file."""

    chunk: Coordinates
    offset: int
    length: int


class Stored(NamedTuple):
    """The chunks of a record, and the crc32c of their bytes, one after another."""

    checksum: int
    places: list[Place]

    def to_json(self, number: int) -> list[Any]:
        """Make an item of a log entry: number of the array, checksum, and every chunk's place."""
        places = [[p.offset, p.length, *(p.chunk if any(p.chunk) else ())] for p in self.places]
        return [number, self.checksum, *places]

    @classmethod
    def of_json(cls, item: list[Any], dimensions: int) -> "Stored":
        """Read an item of a log entry of an array with so many dimensions a record."""
        places = [Place(tuple(chunk) or (0,) * dimensions, *at) for *at, chunk in _split(item[2:])]
        return cls(item[1], places)


def _split(places: list[list[int]]) -> Iterator[tuple[int, int, list[int]]]:
    for offset, length, *chunk in places:
        yield offset, length, chunk


class Hdf5Block:
    """A block array: each record is written as whole chunks.

    Parameters
    ----------
    dataset : h5py.Dataset
        Where it goes.
    codec : ChunkCodec
        How its chunks are encoded.
    """

    def __init__(self, dataset: h5py.Dataset, codec: ChunkCodec) -> None:
        self._dataset = dataset
        self._id = dataset.id
        self._sizes = tuple(dataset.shape[1:])
        self._chunk = tuple(dataset.chunks[1:])
        self._dtype = dataset.dtype
        self._fill = dataset.fillvalue
        self._codec = codec

    def grow(self, sizes: tuple[int, ...]) -> Growth:
        """Make room for values of this shape."""
        if sizes == self._sizes:
            return "same"
        grown = tuple(max(pair) for pair in zip(self._sizes, sizes, strict=True))
        if grown == self._sizes:
            return "same"
        self._id.set_extent((self._dataset.shape[0], *grown))
        self._sizes = grown
        return "grown"

    def write(self, record: int, values: NDArray[Any]) -> Stored:
        """Write the chunks of a record."""
        # Only the order of the bytes may differ; stores are little-endian.
        values = values.astype(self._dtype, casting="equiv", copy=False)
        self._id.set_extent((record + 1, *self._sizes))
        checksum, places = 0, []
        for chunk, piece in cut(values, self._chunk, fill=self._fill):
            data = self._codec.compressed(piece)
            checksum = google_crc32c.extend(checksum, data)
            inside = (c * size for c, size in zip(chunk, self._chunk, strict=True))
            origin = (record, *inside)
            self._id.write_direct_chunk(origin, data)
            info = self._id.get_chunk_info_by_coord(origin)
            places.append(Place(chunk, int(info.byte_offset), int(info.size)))
        return Stored(int(checksum), places)

    def blank(self, record: int) -> None:
        """Write padding over what a record that failed has left."""
        self.write(record, np.full(self._sizes, self._fill, self._dtype))


class Hdf5Rows:
    """An array of rows: values lie in the commit log until a whole chunk of them is written.

    Parameters
    ----------
    dataset : h5py.Dataset
        Where it goes.
    n_values : int
        How many records are committed and not sealed; they have the fill value.
    """

    def __init__(self, dataset: h5py.Dataset, n_values: int) -> None:
        self._dataset = dataset
        self._values: list[Any] = [None] * n_values

    def grow(self, sizes: tuple[int, ...]) -> Growth:
        """Make room for values of this shape."""
        return grow_rows(self._dataset, sizes)

    def commit(self, value: Any) -> None:
        """Keep the value of the next record."""
        # A copy: the caller may use its array again before the seal.
        self._values.append(value.copy() if isinstance(value, np.ndarray) else value)

    def write(self, start: int) -> int:
        """Write the chunk of the records from `start`; gives its checksum."""
        return write_rows(self._dataset, start, self._values)

    def forget(self) -> None:
        """Let go of the values: they are sealed."""
        self._values = []


def grow_rows(dataset: h5py.Dataset, sizes: tuple[int, ...]) -> Growth:
    """Make room for rows of this shape."""
    grown = tuple(max(pair) for pair in zip(dataset.shape[1:], sizes, strict=True))
    if grown == dataset.shape[1:]:
        return "same"
    dataset.id.set_extent((dataset.shape[0], *grown))
    return "grown"


def write_rows(dataset: h5py.Dataset, start: int, values: list[Any]) -> int:
    """Write the rows of some records, not more than a chunk holds, as deflated chunks.

    Parameters
    ----------
    dataset : h5py.Dataset
        Where they go.
    start : int
        Number of the first record, at the beginning of a chunk.
    values : list
        A value for each record; None is the fill value.

    Returns
    -------
    int
        The crc32c of the encoded chunks, one after another; 0 if there is nothing to write.
    """
    sizes, chunk, fill = dataset.shape[1:], dataset.chunks, dataset.fillvalue
    dataset.id.set_extent((start + len(values), *sizes))
    if 0 in sizes or not values:
        return 0
    table = table_of(values, (chunk[0], *sizes), dtype=dataset.dtype, fill=fill)
    found = 0
    for place, piece in cut(table, chunk, fill=fill):
        data = deflated(piece)
        found = google_crc32c.extend(found, data)
        origin = tuple(c * size for c, size in zip(place[1:], chunk[1:], strict=True))
        dataset.id.write_direct_chunk((start, *origin), data)
    return int(found)
