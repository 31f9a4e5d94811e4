"""Figures: they draw what they are given, compute nothing, and save nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

PAPER_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "lines.linewidth": 1.1,
    "lines.markersize": 3.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "savefig.dpi": 200,
    "pdf.fonttype": 42,
    # A salt of its own would make each svg another file.
    "svg.hashsalt": "outcrop",
}
_Y_LABEL = "saturation\n(intrinsic dimension / features)"
_LIMITED = "no more samples than features"
_MARKERS = "osD^vP*X"
_MOST_NAMED = 10


@contextmanager
def paper_style() -> Iterator[None]:
    """Draw in small print for a paper: 8 point, thin lines, fonts that stay text in a PDF."""
    with mpl.rc_context(PAPER_STYLE):
        yield


def draw_saturation(data: xr.DataArray, ax: Axes | None = None) -> Axes:
    """Draw saturation against depth, or against the steps.

    Parameters
    ----------
    data : DataArray, dims (layer, threshold) or (step, layer)
        Computed values of `saturation`, a threshold or several. Without `step`, layers stand on
        the x axis, with a line for each threshold; with `step` there is a line for each layer,
        coloured by depth.
    ax : Axes or None
        Where to draw; None makes a figure.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If there are steps and several thresholds: they need a panel each.
    """
    ax = Figure(layout="constrained").subplots() if ax is None else ax
    data = data if "threshold" in data.dims else data.expand_dims("threshold")
    data = data if "layer" in data.dims else data.expand_dims("layer")
    if "step" not in data.dims:
        _draw_by_depth(data, ax)
    elif data.sizes["threshold"] == 1:
        _draw_by_step(data.isel(threshold=0), ax)
        _add_legend(ax)
    else:
        raise ValueError(
            f"data have steps and {data.sizes['threshold']} thresholds; select one, or use "
            "draw_saturation_panels, which gives each a panel"
        )
    return ax


def draw_saturation_panels(data: xr.DataArray, figure: Figure | None = None) -> NDArray[Any]:
    """Draw saturation against the steps, a panel for each threshold.

    Parameters
    ----------
    data : DataArray, dims (step, layer, threshold)
        Computed values of `saturation`.
    figure : Figure, SubFigure or None
        Where to draw; None makes a figure.

    Returns
    -------
    array of Axes, one for each threshold
    """
    figure = Figure(layout="constrained") if figure is None else figure
    panels = figure.subplots(1, data.sizes["threshold"], sharex=True, sharey=True, squeeze=False)[0]
    for number, ax in enumerate(panels):
        _draw_by_step(data.isel(threshold=number), ax)
        if number:
            ax.set_ylabel("")
    _add_legend(panels[-1])
    return np.asarray(panels)


def _draw_by_depth(data: xr.DataArray, ax: Axes) -> None:
    places = np.arange(data.sizes["layer"])
    colours = _colours(data.sizes["threshold"])
    for number, colour in enumerate(colours):
        one = data.isel(threshold=number)
        marker = _MARKERS[number % len(_MARKERS)]
        label = f"{_percent(float(one['threshold']))} of variance"
        _draw_line(ax, places, one, {"color": colour, "marker": marker, "label": label})
    names = [str(name) or "(model)" for name in data["layer"].values]
    ax.set_xticks(places, names, rotation=_slant(names), ha="right" if _slant(names) else "center")
    ax.set(xlabel="layer, in forward order", ylabel=_Y_LABEL, ylim=(-0.02, 1.05))
    _add_legend(ax)


def _draw_by_step(data: xr.DataArray, ax: Axes) -> None:
    for number, colour in enumerate(_colours(data.sizes["layer"])):
        one = data.isel(layer=number)
        label = str(one["layer"].values) or "(model)"
        style = {"color": colour, "label": label}
        if data.sizes["step"] == 1:
            style["marker"] = "o"
        _draw_line(ax, data["step"].values, one, style)
    ax.set(xlabel="training step", ylabel=_Y_LABEL, ylim=(-0.02, 1.05))
    ax.set_title(f"{_percent(float(data['threshold']))} of variance")


def _draw_line(ax: Axes, x: NDArray[Any], one: xr.DataArray, style: dict[str, Any]) -> None:
    """Draw a line; values that the sample limits get hollow markers."""
    values = one.values
    ax.plot(x, values, **style)
    limited = np.broadcast_to(
        one["rank_limited"].values if "rank_limited" in one.coords else False, values.shape
    )
    if limited.any():
        ax.plot(
            *(x[limited], values[limited]),
            marker=style.get("marker", "o"),
            linestyle="none",
            markerfacecolor="white",
            markeredgecolor=style["color"],
            markeredgewidth=0.8,
            label="_limited",
        )


def _add_legend(ax: Axes) -> None:
    handles = _thinned(ax.get_legend_handles_labels()[0])
    if any(line.get_label() == "_limited" for line in ax.get_lines()):
        hollow: dict[str, Any] = {"marker": "o", "linestyle": "none", "markerfacecolor": "white"}
        handles.append(Line2D([], [], markeredgecolor="0.3", label=_LIMITED, **hollow))
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)}
    ax.legend(handles=handles, borderaxespad=0, **place)


def _thinned(handles: list[Any]) -> list[Any]:
    """Name some of many lines: their colours go from the first to the last."""
    if len(handles) <= _MOST_NAMED:
        return handles
    places = np.linspace(0, len(handles) - 1, _MOST_NAMED).round().astype(int)
    return [handles[place] for place in places]


def _colours(n: int) -> list[Any]:
    """Give colours from dark to light, told apart also in grey and by the colour-blind."""
    return list(mpl.colormaps["viridis"](np.linspace(0, 0.85, n)))


def _percent(threshold: float) -> str:
    return f"{100 * threshold:.6g} %"


def _slant(names: list[str]) -> int:
    return 35 if sum(map(len, names)) > 40 else 0
