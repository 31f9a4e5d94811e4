"""Study a recorded run: lazily, on any machine, without torch."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .run import Run, open_run, scalars

_MODULES = {
    "run": ("Run", "open_run", "scalars"),
}
_HOME = {name: module for module, exported in _MODULES.items() for name in exported}

__all__ = sorted(_HOME)  # noqa: PLE0605 - a list of str


def __getattr__(name: str) -> object:
    """Import a name's module when it is asked for: the base install lacks what most need."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f".{_HOME[name]}", __name__)
    except ModuleNotFoundError as error:
        if error.name in {"dask", "xarray", "scipy", "matplotlib", "threadpoolctl"}:
            error.add_note("analysis needs more libraries: pip install 'outcrop[analyze]'")
        raise
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
