"""Backprops: dL/d(output of a layer), as each backward pass brings them.

They come from tensor hooks that forward hooks put on the outputs. Full backward hooks would
forbid in-place operations after the layer, change gradients in the last bits and miss outputs
that are not tensors. Where an output is a view and is changed in place afterwards, its tensor
hook is lost without a word; then a hook on the tensor it is a view of gives the backprop.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .format import Status
from .gradients import Guard, backward_pass
from .layout import ChoosePositions, Layout, Rows, take_rows
from .pieces import is_supported
from .step import ArrayKey
from .tensors import flatten


@dataclass
class Backprop:
    """The backprop of one output in one forward pass.

    Parameters
    ----------
    key : ArrayKey
        Which array it belongs to.
    number : int
        Number of the forward pass.
    index : Tensor or None
        The recorded examples of that pass; None for all.
    layout : Layout
        Where the examples and features of the output lie.
    outputs : Rows or None
        The recorded rows of the output, if they are kept.
    status : Status
        What is to be said if no backward pass brings anything.
    arrived : dict
        Rows and status by backward pass.
    """

    key: ArrayKey
    number: int
    index: Tensor | None
    layout: Layout
    outputs: Rows | None
    status: Status = Status.NO_GRAD
    arrived: dict[int, tuple[Rows, Status]] = field(default_factory=dict)

    @property
    def attached(self) -> bool:
        """Whether a tensor is watched for it."""
        return self.status is Status.UNUSED


class BackpropWatch:
    """Watches the outputs of one step.

    Parameters
    ----------
    choose : callable
        Chooses the recorded positions.
    guard : callable
        Keeps a fault in a hook away from the training.
    """

    def __init__(self, choose: ChoosePositions, guard: Guard) -> None:
        self._choose = choose
        self._guard = guard
        self._watched: list[Backprop] = []

    def watch(self, backprop: Backprop, tensor: Tensor) -> None:
        """Watch an output."""
        self._watched.append(backprop)
        if not is_supported(tensor):
            backprop.status = Status.UNSUPPORTED
        elif tensor.requires_grad:
            self._attach(backprop, tensor)

    def results(
        self, counts: Callable[[int], bool]
    ) -> Iterator[tuple[Backprop, Status, Rows | None]]:
        """Give status and rows of each output: the sum over the backward passes that count."""
        for backprop in self._watched:
            found = [one for number, one in backprop.arrived.items() if counts(number)]
            if found:
                yield backprop, found[-1][1], _summed([rows for rows, _ in found])
            else:
                yield backprop, backprop.status, None

    def release(self) -> None:
        """Let go of all tensors."""
        for backprop in self._watched:
            backprop.arrived.clear()
            backprop.outputs = None
        self._watched = []

    def _attach(self, backprop: Backprop, tensor: Tensor) -> None:
        backprop.status = Status.UNUSED
        # Reading grad_fn first renews a stale view, on which register_hook can crash.
        tensor.grad_fn  # noqa: B018
        arrive = self._guard(partial(self._arrive, backprop, status_of(backprop.layout)))
        tensor.register_hook(arrive)
        base = tensor._base
        if base is not None and base.grad_fn is not None:
            fallback = partial(self._arrive_at_base, backprop, tensor, tensor._version)
            base.register_hook(self._guard(fallback))

    def _arrive(self, backprop: Backprop, status: Status, gradient: Tensor) -> None:
        if torch.is_grad_enabled():  # a pass that builds a graph of itself: not a training pass
            return
        rows = take_rows(gradient, backprop.layout, backprop.index, self._choose)
        backprop.arrived[backward_pass()] = (rows, status)

    def _arrive_at_base(
        self, backprop: Backprop, tensor: Tensor, version: int, gradient: Tensor
    ) -> None:
        # A view that was never changed has its own hook; an unused one has no backprop.
        if tensor._version == version or backward_pass() in backprop.arrived:
            return
        base = tensor._base
        if base is None:
            return
        if gradient.stride() != base.stride():
            like = torch.empty_strided(
                base.size(), base.stride(), dtype=gradient.dtype, device=gradient.device
            )
            gradient = like.copy_(gradient)
        offset = tensor.storage_offset() - base.storage_offset()
        view = torch.as_strided(gradient, tensor.size(), tensor.stride(), offset)
        self._arrive(backprop, Status.RECORDED_BASE, view)

    def meet_again(self, name: str, output: Any) -> None:
        """Meet a layer again while a checkpoint recomputes it.

        Never a new record. Only where the first pass ran without a graph does the recomputed
        output carry the backprop; it is recognised by its values.
        """
        for path, tensor in flatten(output):
            if not (tensor.requires_grad and is_supported(tensor)):
                continue
            for backprop in self._watched:
                if self._is_recomputed(backprop, name, path, tensor):
                    self._attach(backprop, tensor)
                    break

    def _is_recomputed(self, backprop: Backprop, name: str, path: str, tensor: Tensor) -> bool:
        key = backprop.key
        if backprop.attached or (key.name, key.path) != (name, path):
            return False
        if backprop.outputs is None:
            return True
        again = take_rows(tensor, backprop.layout, backprop.index, self._choose)
        return torch.equal(again.values, backprop.outputs.values)


def status_of(layout: Layout) -> Status:
    """Tell the status of values that were recorded."""
    return Status.RECORDED if layout.batch is not None else Status.NO_EXAMPLE_AXIS


def _summed(rows: Sequence[Rows]) -> Rows:
    total = rows[0].values
    for other in rows[1:]:
        total = total + other.values
    return Rows(total, rows[0].spatial, rows[0].positions)
