"""The hooks of one sampled step.

Backprops come from tensor hooks that forward hooks put on the outputs. Full backward hooks
would forbid in-place operations after the layer, change gradients in the last bits and miss
outputs that are not tensors. Where an output is a view and is changed in place afterwards, its
tensor hook is lost without a word; then the hook on the tensor it is a view of gives the
backprop.

Hooks exist on sampled steps only, and everything is copied inside them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from .format import BACKPROP, GRADIENT, INPUT, OUTPUT, Status
from .gradients import GradientWatch, backward_pass, in_backward
from .layers import Axis
from .layout import ChoosePositions, Layout, Layouts, Rows, take_rows
from .pieces import is_supported, piece_of
from .plan import Plan, Tap
from .step import ArrayKey, Piece, StepData
from .tensors import first_tensor, flatten

DrawExamples = Callable[[int, int], Any]
"""Draws the recorded examples: (number of examples, forward pass) -> index."""


@dataclass
class Pass:
    """One forward pass of a model."""

    number: int
    n: int
    index: Any
    device_index: Tensor | None
    layouts: Layouts
    calls: dict[str, int] = field(default_factory=dict)


@dataclass
class Backprop:
    """The backprop of one output, as it arrives: rows and status by backward pass."""

    key: ArrayKey
    number: int
    layout: Layout
    outputs: Rows | None
    attached: bool = False
    arrived: dict[int, tuple[Rows, Status]] = field(default_factory=dict)


class StepCapture:
    """Hooks a model for one step and gathers what they see.

    Parameters
    ----------
    plan : Plan
        What is recorded.
    draw : callable
        Draws the recorded examples of a forward pass.
    choose : callable
        Chooses the recorded positions of so many.
    batch_size : int or None
        Number of examples; None takes it from the model's first input.
    fail : callable
        Called with an exception from a hook; it must not reach the training.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        draw: DrawExamples,
        choose: ChoosePositions,
        batch_size: int | None,
        fail: Callable[[Exception], None],
    ) -> None:
        self._plan = plan
        self._draw = draw
        self._choose = choose
        self._batch_size = batch_size
        self._fail = fail
        self._open = True
        self._handles: list[RemovableHandle] = []
        self._passes: list[Pass] = []
        self._current: Pass | None = None
        self._ignoring = False
        self._pieces: dict[ArrayKey, dict[int, Piece]] = {}
        self._statuses: dict[ArrayKey, Status] = {}
        self._backprops: list[Backprop] = []
        self._called: dict[str, None] = {}
        self._gradients = GradientWatch(plan.parameters, wanted=GRADIENT in plan.keep)
        self._install()

    @property
    def pass_sizes(self) -> list[int]:
        """Number of examples of each forward pass."""
        return [one.n for one in self._passes]

    @property
    def batch_size(self) -> int | None:
        """Number of examples of the whole step; None if no pass was seen."""
        return sum(self.pass_sizes) if self._passes else self._batch_size

    @property
    def n_backward(self) -> int:
        """Backward passes that reached a parameter."""
        return len(self._gradients.passes)

    def remove(self) -> None:
        """Take all hooks off; those that wait in an autograd graph do nothing any more."""
        self._open = False
        for handle in self._handles:
            handle.remove()
        self._gradients.remove()

    def finish(self, table: dict[str, Any]) -> StepData:
        """Give everything that was captured, as numpy arrays."""
        for backprop in self._backprops:
            self._settle(backprop)
        for name, status, gradient in self._gradients.results():
            key = ArrayKey(name, GRADIENT)
            self._statuses[key] = status
            if gradient is not None:
                self._pieces[key] = {0: gradient}
        return StepData(
            table=table,
            passes=[one.index for one in self._passes],
            pieces=self._pieces,
            statuses=self._statuses,
            called=list(self._called),
        )

    # Installing.
    def _install(self) -> None:
        add = self._handles.append
        for model in self._plan.models:
            add(model.register_forward_pre_hook(self._guard(self._begin_pass), with_kwargs=True))
        for tap in self._plan.taps:
            if INPUT in self._plan.keep:
                before = self._guard(partial(self._before, tap))
                add(tap.module.register_forward_pre_hook(before, with_kwargs=True))
            after = self._guard(partial(self._after, tap))
            add(tap.module.register_forward_hook(after, with_kwargs=True))
        if BACKPROP in self._plan.keep or GRADIENT in self._plan.keep:
            self._gradients.install(self._guard)

    def _guard(self, hook: Callable[..., None]) -> Callable[..., None]:
        """Keep a fault in a hook away from the training."""

        def guarded(*arguments: Any) -> None:
            if self._open:
                try:
                    hook(*arguments)
                except Exception as error:  # noqa: BLE001 - handed on, by the recorder's rule
                    self._fail(error)

        return guarded

    # Forward.
    def _begin_pass(self, model: nn.Module, args: Any, kwargs: Any) -> None:
        if in_backward():
            return
        self._ignoring = not model.training
        self._current = None if self._ignoring else self._new_pass(args, kwargs)

    def _new_pass(self, args: Any, kwargs: Any) -> Pass:
        tensor = first_tensor(args)
        tensor = first_tensor(kwargs) if tensor is None else tensor
        n, number = self._batch_size, len(self._passes)
        if n is None:
            n = tensor.shape[0] if tensor is not None and tensor.dim() else 1
        index = self._draw(n, number)
        device = None if tensor is None else tensor.device
        chosen = None if len(index) == n else torch.from_numpy(index).to(device)
        current = Pass(number, n, index, chosen, Layouts(self._plan.batch_axis))
        self._passes.append(current)
        return current

    def _call(self, tap: Tap, args: Any, kwargs: Any) -> tuple[Pass, int] | None:
        """Count a call of a layer; None if this pass is not recorded."""
        if self._ignoring or in_backward():
            return None
        if self._current is None:  # the layer runs by itself, outside its model
            self._current = self._new_pass(args, kwargs)
        call = self._current.calls.get(tap.name, 0)
        self._current.calls[tap.name] = call + 1
        self._called[tap.name] = None
        return self._current, call

    def _before(self, tap: Tap, module: nn.Module, args: Any, kwargs: Any) -> None:
        counted = self._call(tap, args, kwargs)
        tensor = first_tensor(args)
        tensor = first_tensor(kwargs) if tensor is None else tensor
        if counted is not None and tensor is not None:
            current, call = counted
            layout = current.layouts.decide(tap.name, tensor, tap.kind.input_axis, current.n)
            self._take(ArrayKey(tap.name, INPUT, "", call), tensor, layout, current, tap)

    def _after(self, tap: Tap, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if in_backward():
            self._again(tap, output)
            return
        if INPUT in self._plan.keep:  # counted before the forward pass
            if self._ignoring or self._current is None:
                return
            current, call = self._current, self._current.calls[tap.name] - 1
        else:
            counted = self._call(tap, args, kwargs)
            if counted is None:
                return
            current, call = counted
        axis = self._output_axis(tap, args, kwargs, current)
        for path, tensor in flatten(output):
            layout = current.layouts.decide(tap.name, tensor, axis, current.n)
            current.layouts.remember(tensor, layout)
            self._keep_output(tap, (path, call), tensor, layout, current)

    def _output_axis(self, tap: Tap, args: Any, kwargs: Any, current: Pass) -> Axis:
        if tap.kind.output_axis != "inherit":
            return tap.kind.output_axis
        tensor = first_tensor(args)
        tensor = first_tensor(kwargs) if tensor is None else tensor
        return "inherit" if tensor is None else current.layouts.inherited(tensor)

    def _keep_output(
        self, tap: Tap, place: tuple[str, int], tensor: Tensor, layout: Layout, current: Pass
    ) -> None:
        rows = None
        if OUTPUT in self._plan.keep:
            rows = self._take(ArrayKey(tap.name, OUTPUT, *place), tensor, layout, current, tap)
        if BACKPROP in self._plan.keep:
            key = ArrayKey(tap.name, BACKPROP, *place)
            self._watch(Backprop(key, current.number, layout, rows), tensor)

    def _take(
        self, key: ArrayKey, tensor: Tensor, layout: Layout, current: Pass, tap: Tap
    ) -> Rows | None:
        if not is_supported(tensor):
            self._statuses[key] = Status.UNSUPPORTED
            return None
        whole = key.quantity == INPUT and tap.kind.needs_all_positions
        choose = _all_positions if whole else self._choose
        rows = take_rows(tensor, layout, current.device_index, choose)
        self._statuses[key] = _status_of(layout)
        self._pieces.setdefault(key, {})[current.number] = piece_of(rows, layout)
        return rows

    # Backward.
    def _watch(self, backprop: Backprop, tensor: Tensor) -> None:
        self._backprops.append(backprop)
        if not is_supported(tensor):
            self._statuses[backprop.key] = Status.UNSUPPORTED
        elif not tensor.requires_grad:
            self._statuses.setdefault(backprop.key, Status.NO_GRAD)
        else:
            self._attach(backprop, tensor)

    def _attach(self, backprop: Backprop, tensor: Tensor) -> None:
        backprop.attached = True
        # Reading grad_fn first renews a stale view, on which register_hook can crash.
        tensor.grad_fn  # noqa: B018
        arrive = self._guard(partial(self._arrive, backprop, Status.RECORDED))
        tensor.register_hook(arrive)
        base = tensor._base
        if base is not None and base.grad_fn is not None:
            fallback = partial(self._arrive_at_base, backprop, tensor, tensor._version)
            base.register_hook(self._guard(fallback))

    def _arrive(self, backprop: Backprop, status: Status, gradient: Tensor) -> None:
        if torch.is_grad_enabled():  # a pass that builds a graph of itself: not a training pass
            return
        current = self._passes[backprop.number]
        rows = take_rows(gradient, backprop.layout, current.device_index, self._choose)
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

    def _again(self, tap: Tap, output: Any) -> None:
        """Meet a layer again while a checkpoint recomputes it.

        Never a new record. Only where the first pass ran without a graph does the recomputed
        output carry the backprop; it is recognised by its values.
        """
        for path, tensor in flatten(output):
            if not (tensor.requires_grad and is_supported(tensor)):
                continue
            for backprop in self._backprops:
                if self._is_recomputed(backprop, tap.name, path, tensor):
                    self._attach(backprop, tensor)
                    break

    def _is_recomputed(self, backprop: Backprop, name: str, path: str, tensor: Tensor) -> bool:
        key = backprop.key
        if backprop.attached or (key.name, key.path) != (name, path):
            return False
        if backprop.outputs is None:
            return True
        index = self._passes[backprop.number].device_index
        again = take_rows(tensor, backprop.layout, index, self._choose)
        return torch.equal(again.values, backprop.outputs.values)

    def _settle(self, backprop: Backprop) -> None:
        counted = [
            found for number, found in backprop.arrived.items() if self._gradients.counts(number)
        ]
        if not counted:
            if backprop.attached:
                self._statuses.setdefault(backprop.key, Status.UNUSED)
            return
        rows = _summed([rows for rows, _ in counted])
        bare = [status for _, status in counted if status is not Status.RECORDED]
        self._statuses[backprop.key] = bare[0] if bare else _status_of(backprop.layout)
        parts = self._pieces.setdefault(backprop.key, {})
        parts[backprop.number] = piece_of(rows, backprop.layout)


def _all_positions(n: int) -> Tensor | None:
    return None


def _status_of(layout: Layout) -> Status:
    return Status.RECORDED if layout.batch is not None else Status.NO_EXAMPLE_AXIS


def _summed(rows: Sequence[Rows]) -> Rows:
    total = rows[0].values
    for other in rows[1:]:
        total = total + other.values
    return Rows(total, rows[0].spatial, rows[0].positions)
