"""How arrays are cut into chunks, and how many records are sealed together."""

import math
from dataclasses import dataclass

import numpy as np

from .model import ArraySpec

INNER_BYTES = 8 * 2**20
ROW_CHUNK_BYTES = 4 * 2**20
ROW_CHUNK = 1024
ARRAY_CHUNK = 256
SHARD_BYTES = 256 * 2**20
LEAST_RECORDS, MOST_RECORDS = 16, 1024
ROWS_ONLY_RECORDS = 16_384


@dataclass(frozen=True)
class Grid:
    """How an array is cut: inner chunks of one record, and shards of them.

    Parameters
    ----------
    inner : tuple of int
        Shape of a chunk.
    outer : tuple of int
        Shape of a shard, a multiple of `inner`; the same as `inner` if there are no shards.
    """

    inner: tuple[int, ...]
    outer: tuple[int, ...]

    @property
    def per_shard(self) -> tuple[int, ...]:
        """Chunks in a shard, along each dimension."""
        return tuple(o // i for o, i in zip(self.outer, self.inner, strict=True))

    def cover(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """Count the chunks that cover so many items along each dimension after the first."""
        return tuple(math.ceil(s / i) for s, i in zip(sizes, self.inner[1:], strict=True))


def block_grid(spec: ArraySpec, records: int) -> Grid:
    """Cut a block array: one record a chunk, split along its longest axis if it is huge."""
    sizes = [max(size, 1) for size in spec.shape]
    inner = list(sizes)
    parts = math.ceil(math.prod(sizes) * _itemsize(spec) / INNER_BYTES)
    if parts > 1:
        axis = max(range(len(sizes)), key=sizes.__getitem__)
        inner[axis] = math.ceil(sizes[axis] / parts)
    outer = [math.ceil(s / i) * i for s, i in zip(sizes, inner, strict=True)]
    return Grid((1, *inner), (records, *outer))


def row_grid(spec: ArraySpec) -> Grid:
    """Cut an array of rows: many records a chunk, in columns of 256 along `array`."""
    sizes = [
        ARRAY_CHUNK if dim == "array" else max(size, 1)
        for dim, size in zip(spec.dims[1:], spec.shape, strict=True)
    ]
    fitting = ROW_CHUNK_BYTES // (math.prod(sizes) * _itemsize(spec))
    records = min(ROW_CHUNK, 2 ** max(int(fitting).bit_length() - 1, 0))
    return Grid((records, *sizes), (records, *sizes))


def records_per_shard(specs: list[ArraySpec]) -> int:
    """Choose how many records a stream's shards hold: a power of two."""
    sizes = [math.prod(s.shape) * _itemsize(s) for s in specs if s.number is not None]
    if not sizes and specs[0].dims[0] != "step":
        return ROWS_ONLY_RECORDS
    fitting = SHARD_BYTES // max(*sizes, 1) if sizes else MOST_RECORDS
    records: int = min(max(fitting, LEAST_RECORDS), MOST_RECORDS)
    return 1 << (records.bit_length() - 1)


def _itemsize(spec: ArraySpec) -> int:
    return int(np.dtype(spec.dtype).itemsize)
