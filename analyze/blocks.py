"""Block arrays of a store as dask arrays."""

from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray
from outcrop.capture.format import BFLOAT16
from outcrop.capture.store import BlockReader

_BLOCK_BYTES = 8 * 2**20
_MOST_RECORDS = 1024


@dataclass(frozen=True)
class LazyBlocks:
    """Looks like an array to dask; reads the records that are asked for.

    Parameters
    ----------
    reader : BlockReader
        Reads the array.
    extents : array, shape (record, dimension after the first)
        How far the values of each record reach; zeros where none are expected.
    dtype_name : str
        The dtype as recorded: what is stored may stand for another.
    place : str
        Layer and quantity, for messages.
    """

    reader: BlockReader
    extents: NDArray[np.intp]
    dtype_name: str
    place: str

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of all dimensions."""
        return self.reader.shape

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype as it is read: float32 for bfloat16."""
        return np.dtype(np.float32) if self.dtype_name == BFLOAT16 else self.reader.dtype

    def __getitem__(self, key: tuple[Any, ...]) -> NDArray[Any]:
        # dask asks with slices, and with whole numbers and lists where it joins selections.
        if isinstance(key[0], slice) and key[0].step in {None, 1}:
            start, stop, _ = key[0].indices(self.shape[0])
            return self._read(start, max(start, stop))[(slice(None), *key[1:])]
        wanted = np.arange(self.shape[0])[key[0]]
        start, stop = (int(np.min(wanted)), int(np.max(wanted)) + 1) if wanted.size else (0, 0)
        values: NDArray[Any] = self._read(start, stop)[(wanted - start, *key[1:])]
        return values

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        try:
            values = self.reader.read(start, stop, self.extents[start:stop])
        except ValueError as error:
            error.add_note(f"while reading {self.place}, records {start} to {stop - 1}")
            raise
        if self.dtype_name == BFLOAT16:
            return (values.astype(np.uint32) << 16).view(np.float32)
        return values


def lazy_array(blocks: LazyBlocks, *, name: str) -> da.Array:
    """Make a dask array of several megabytes a block, whole records each.

    Parameters
    ----------
    blocks : LazyBlocks
        What to read.
    name : str
        A name that is the same for the same data, so that dask can recognise it.
    """
    bytes_a_record = max(int(np.prod(blocks.shape[1:])) * blocks.dtype.itemsize, 1)
    records = int(np.clip(_BLOCK_BYTES // bytes_a_record, 1, _MOST_RECORDS))
    chunks = (min(records, max(blocks.shape[0], 1)), *blocks.shape[1:])
    array: da.Array = da.from_array(blocks, chunks=chunks, name=name, lock=False)
    return array
