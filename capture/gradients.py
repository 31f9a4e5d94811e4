"""The gradients of parameters: what this process's backward passes added.

A tensor hook on the parameter sees what each backward pass brings, before reduction over
ranks, unscaling and clipping. It also fires for `torch.autograd.grad`, which adds nothing to
`.grad`; so a pass counts only if it reaches the parameter's post-accumulate hook too.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from .format import Status
from .pieces import piece_of_parameter
from .step import Piece

Guard = Callable[[Callable[..., None]], Callable[..., None]]


def backward_pass() -> int:
    """Tell the running backward pass by a number, unique in a process; -1 outside of one."""
    return torch._C._current_graph_task_id()


def in_backward() -> bool:
    """Whether a backward pass runs: a forward call then is a checkpoint's recomputation."""
    return backward_pass() != -1


class GradientWatch:
    """Watches the parameters during one step.

    Parameters
    ----------
    parameters : mapping of str to Parameter
        The parameters by canonical name.
    wanted : bool
        Whether their gradients are kept, or only the backward passes counted.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], *, wanted: bool) -> None:
        self._parameters = parameters
        self._wanted = wanted
        self._watched = False
        self._handles: list[RemovableHandle] = []
        self._arrived: dict[str, dict[int, Tensor]] = {name: {} for name in parameters}
        self._reached: dict[str, set[int]] = {name: set() for name in parameters}
        self.passes: dict[int, None] = {}

    def install(self, guard: Guard) -> None:
        """Put hooks on all parameters that need a gradient."""
        for name, parameter in self._parameters.items():
            if parameter.requires_grad:
                self._watched = True
                reach = guard(partial(self._reach, name))
                self._handles.append(parameter.register_post_accumulate_grad_hook(reach))
                if self._wanted:
                    handle = parameter.register_hook(guard(partial(self._arrive, name)))
                    _put_first(parameter, handle)
                    self._handles.append(handle)

    def remove(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()

    def release(self) -> None:
        """Let go of all tensors."""
        for arrived in self._arrived.values():
            arrived.clear()

    def counts(self, number: int) -> bool:
        """Whether a backward pass added to the gradient of a parameter."""
        return number in self.passes or not self._watched

    def results(self) -> Iterator[tuple[str, Status, Piece | None]]:
        """Give status and sum of each parameter's gradient."""
        if not self._wanted:
            return
        for name, parameter in self._parameters.items():
            reached = self._reached[name]
            parts = [part for number, part in self._arrived[name].items() if number in reached]
            if parts:
                yield name, Status.RECORDED, piece_of_parameter(sum(parts[1:], parts[0]))
            else:
                yield name, Status.UNUSED if parameter.requires_grad else Status.FROZEN, None

    def _arrive(self, name: str, gradient: Tensor) -> None:
        gradient = gradient.detach()
        dense = gradient.to_dense() if gradient.layout is not torch.strided else gradient.clone()
        self._arrived[name][backward_pass()] = dense

    def _reach(self, name: str, parameter: Any) -> None:
        number = backward_pass()
        self.passes[number] = None
        self._reached[name].add(number)


def _put_first(parameter: nn.Parameter, handle: RemovableHandle) -> None:
    """Let our hook see the gradient before the user's hooks change it."""
    hooks = parameter._backward_hooks
    if isinstance(hooks, OrderedDict) and len(hooks) > 1:
        hooks.move_to_end(handle.id, last=False)
