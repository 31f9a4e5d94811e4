"""The command line: ``outcrop COMMAND …``."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, CycloptsError, Parameter

from .info import describe_store

if TYPE_CHECKING:
    import xarray as xr

app = App(
    name="outcrop",
    help="Study recorded training runs.",
    version_flags=["--version"],
    result_action="return_value",
)
_Several = Parameter(consume_multiple=True, negative=())


@app.command
def info(store: Path, /) -> None:
    """Show what is in a store: state, sizes, sampling, layers and statuses.

    Example: outcrop info run.zarr

    Parameters
    ----------
    store
        The store.
    """
    print(describe_store(store))


@app.command
def saturation(
    store: Path,
    /,
    *,
    threshold: Annotated[tuple[float, ...], _Several] = (0.99,),
    layers: Annotated[tuple[str, ...] | None, _Several] = None,
    quantity: Literal["input", "output", "backprop"] = "output",
    pooling: Literal["each", "mean", "max", "flatten"] = "each",
    over: Literal["step", "run"] = "step",
    rule: Literal["reach", "below"] = "reach",
    figure: Path | None = None,
    csv: Path | None = None,
) -> None:
    """Compute the saturation of the layers; print it, or write a figure and a table.

    Example: outcrop saturation run.zarr --threshold 0.9 0.99 --figure out.pdf --csv out.csv

    Parameters
    ----------
    store
        The store.
    threshold
        One share of the variance or several, each in (0, 1].
    layers
        Names of the layers; all by default.
    quantity
        What of the layers.
    pooling
        What becomes of the positions of images and sequences.
    over
        A value for each step, or one for the whole run.
    rule
        Whether the mode that reaches the threshold counts ("reach"), or not, as in delve.
    figure
        A .pdf, .svg or .png to draw.
    csv
        A table of all values to write.
    """
    from . import open_run
    from . import saturation as saturation_of

    result = saturation_of(
        open_run(store),
        list(threshold),
        layers=layers,
        quantity=quantity,
        pooling=pooling,
        over=over,
        rule=rule,
    ).compute()
    if figure is not None:
        _draw(result, figure)
    if csv is not None:
        from .export import write_csv

        write_csv(result, csv)
    for written in (figure, csv):
        if written is not None:
            print(f"wrote {written}")
    if figure is None and csv is None:
        print(_table(result))


def _draw(result: "xr.DataArray", path: Path) -> None:
    from matplotlib.figure import Figure

    from .export import save_figure
    from .figures import draw_saturation, draw_saturation_panels, paper_style

    with paper_style():
        panels = result.sizes["threshold"] if "step" in result.dims else 1
        figure = Figure(figsize=(3.5 + 2.0 * panels, 3.0), layout="constrained")
        if panels > 1:
            draw_saturation_panels(result, figure=figure)
        else:
            draw_saturation(result, ax=figure.subplots())
        save_figure(figure, path)


def _table(result: "xr.DataArray") -> str:
    """One line a layer: its saturation at each threshold, at the last step."""
    last = result.isel(step=-1) if "step" in result.dims else result
    names = [str(name) or "(model)" for name in last["layer"].values]
    width = max(map(len, [*names, "layer"]))
    when = f"step {int(last['step'])}" if "step" in last.coords else "whole run"
    head = "".join(f"{value:>10.4g}" for value in last["threshold"].values)
    lines = [f"{'layer':<{width}}{head}    ({when})"]
    for name, values, limited in zip(
        names, last.transpose("layer", "threshold").values, last["rank_limited"].values, strict=True
    ):
        numbers = "".join(f"{value:>10.4f}" for value in values)
        lines.append(f"{name:<{width}}{numbers}{'  *' if limited else ''}")
    if last["rank_limited"].any():
        lines.append("* no more samples than features: the value is limited by the sample")
    return "\n".join(lines)


def main() -> None:
    """Run the command line; errors are one clear line and a non-zero exit status."""
    try:
        app(exit_on_error=False, print_error=False)
    except (CycloptsError, ValueError, TypeError, OSError, LookupError) as error:
        notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
        print(f"outcrop: {error}{notes}", file=sys.stderr)
        sys.exit(1)
    except ModuleNotFoundError as error:
        needs = f"this command needs {error.name}: pip install 'outcrop[analyze]'"
        print(f"outcrop: {needs}", file=sys.stderr)
        sys.exit(1)
