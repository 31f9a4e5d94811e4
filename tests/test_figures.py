"""What is drawn is what was given; files repeat byte for byte."""

import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure
from outcrop.analyze.export import save_figure, write_csv
from outcrop.analyze.figures import draw_saturation, draw_saturation_panels, paper_style


def saturations(steps=5, layers=4, limited=False):
    random = np.random.default_rng(0)
    values = np.sort(random.random((steps, layers, 3)), axis=2)
    return xr.DataArray(
        values,
        dims=("step", "layer", "threshold"),
        coords={
            "step": np.arange(steps) * 100,
            "layer": [f"layer{n}" for n in range(layers)],
            "threshold": [0.9, 0.99, 0.999],
            "rank_limited": (("step", "layer"), np.full((steps, layers), limited)),
            "n_samples": (("step", "layer"), np.full((steps, layers), 64)),
        },
        name="saturation",
    )


def lines(ax):
    return [line for line in ax.get_lines() if not line.get_label().startswith("_")]


def test_against_depth_each_threshold_is_a_line():
    data = saturations().isel(step=-1)
    ax = draw_saturation(data)
    assert [line.get_label() for line in lines(ax)] == [
        "90 % of variance",
        "99 % of variance",
        "99.9 % of variance",
    ]
    for number, line in enumerate(lines(ax)):
        np.testing.assert_array_equal(line.get_ydata(), data[:, number])
    assert [text.get_text() for text in ax.get_xticklabels()] == list(data["layer"].values)


def test_against_the_steps_each_layer_is_a_line():
    data = saturations().sel(threshold=0.99)
    ax = draw_saturation(data)
    assert [line.get_label() for line in lines(ax)] == list(data["layer"].values)
    for number, line in enumerate(lines(ax)):
        np.testing.assert_array_equal(line.get_xdata(), data["step"])
        np.testing.assert_array_equal(line.get_ydata(), data[:, number])
    assert ax.get_title() == "99 % of variance"
    assert "intrinsic dimension / features" in ax.get_ylabel()


def test_steps_and_thresholds_need_panels():
    with pytest.raises(ValueError, match="draw_saturation_panels"):
        draw_saturation(saturations())
    panels = draw_saturation_panels(saturations())
    assert len(panels) == 3
    assert [len(lines(ax)) for ax in panels] == [4, 4, 4]
    assert sum(ax.get_legend() is not None for ax in panels) == 1


def test_values_that_the_sample_limits_are_marked():
    for limited in (True, False):
        ax = draw_saturation(saturations(limited=limited).isel(threshold=0))
        text = [entry.get_text() for entry in ax.get_legend().get_texts()]
        assert ("no more samples than features" in text) == limited


def test_of_many_layers_the_legend_names_some_the_first_and_the_last_among_them():
    ax = draw_saturation(saturations(layers=40).isel(threshold=0))
    named = [entry.get_text() for entry in ax.get_legend().get_texts()]
    assert len(lines(ax)) == 40
    assert len(named) == 10
    assert (named[0], named[-1]) == ("layer0", "layer39")


def test_undefined_values_are_gaps():
    data = saturations().isel(threshold=0)
    data[2, 1] = np.nan
    assert np.isnan(lines(draw_saturation(data))[1].get_ydata()[2])


def test_a_figure_is_drawn_where_it_is_asked_for():
    ax = Figure().subplots()
    assert draw_saturation(saturations().isel(step=0), ax=ax) is ax


@pytest.mark.parametrize("suffix", [".pdf", ".svg", ".png"])
def test_the_same_figure_is_the_same_bytes(suffix, tmp_path):
    with paper_style():
        for name in ("one", "two"):
            figure = Figure(figsize=(5.5, 2.5), layout="constrained")
            draw_saturation_panels(saturations(), figure=figure)
            save_figure(figure, tmp_path / f"{name}{suffix}")
    one, two = ((tmp_path / f"{name}{suffix}").read_bytes() for name in ("one", "two"))
    assert one == two


def test_an_unknown_suffix_is_told(tmp_path):
    with pytest.raises(ValueError, match=r"\.pdf, \.svg, \.png"):
        save_figure(Figure(), tmp_path / "out.jpg")


def test_numbers_of_a_table_come_back_exactly(tmp_path):
    import pandas as pd

    data = saturations()
    write_csv(data, tmp_path / "folder" / "out.csv")
    table = pd.read_csv(tmp_path / "folder" / "out.csv")
    assert set(table) == {"step", "layer", "threshold", "saturation", "rank_limited", "n_samples"}
    table = table.set_index(["step", "layer", "threshold"])
    for index, value in np.ndenumerate(data.values):
        key = tuple(data[dim].values[i] for dim, i in zip(data.dims, index, strict=True))
        assert table.loc[key, "saturation"] == value
