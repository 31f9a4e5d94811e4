"""The tensors inside whatever a layer takes or returns."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from torch import Tensor


def flatten(value: object, path: str = "") -> Iterator[tuple[str, Tensor]]:
    """Give the tensors of a nested value with their paths.

    Tuples, lists, dicts, named tuples and dataclasses are entered; other things are passed
    over.

    Parameters
    ----------
    value : object
        What a layer returned.
    path : str
        Path of `value` itself.

    Yields
    ------
    str
        Path of a tensor: ``""`` for a bare one, ``"1.0"``, ``"hidden"``, …
    Tensor
        The tensor.

    Examples
    --------
    >>> import torch
    >>> [path for path, _ in flatten({"y": torch.zeros(1), "state": (torch.zeros(1), None)})]
    ['y', 'state.0']
    """
    if isinstance(value, Tensor):
        yield path, value
        return
    for name, part in _parts(value):
        yield from flatten(part, f"{path}.{name}" if path else str(name))


def first_tensor(value: object) -> Tensor | None:
    """Give the first tensor of a nested value, None if it holds none."""
    return next((tensor for _, tensor in flatten(value)), None)


def _parts(value: object) -> Iterator[tuple[object, object]]:
    # A dict comes first: model outputs may be a dict and a dataclass at once, and then the
    # dict leaves out the fields that are not set.
    if isinstance(value, dict):
        yield from value.items()
    elif is_dataclass(value) and not isinstance(value, type):
        yield from ((field.name, getattr(value, field.name)) for field in fields(value))
    elif isinstance(value, tuple | list):
        yield from zip(getattr(value, "_fields", range(len(value))), value, strict=True)
