"""Which layers are recorded."""

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TypeAlias

from torch import nn

from .layers import kind_of
from .words import did_you_mean, joined

Predicate: TypeAlias = Callable[[str, nn.Module], bool]
Layers: TypeAlias = Predicate | str | type[nn.Module] | Sequence[str | type[nn.Module]] | None
"""None for every documented leaf layer; globs and classes; or a predicate (name, module)."""


def select_layers(models: Mapping[str, nn.Module], layers: Layers) -> dict[str, nn.Module]:
    """Find the layers that a user asks for, in the order of the modules.

    Parameters
    ----------
    models : mapping of str to Module
        The models by name: ``""`` for a single one.
    layers : None, str, class, sequence of these, or predicate
        The choice.

    Returns
    -------
    dict of str to Module
        Layers by name.

    Raises
    ------
    ValueError
        If a pattern, a class or the whole choice matches nothing.
    """
    modules = {
        joined(model_name, name): module
        for model_name, model in models.items()
        for name, module in model.named_modules()
    }
    if layers is None:
        found = {name: module for name, module in modules.items() if _is_documented_leaf(module)}
    elif isinstance(layers, str | type):
        found = _matching(modules, [layers])
    elif isinstance(layers, Sequence):
        found = _matching(modules, layers)
    else:
        found = {name: module for name, module in modules.items() if layers(name, module)}
    if not found:
        raise ValueError(
            f"layers= selects no layer of the model, which has {_listing(modules)}; "
            "name some with a glob, a class or a predicate (name, module) -> bool"
        )
    return found


def _is_documented_leaf(module: nn.Module) -> bool:
    return kind_of(module) is not None and not any(True for _ in module.children())


def _matching(
    modules: Mapping[str, nn.Module], choices: Sequence[str | type[nn.Module]]
) -> dict[str, nn.Module]:
    chosen = [_matches(modules, choice) for choice in choices]
    return {name: module for name, module in modules.items() if any(name in c for c in chosen)}


def _matches(modules: Mapping[str, nn.Module], choice: str | type[nn.Module]) -> set[str]:
    if isinstance(choice, type):
        found = {name for name, module in modules.items() if isinstance(module, choice)}
        known = sorted({type(module).__name__ for module in modules.values()})
        wanted = choice.__name__
    else:
        found = {name for name in modules if fnmatchcase(name, choice)}
        known, wanted = list(modules), choice
    if not found:
        raise ValueError(
            f"layers= names {wanted!r}, which matches no layer{did_you_mean(wanted, known)}; "
            f"the model has {_listing(known)}"
        )
    return found


def _listing(names: Mapping[str, object] | Sequence[str], most: int = 12) -> str:
    named = [repr(name) for name in names if name]
    more = len(named) - most
    return ", ".join(named[:most]) + (f" and {more} more" if more > 0 else "")
