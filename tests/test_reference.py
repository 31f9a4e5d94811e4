"""Recorded float64 data give the reference values: covariance, eigenvalues, dimensions.

The values were computed in float64 by plain numpy, without this project and without torch.
Arrays named `delve` hold what delve 0.1.50 returned on the same data.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
from outcrop.analyze import (
    covariance,
    intrinsic_dimension,
    open_run,
    participation_ratio,
    saturation,
    spectrum,
    total_variance,
)
from outcrop.capture import Recorder
from torch import nn

DATA = Path(__file__).parent / "data"
RTOL = 1e-9


def reference(name):
    with np.load(DATA / f"{name}.npz") as arrays:
        return dict(arrays)


def recorded(batches, path):
    """A run whose only layer gives these batches, one a step."""
    model = nn.Identity()
    with Recorder(model, path, keep=("output",), when=1, examples=None) as recorder:
        for step, batch in enumerate(batches):
            with recorder.step(step):
                model(torch.from_numpy(batch))
    return open_run(path)


@pytest.fixture(scope="module")
def linear(tmp_path_factory):
    values = reference("saturation_linear")
    return recorded(values["Y"], tmp_path_factory.mktemp("linear") / "run.zarr"), values


@pytest.fixture(scope="module")
def conv(tmp_path_factory):
    values = reference("saturation_conv")
    return recorded(values["Y"], tmp_path_factory.mktemp("conv") / "run.zarr"), values


WINDOWS = {"all": ("run", lambda found: found), "lastbatch": ("step", lambda f: f.isel(step=-1))}


@pytest.mark.parametrize("window", WINDOWS)
def test_a_linear_layer_over_the_run_and_in_its_last_batch(linear, window):
    run, expected = linear
    over, select = WINDOWS[window]
    np.testing.assert_allclose(
        select(covariance(run, layer="", over=over)), expected[f"{window}_cov"], rtol=RTOL
    )
    np.testing.assert_allclose(
        select(covariance(run, layer="", over=over, ddof=1)),
        expected[f"{window}_cov_ddof1"],
        rtol=RTOL,
    )
    np.testing.assert_allclose(
        select(spectrum(run, over=over)), expected[f"{window}_eigvals"], rtol=RTOL
    )
    taus = expected["thresholds"]
    dimension = select(intrinsic_dimension(run, taus, over=over)).sel(layer="")
    np.testing.assert_array_equal(dimension, expected[f"{window}_idim"])
    np.testing.assert_allclose(
        select(saturation(run, taus, over=over)).sel(layer=""), expected[f"{window}_sat"], rtol=RTOL
    )
    below = select(intrinsic_dimension(run, taus, over=over, rule="below")).sel(layer="")
    np.testing.assert_array_equal(below, expected[f"{window}_idim_delve_rule"])
    assert int(dimension["n_samples"]) == expected[f"{window}_n"]
    np.testing.assert_allclose(
        select(total_variance(run, over=over)).values, [expected[f"{window}_trace"]], rtol=RTOL
    )
    np.testing.assert_allclose(
        select(participation_ratio(run, over=over)).values,
        [expected[f"{window}_participation_ratio"]],
        rtol=RTOL,
    )


def test_all_batches_count_where_delve_keeps_the_last(linear):
    run, expected = linear
    taus = expected["thresholds"]
    last = intrinsic_dimension(run, taus, rule="below").isel(step=-1, layer=0)
    np.testing.assert_array_equal(last, expected["delve_idim"])
    everything = intrinsic_dimension(run, taus, over="run", rule="below").isel(layer=0)
    np.testing.assert_array_equal(everything, expected["delve_onebatch_idim"])
    found = covariance(run, layer="").isel(step=-1)
    np.testing.assert_allclose(found, expected["delve_cov"], rtol=1e-7)
    assert float(abs(found - covariance(run, layer="", over="run")).max()) > 0.05


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_the_first_batches_together(linear, steps):
    run, expected = linear
    found = covariance(run.output("").isel(step=slice(0, steps)), over="run")
    np.testing.assert_allclose(found, expected[f"cov_after_batch_{steps - 1}"], rtol=RTOL)


@pytest.mark.parametrize(
    ("pooling", "name"), [("each", "channelwise"), ("mean", "mean"), ("flatten", "flatten")]
)
def test_a_convolution_under_every_pooling(conv, pooling, name):
    run, expected = conv
    taus = expected["thresholds"]
    options = {"pooling": pooling, "over": "run"}
    n = int(expected[f"{name}_n"])
    modes = expected[f"{name}_eigvals"]
    found = spectrum(run, **options).values
    # Beyond the rank, the reference has rounding errors where we have zeros.
    np.testing.assert_allclose(found, modes, rtol=RTOL, atol=1e-13 * modes[0])
    dimension = intrinsic_dimension(run, taus, **options).isel(layer=0)
    np.testing.assert_array_equal(dimension, expected[f"{name}_idim"])
    assert int(dimension["n_samples"]) == n
    np.testing.assert_allclose(
        saturation(run, taus, **options).isel(layer=0), expected[f"{name}_sat"], rtol=RTOL
    )
    below = intrinsic_dimension(run, taus, rule="below", **options).isel(layer=0)
    np.testing.assert_array_equal(below, expected[f"{name}_idim_delve_rule"])
    last = intrinsic_dimension(run, taus, pooling=pooling, rule="below").isel(step=-1, layer=0)
    np.testing.assert_array_equal(last, expected[f"{name}_delve_idim"])
    np.testing.assert_allclose(
        covariance(run, layer="", **options),
        channel_last(expected[f"{name}_cov"]) if pooling == "flatten" else expected[f"{name}_cov"],
        rtol=RTOL,
        atol=1e-15,
    )


def channel_last(matrix, channels=5):
    """The reference flattens (channel, height, width), the store (height, width, channel)."""
    order = np.arange(len(matrix)).reshape(channels, -1).T.ravel()
    return matrix[np.ix_(order, order)]


@pytest.mark.parametrize("case", ["ties", "ties9", "dominant", "flat", "rankdef", "const"])
def test_awkward_spectra(case, tmp_path):
    expected = reference("saturation_edge")
    run = recorded(expected[f"{case}_Y"][None], tmp_path / "run.zarr")
    taus = expected["thresholds"]
    found = intrinsic_dimension(run, taus).isel(step=0, layer=0)
    np.testing.assert_array_equal(found, expected[f"{case}_idim"])
    np.testing.assert_allclose(
        covariance(run, layer="")[0], expected[f"{case}_cov"], rtol=RTOL, atol=1e-15
    )


def test_a_dead_layer_has_no_dimension(tmp_path):
    expected = reference("saturation_edge")
    run = recorded(expected["dead_Y"][None], tmp_path / "run.zarr")
    found = intrinsic_dimension(run, expected["thresholds"])[0, 0]
    np.testing.assert_array_equal(found, expected["dead_idim"])
    np.testing.assert_array_equal(saturation(run, [0.99])[0, 0], [0.0])


def test_one_sample_is_undefined_and_says_why(tmp_path):
    expected = reference("saturation_edge")
    run = recorded(expected["single_Y"][None], tmp_path / "run.zarr")
    found = saturation(run, 0.99).compute()
    assert np.isnan(found.item())
    assert found["n_samples"].item() == 1


@pytest.mark.parametrize("over", ["step", "run"])
def test_a_mean_of_1e5_times_the_spread_keeps_its_digits(over, tmp_path):
    expected = reference("saturation_edge")
    values = expected["bigmean_Y"]
    batches = values.reshape(4, 64, 4) if over == "run" else values[None]
    run = recorded(batches, tmp_path / "run.zarr")
    found = covariance(run, layer="", over=over).values.reshape(4, 4)
    np.testing.assert_allclose(found, expected["bigmean_cov"], rtol=1e-6)
    dimension = intrinsic_dimension(run, expected["thresholds"], over=over)
    np.testing.assert_array_equal(dimension.values.ravel(), expected["bigmean_idim"])
    # The one-pass formula, E[xx^T] - E[x]E[x]^T, has lost them.
    assert abs(expected["bigmean_delve_cov"] / expected["bigmean_cov"] - 1).max() > 1e-6


def test_rows_and_records_are_the_same_data(linear):
    run, expected = linear
    rows = xr.DataArray(expected["Y"].reshape(-1, 10), dims=("sample", "feature"))
    taus = expected["thresholds"]
    np.testing.assert_array_equal(
        intrinsic_dimension(rows, taus), intrinsic_dimension(run, taus, over="run")[0]
    )
