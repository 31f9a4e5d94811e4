"""Files for others: figures that repeat byte for byte, and tables."""

from pathlib import Path
from typing import Any

import xarray as xr
from matplotlib.figure import Figure

_METADATA: dict[str, dict[str, Any]] = {
    ".pdf": {"CreationDate": None},
    ".svg": {"Date": None},
    ".png": {"Software": None},
}
"""What must be left out of each kind of file, so that the same figure is the same bytes."""


def save_figure(figure: Figure, path: Path) -> None:
    """Save a figure; the same figure gives the same bytes.

    Parameters
    ----------
    figure : Figure
        The figure. An SVG repeats if ``rcParams["svg.hashsalt"]`` is set, as in `paper_style`.
    path : Path
        A path that ends in .pdf, .svg or .png.

    Raises
    ------
    ValueError
        If it has another suffix.
    """
    try:
        metadata = _METADATA[path.suffix]
    except KeyError:
        raise ValueError(
            f"a figure is saved as one of {', '.join(_METADATA)}; got {str(path)!r}"
        ) from None
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata=metadata)


def write_csv(data: xr.DataArray, path: Path) -> None:
    """Write a table: one line a value, with its coordinates.

    Numbers are written so that they come back exactly.

    Parameters
    ----------
    data : DataArray
        Computed values with a name.
    path : Path
        Where the table goes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    data.to_dataframe().reset_index().to_csv(path, index=False)
