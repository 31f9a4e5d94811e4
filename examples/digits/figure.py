"""Draw the saturation of the recorded digit networks: layers x steps x thresholds.

Needs `outcrop[analyze]` and the stores that record.py left in OUT; no torch.
"""

import argparse
from pathlib import Path

import xarray as xr
from matplotlib.figure import Figure
from outcrop.analyze import open_run, saturation
from outcrop.analyze.export import save_figure, write_csv
from outcrop.analyze.figures import draw_saturation, draw_saturation_panels, paper_style

THRESHOLDS = [0.9, 0.99, 0.999]
NAMES = {
    "MLP": ["hidden 1", "hidden 2", "hidden 3", "logits"],
    "CNN": ["conv 1", "conv 2", "conv 3", "logits"],
}


def saturations(out: Path, name: str, over: str) -> xr.DataArray:
    """Saturation of a network's layers, under names that a reader knows."""
    found = saturation(open_run(out / f"{name.lower()}.zarr"), THRESHOLDS, over=over).compute()
    return found.assign_coords(layer=NAMES[name])


def over_training(out: Path) -> Figure:
    """Draw the saturation of each layer while it learns: a row a network, a column a threshold."""
    figure = Figure(figsize=(6.75, 4.2), layout="constrained")
    for part, name in zip(figure.subfigures(2, 1), NAMES, strict=True):
        data = saturations(out, name, "step")
        write_csv(data, out / f"saturation_steps_{name.lower()}.csv")
        draw_saturation_panels(data, figure=part)
        part.suptitle(f"{name} on handwritten digits", fontsize=9, fontweight="bold")
    return figure


def over_depth(out: Path) -> Figure:
    """Draw the saturation of all recorded steps together against depth: a panel a network."""
    figure = Figure(figsize=(6.75, 2.6), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for ax, name in zip(panels, NAMES, strict=True):
        data = saturations(out, name, "run")
        write_csv(data, out / f"saturation_depth_{name.lower()}.csv")
        draw_saturation(data, ax=ax)
        ax.set_title(name)
    panels[0].get_legend().remove()
    panels[1].set_ylabel("")
    return figure


def main() -> None:
    """Draw both figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "out")
    out: Path = parser.parse_args().out
    with paper_style():
        for name, draw in (("steps", over_training), ("depth", over_depth)):
            figure = draw(out)
            for suffix in ("pdf", "png"):
                path = out / f"saturation_{name}.{suffix}"
                save_figure(figure, path)
                print(f"wrote {path}")


if __name__ == "__main__":
    main()
