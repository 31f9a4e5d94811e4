"""Study a recorded run: lazily, on any machine, without torch."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .measures import intrinsic_dimension, participation_ratio, saturation, total_variance
    from .moments import Moments
    from .run import Run, open_run, scalars
    from .spectra import covariance, spectrum

__all__ = [
    "Moments",
    "Run",
    "covariance",
    "intrinsic_dimension",
    "open_run",
    "participation_ratio",
    "saturation",
    "scalars",
    "spectrum",
    "total_variance",
]

_HOMES = {
    "measures": ("intrinsic_dimension", "participation_ratio", "saturation", "total_variance"),
    "moments": ("Moments",),
    "run": ("Run", "open_run", "scalars"),
    "spectra": ("covariance", "spectrum"),
}
_LIBRARIES = {"dask", "matplotlib", "scipy", "threadpoolctl", "xarray"}


def __getattr__(name: str) -> object:
    """Import a name's module when it is asked for: the base install lacks what most need."""
    home = next((home for home, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f".{home}", __name__)
    except ModuleNotFoundError as error:
        if error.name in _LIBRARIES:  # and not a slip in an import of ours
            error.add_note("analysis needs more libraries: pip install 'outcrop[analyze]'")
        raise
    return getattr(module, name)
