"""What a store is asked to keep, whatever its physical form.

A store holds streams. A stream is a table of records along its first dimension (`step`, or
`row` for scalars), in two kinds of arrays:

- **blocks**, numbered, large: one tensor a record, perhaps none; `Record.blocks`;
- **rows**, named by their path, small: one value or a short vector for each record;
  `Record.rows`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Mode: TypeAlias = Literal["x", "a", "w"]
Compression: TypeAlias = Literal["zstd", "none"]
Fsync: TypeAlias = Literal["never", "seal"] | float

Document: TypeAlias = dict[str, Any]
"""The metadata document: plain JSON values."""


@dataclass(frozen=True)
class ArraySpec:
    """One array of a stream, to be created.

    Parameters
    ----------
    path : str
        Path of the array below the stream, such as ``"layers/conv1/output/values"``.
    dims : tuple of str
        Names of the dimensions; the first one is the stream's.
    shape : tuple of int
        Sizes of the dimensions after the first, at the first record. Later records may be
        larger (the array grows) or smaller (they are padded with `fill`).
    dtype : str
        A numpy dtype name.
    fill : int or float
        Value of what was not recorded.
    number : int or None
        The number of a block array; None for an array of rows.
    attributes : mapping
        Attributes for people and stock readers.
    """

    path: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    fill: float
    number: int | None = None
    attributes: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Record:
    """Everything of one step, or one row of scalars.

    Parameters
    ----------
    rows : mapping of str to scalar or array
        A value for each array of rows, by path; one that is left out gets the fill value.
    blocks : mapping of int to array
        Tensors without the stream's dimension, by array number.
    """

    rows: Mapping[str, Any]
    blocks: Mapping[int, NDArray[Any]] = field(default_factory=dict)


class StoreWriter(Protocol):
    """The writing side of a store. One thread at a time uses it."""

    def describe(self, document: Document) -> None:
        """Replace the metadata document."""

    def declare(self, stream: str, arrays: list[ArraySpec], document: Document) -> None:
        """Create `arrays` in `stream`, and the stream itself at its first call.

        May be called again when a layer is first seen later: the arrays then hold fill
        values for the earlier records. `document` replaces the metadata document.
        """

    def append(self, stream: str, records: list[Record]) -> None:
        """Commit records to the end of `stream`: when this returns, a killed process keeps them."""

    def close(self, document: Document) -> None:
        """Seal all streams and leave a store that stock libraries read whole."""


class BlockReader(Protocol):
    """Reads one block array; can be pickled and used in other processes."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of all dimensions; the first counts the committed records."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype as stored."""

    @property
    def fill(self) -> Any:
        """The value of padding."""

    def read(self, start: int, stop: int, extents: NDArray[np.intp]) -> NDArray[Any]:
        r"""Read the records from `start` to `stop`.

        Parameters
        ----------
        start, stop : int
            A range of records.
        extents : array, shape (stop - start, dimensions - 1)
            How far the values of each record reach along each dimension after the first;
            a row of zeros where no values are expected.

        Returns
        -------
        array, shape (stop - start, \*shape[1:])
            Fill values where none are expected.

        Raises
        ------
        DamagedStore
            If an expected chunk is missing, cut short or fails its checksum.
        """


class StoreReader(Protocol):
    """The reading side of a store: a snapshot of the records committed when it was opened."""

    @property
    def document(self) -> Document:
        """The metadata document."""

    def spec(self, stream: str, path: str) -> ArraySpec:
        """Describe an array; `shape` is that of one record."""

    @property
    def state(self) -> str:
        """``"closed"``, ``"recording"`` (a live process holds it) or ``"interrupted"``."""

    def length(self, stream: str) -> int:
        """Count the committed records of `stream`; 0 if it has none."""

    def rows(self, stream: str) -> Mapping[str, NDArray[Any]]:
        """All arrays of rows of `stream`, by path, each with `length(stream)` records.

        They are read when they are looked up, and may raise `DamagedStore` then.
        """

    def blocks(self, stream: str, number: int) -> BlockReader:
        """Make the reader of a block array."""
