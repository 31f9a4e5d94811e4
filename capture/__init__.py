"""Record what flows through a network while it trains."""

from importlib import import_module
from typing import TYPE_CHECKING

from .schedule import At, Every, First

if TYPE_CHECKING:
    from .record import Record
    from .recorder import Recorder

__all__ = ["At", "Every", "First", "Record", "Recorder"]

_HOMES = {"Record": "record", "Recorder": "recorder"}


def __getattr__(name: str) -> object:
    """Import the recorder, and with it torch, only when it is asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f".{_HOMES[name]}", __name__)
    except ModuleNotFoundError as error:
        if error.name == "torch":  # and not a slip in an import of ours
            error.add_note("recording needs PyTorch: pip install 'outcrop[capture]'")
        raise
    return getattr(module, name)
