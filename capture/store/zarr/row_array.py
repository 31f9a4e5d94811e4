"""An array of rows being written: in memory and in the commit log until it is sealed.

Every chunk within the shape is a file, so that a missing one is always an error: where an array
is declared late, or grows along another dimension, earlier chunks are written as fill values.
"""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from outcrop.capture.store.chunks import ChunkCodec
from outcrop.capture.store.cutting import cut, table_of
from outcrop.capture.store.files import replace_file
from outcrop.capture.store.grids import Grid
from outcrop.capture.store.model import ArraySpec

from .nodes import chunk_key


class RowArray:
    """One array of rows.

    Parameters
    ----------
    spec : ArraySpec
        What it is.
    folder : Path
        Where it lies.
    grid : Grid
        How it is cut.
    sealed, length : int
        Records of the stream so far: those that are sealed, and all.
    """

    def __init__(
        self, spec: ArraySpec, folder: Path, *, grid: Grid, sealed: int, length: int
    ) -> None:
        self.sizes = spec.shape
        self._spec = spec
        self._folder = folder
        self._grid = grid
        self._codec = ChunkCodec("zstd")
        # Values from the start of the first chunk that is not full; None is the fill value.
        self._first = self._start_of(sealed)
        self._values: list[Any] = [None] * (length - self._first)
        self._columns: tuple[int, ...] | None = None

    def grow(self, sizes: tuple[int, ...]) -> None:
        """Make room for values of this shape."""
        self.sizes = tuple(map(max, self.sizes, sizes))

    def commit(self, value: Any) -> None:
        """Keep the value of the next record."""
        # A copy: the caller may use its array again before the seal.
        self._values.append(value.copy() if isinstance(value, np.ndarray) else value)

    def seal(self, length: int, *, sync: bool) -> None:
        """Write the chunks that hold records up to `length`."""
        self._fill_before(sync=sync)
        records = self._grid.inner[0]
        for start in range(self._first, length, records):
            offset = start - self._first
            table = table_of(
                self._values[offset : offset + records],
                (records, *self.sizes),
                dtype=self._spec.dtype,
                fill=self._spec.fill,
            )
            for (_, *column), piece in cut(table, self._grid.inner, fill=self._spec.fill):
                self._write((start // records, *column), piece, sync=sync)
        first = self._start_of(length)
        self._values = self._values[first - self._first :]
        self._first = first

    def _fill_before(self, *, sync: bool) -> None:
        """Write what new columns lack of the chunks that are full, as fill values."""
        columns, known = self._grid.cover(self.sizes), self._columns
        if columns == known:
            return
        filled = np.full(self._grid.inner, self._spec.fill, self._spec.dtype)
        for column in product(*map(range, columns)):
            if known is None or any(c >= k for c, k in zip(column, known, strict=True)):
                for row in range(self._first // self._grid.inner[0]):
                    self._write((row, *column), filled, sync=sync)
        self._columns = columns

    def _write(self, chunk: tuple[int, ...], values: NDArray[Any], *, sync: bool) -> None:
        data = b"".join(map(bytes, self._codec.encode(values)))
        replace_file(self._folder / chunk_key(chunk), data, sync=sync)

    def _start_of(self, length: int) -> int:
        return length - length % self._grid.inner[0]
