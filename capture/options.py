"""What a user asks of a recorder, checked before anything is created."""

from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

from torch import nn

from .format import QUANTITIES
from .layout import BatchAxis
from .words import did_you_mean

Quantity: TypeAlias = Literal["input", "output", "backprop", "gradient"]
Reduction: TypeAlias = Literal["mean", "sum"]
OnError: TypeAlias = Literal["disable", "raise"]


def checked_keep(keep: Iterable[str] | str) -> frozenset[str]:
    """Check the quantities to keep.

    Raises
    ------
    ValueError
        If there is none, or one is not known.

    Examples
    --------
    >>> sorted(checked_keep(("output", "backprop")))
    ['backprop', 'output']
    >>> checked_keep(("outputs",))
    Traceback (most recent call last):
    ...
    ValueError: keep= holds 'input', 'output', 'backprop', 'gradient'; \
got 'outputs' (did you mean 'output'?)
    """
    kept = [keep] if isinstance(keep, str) else list(keep)
    known = ", ".join(map(repr, QUANTITIES))
    for quantity in kept:
        if quantity not in QUANTITIES:
            hint = did_you_mean(quantity, QUANTITIES)
            raise ValueError(f"keep= holds {known}; got {quantity!r}{hint}")
    if not kept:
        raise ValueError(f"keep= names what to record: some of {known}; got nothing")
    return frozenset(kept)


def checked_count(value: int | None, *, name: str) -> int | None:
    """Check a number of examples or positions: at least 1, or None for all.

    Raises
    ------
    ValueError
        If it is neither.
    """
    if value is not None and value < 1:
        raise ValueError(f"{name}= is at least 1, or None for all; got {value!r}")
    return value


def checked_word(value: str, choices: Iterable[str], *, name: str) -> str:
    """Check an option that is one of a few words.

    Raises
    ------
    ValueError
        If it is another word.
    """
    known = list(choices)
    if value not in known:
        raise ValueError(f"{name}= is one of {', '.join(map(repr, known))}; got {value!r}")
    return value


def checked_batch_axis(
    batch_axis: Mapping[str, BatchAxis] | BatchAxis | Literal["auto"],
) -> dict[str, BatchAxis]:
    """Make a mapping by glob of what a user may say for the axis of the examples.

    Raises
    ------
    ValueError
        If an axis is not an int, "flat" or None.

    Examples
    --------
    >>> checked_batch_axis({"encoder.*": 1})
    {'encoder.*': 1}
    >>> checked_batch_axis("auto")
    {}
    """
    if isinstance(batch_axis, Mapping):
        mapping = dict(batch_axis)
    else:
        mapping = {} if batch_axis == "auto" else {"*": batch_axis}
    for pattern, axis in mapping.items():
        if not (axis is None or axis == "flat" or isinstance(axis, int)):
            raise ValueError(f"batch_axis= of {pattern!r} is an axis, 'flat' or None; got {axis!r}")
    return mapping


def named_models(model: nn.Module | Mapping[str, nn.Module]) -> dict[str, nn.Module]:
    """Give the models by the name that goes before those of their layers; "" for a single one.

    Raises
    ------
    TypeError
        If `model` is neither a module nor a mapping of them.
    """
    if isinstance(model, nn.Module):
        return {"": model}
    if isinstance(model, Mapping) and all(isinstance(one, nn.Module) for one in model.values()):
        return dict(model)
    raise TypeError(f"model is a torch.nn.Module, or a dict of them by name; got {type(model)!r}")
