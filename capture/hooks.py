"""The hooks of one sampled step.

Hooks exist on sampled steps only, and everything is copied inside them: a tensor may be changed
in place right after.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from .backprops import Backprop, BackpropWatch, status_of
from .format import BACKPROP, GRADIENT, INPUT, OUTPUT, Status
from .gradients import GradientWatch, in_backward
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
        self._n_ignored = 0
        self._pieces: dict[ArrayKey, dict[int, Piece]] = {}
        self._statuses: dict[ArrayKey, Status] = {}
        self._called: dict[str, None] = {}
        self._gradients = GradientWatch(plan.parameters, wanted=GRADIENT in plan.keep)
        self._backprops = BackpropWatch(choose, self._guard)
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
    def only_evaluated(self) -> bool:
        """Whether the models ran, but in eval mode alone, which is not recorded."""
        return self._n_ignored > 0 and not self._passes

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
        for backprop, status, rows in self._backprops.results(self._gradients.counts):
            self._keep(backprop.key, status, rows, backprop.layout, backprop.number)
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

    def release(self) -> None:
        """Let go of all tensors: hooks in an autograd graph would keep them as long as it lives."""
        self._pieces = {}
        self._current = None
        self._passes = []
        self._backprops.release()
        self._gradients.release()

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
        self._n_ignored += self._ignoring
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
            self._backprops.meet_again(tap.name, output)
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
            backprop = Backprop(key, current.number, current.device_index, layout, rows)
            self._backprops.watch(backprop, tensor)

    def _take(
        self, key: ArrayKey, tensor: Tensor, layout: Layout, current: Pass, tap: Tap
    ) -> Rows | None:
        if not is_supported(tensor):
            self._statuses[key] = Status.UNSUPPORTED
            return None
        whole = key.quantity == INPUT and tap.kind.needs_all_positions
        choose = _all_positions if whole else self._choose
        rows = take_rows(tensor, layout, current.device_index, choose)
        self._keep(key, status_of(layout), rows, layout, current.number)
        return rows

    def _keep(
        self, key: ArrayKey, status: Status, rows: Rows | None, layout: Layout, number: int
    ) -> None:
        """Keep what came of an array in a forward pass: its values, or why there are none."""
        if rows is None:
            self._statuses.setdefault(key, status)
        else:
            self._statuses[key] = status
            self._pieces.setdefault(key, {})[number] = piece_of(rows, layout)


def _all_positions(n: int) -> Tensor | None:
    return None
