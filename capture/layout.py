"""From a layer's tensor to rows `(example, position, feature)`.

Rows are selected before anything is copied; the copy is taken at once, since the tensor may be
changed in place right after the hook.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias
from weakref import ReferenceType, ref

import torch
from torch import Tensor

from .layers import Axis

BatchAxis: TypeAlias = int | Literal["flat"] | None
"""The axis that counts the examples; "flat" where axis 0 holds examples x positions."""

ChoosePositions: TypeAlias = Callable[[int], Tensor | None]
"""Gives the recorded positions of so many; None for all."""


@dataclass(frozen=True)
class Layout:
    """Where the examples and the features of a tensor lie.

    Parameters
    ----------
    batch : int, "flat" or None
        Axis of the examples; None if no axis counts them.
    feature : int or None
        Axis of the features, counted from the front; None if the tensor has none.
    n : int
        Number of examples in the pass.
    """

    batch: BatchAxis
    feature: int | None
    n: int


@dataclass(frozen=True)
class Rows:
    """A copy of the selected rows of a tensor.

    Parameters
    ----------
    values : Tensor
        ``(example, position, feature)``, perhaps a transposed view of the copy.
    spatial : tuple of int
        The shape of all positions, such as ``(height, width)``; empty for one position.
    positions : Tensor or None
        Which positions these are; None for all.
    """

    values: Tensor
    spatial: tuple[int, ...]
    positions: Tensor | None


class Layouts:
    """Decides the layout of each tensor of one forward pass.

    Layers that work on each number alone inherit the axis of the features from the layer whose
    output they take; so the tensors of a pass are followed by identity.

    Parameters
    ----------
    batch_axis : mapping of str to BatchAxis
        The user's word on layers, by glob.
    """

    def __init__(self, batch_axis: Mapping[str, BatchAxis]) -> None:
        self._batch_axis = batch_axis
        # Weak, so that nothing lives longer for being recorded.
        self._feature: dict[int, tuple[ReferenceType[Tensor], int | None]] = {}

    def decide(self, layer: str, tensor: Tensor, axis: Axis, n: int) -> Layout:
        """Decide where the examples (of which there are `n`) and the features lie."""
        return Layout(self._batch(layer, tensor, n), self._feature_axis(tensor, axis), n)

    def remember(self, tensor: Tensor, layout: Layout) -> None:
        """Let layers that take `tensor` inherit its layout."""
        self._feature[id(tensor)] = (ref(tensor), layout.feature)

    def inherited(self, tensor: Tensor) -> int | Literal["inherit"]:
        """Give the known axis of the features of a tensor, as its producer left it."""
        producer, axis = self._feature.get(id(tensor), (None, None))
        # The id of a tensor that is gone may be another's by now.
        alive = producer is not None and producer() is tensor
        return axis if alive and axis is not None else "inherit"

    def _batch(self, layer: str, tensor: Tensor, n: int) -> BatchAxis:
        for pattern, axis in self._batch_axis.items():
            if fnmatchcase(layer, pattern):
                return axis
        return 0 if tensor.dim() and tensor.shape[0] == n else None

    def _feature_axis(self, tensor: Tensor, axis: Axis) -> int | None:
        if axis == "none":
            return None
        if axis == "inherit":
            axis = self.inherited(tensor)
        if axis == "inherit":
            # Images have their channels in front, tokens and vectors their features last.
            axis = 1 if tensor.dim() > 3 else -1
        found = axis % tensor.dim() if tensor.dim() else None
        # A vector has examples alone, (N,): it has no features.
        return None if tensor.dim() == 1 and found == 0 else found


def take_rows(
    tensor: Tensor, layout: Layout, index: Tensor | None, choose: ChoosePositions
) -> Rows:
    """Copy the rows of some examples out of a tensor.

    Parameters
    ----------
    tensor : Tensor
        Any tensor of the layer.
    layout : Layout
        Where its examples and features lie.
    index : Tensor or None
        The examples to take; None for all.
    choose : callable
        Says which of so many positions to take.

    Returns
    -------
    Rows
    """
    tensor = tensor.detach()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    tensor, feature = _examples_first(tensor, layout, index)
    spatial = tuple(size for axis, size in enumerate(tensor.shape) if axis not in {0, feature})
    positions = choose(_product(spatial)) if spatial else None
    if positions is None:
        rows = _copy(tensor, index if layout.batch is not None else None)
        return Rows(_as_rows(rows, feature), spatial, None)
    positions = positions.to(tensor.device)
    rows = _as_rows(tensor, feature)
    chosen = index if index is not None else torch.arange(rows.shape[0], device=rows.device)
    if layout.batch is None:
        chosen = torch.zeros(1, dtype=torch.long, device=rows.device)
    return Rows(rows[chosen[:, None], positions[None, :]], spatial, positions)


def _examples_first(
    tensor: Tensor, layout: Layout, index: Tensor | None
) -> tuple[Tensor, int | None]:
    """View a tensor with its examples on axis 0; also gives the axis of its features then."""
    if layout.batch is None:
        feature = None if layout.feature is None else layout.feature + 1
        return tensor[None], feature
    if layout.batch == "flat":
        feature = None if layout.feature is None else layout.feature + 1
        return tensor.unflatten(0, (layout.n, -1)), feature
    if layout.batch == 0:
        return tensor, layout.feature
    batch, feature = layout.batch % tensor.dim(), layout.feature
    if feature is not None and feature < batch:
        feature += 1
    return tensor.movedim(batch, 0), feature


def _as_rows(tensor: Tensor, feature: int | None) -> Tensor:
    """View (example, …, feature, …) as (example, position, feature)."""
    if feature is None:
        return tensor.flatten(1)[:, :, None] if tensor.dim() > 1 else tensor[:, None, None]
    rows = tensor.movedim(feature, -1)
    return rows[:, None] if rows.dim() == 2 else rows.flatten(1, -2)


def _copy(tensor: Tensor, index: Tensor | None) -> Tensor:
    return tensor.clone() if index is None else tensor.index_select(0, index)


def _product(sizes: tuple[int, ...]) -> int:
    result = 1
    for size in sizes:
        result *= size
    return result
