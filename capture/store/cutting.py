"""Cutting tensors into chunks of one shape, and tables of rows into tensors."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

Coordinates = tuple[int, ...]


def cut(
    values: NDArray[Any], shape: Coordinates, *, fill: float
) -> Iterator[tuple[Coordinates, NDArray[Any]]]:
    """Cut a tensor into whole chunks, in the order of their coordinates.

    Parameters
    ----------
    values : array
        The tensor.
    shape : tuple of int
        Shape of a chunk.
    fill : int or float
        Value of padding, where the tensor ends inside a chunk.
    """
    if values.shape == shape:  # the usual case
        yield (0,) * values.ndim, values
        return
    counts = [-(-size // part) for size, part in zip(values.shape, shape, strict=True)]
    for chunk in product(*map(range, counts)):
        piece = values[place_of(chunk, shape)]
        yield chunk, piece if piece.shape == shape else padded(piece, shape, fill=fill)


def place_of(chunk: Coordinates, shape: Coordinates) -> tuple[slice, ...]:
    """Say which part of a tensor a chunk holds."""
    return tuple(slice(c * size, (c + 1) * size) for c, size in zip(chunk, shape, strict=True))


def padded(values: NDArray[Any], shape: Coordinates, *, fill: float) -> NDArray[Any]:
    """Make a tensor larger by padding at its ends."""
    whole = np.full(shape, fill, values.dtype)
    whole[tuple(map(slice, values.shape))] = values
    return whole


def paste(piece: NDArray[Any], chunk: Coordinates, into: NDArray[Any]) -> None:
    """Put a chunk where it belongs in a tensor, without its padding."""
    target = into[place_of(chunk, piece.shape)]
    target[...] = piece[tuple(map(slice, target.shape))]


def put_row(table: NDArray[Any], row: int, values: NDArray[Any]) -> None:
    """Put the values of one record, perhaps fewer than there is room for, into a table."""
    place: tuple[Any, ...] = (row, *map(slice, values.shape))
    table[place] = values


def table_of(values: Sequence[Any], shape: Coordinates, *, dtype: str, fill: float) -> NDArray[Any]:
    """Make a table of the values of some records; None, and what is left, is the fill value."""
    table = np.full(shape, fill, dtype)
    for row, value in enumerate(values):
        if value is not None:
            put_row(table, row, np.asarray(value))
    return table
