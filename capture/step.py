"""What the hooks hand to the writer: one step, in numpy, not yet arranged into arrays."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .format import Status


class ArrayKey(NamedTuple):
    """Which quantity of which call of which layer, or of which parameter."""

    name: str
    quantity: str
    path: str = ""
    call: int = 0


@dataclass(frozen=True)
class Piece:
    """The values of one array in one forward pass.

    Parameters
    ----------
    values : array
        ``(example, position, feature)``, or ``(entry,)`` of a parameter.
    dtype : str
        The dtype's name; bfloat16 is carried as uint16.
    facts : dict
        What the metadata document says of the array: axes, spatial shape, shape.
    positions : array or None
        Which positions these are; None for all.
    """

    values: NDArray[Any]
    dtype: str
    facts: dict[str, Any]
    positions: NDArray[np.int64] | None = None


@dataclass
class StepData:
    """Everything that was captured of one step.

    Parameters
    ----------
    table : dict
        Values of the step table, by column.
    passes : list of array
        Indices of the recorded examples of each forward pass.
    pieces : dict
        Values of each array by forward pass.
    statuses : dict
        Status of every array of a layer that ran, and of every parameter.
    called : list of str
        The layers that ran, in order.
    failed : bool
        Whether the recorder failed at this step, so that nothing of it is kept.
    """

    table: dict[str, Any]
    passes: list[NDArray[np.int64]] = field(default_factory=list)
    pieces: dict[ArrayKey, dict[int, Piece]] = field(default_factory=dict)
    statuses: dict[ArrayKey, Status] = field(default_factory=dict)
    called: list[str] = field(default_factory=list)
    failed: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of all values."""
        return sum(p.values.nbytes for parts in self.pieces.values() for p in parts.values())
