"""Properties that hold for all data: chunking, order, padding, scale; and honest words."""

import threading

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from outcrop.analyze import (
    Moments,
    covariance,
    intrinsic_dimension,
    open_run,
    participation_ratio,
    saturation,
    spectrum,
)
from outcrop.analyze.eigen import dimension_of
from outcrop.analyze.pooling import RULES
from outcrop.analyze.threads import one_blas_thread
from outcrop.capture.errors import MissingRecord
from outcrop.capture.format import Status
from runs import record_run
from threadpoolctl import threadpool_info

DIMS = ("step", "example", "position", "feature")
TAUS = [0.5, 0.9, 0.99, 1.0]


def records(seed, *, steps=3, examples=6, positions=4, features=5, dtype=np.float64):
    random = np.random.default_rng(seed)
    scales = 0.5 ** np.arange(features)
    values = random.standard_normal((steps, examples, positions, features)) * scales + 3
    return xr.DataArray(values.astype(dtype), dims=DIMS, coords={"step": np.arange(steps)})


@st.composite
def chunked(draw):
    """Data, and how they are cut along every dimension."""
    data = records(draw(st.integers(0, 1000)))
    cuts = {dim: draw(st.integers(1, size)) for dim, size in data.sizes.items()}
    return data, data.chunk(cuts)


@settings(deadline=None, max_examples=30)
@given(chunked(), st.sampled_from(sorted(RULES)), st.sampled_from(["step", "run"]))
def test_any_chunking_gives_the_same_numbers(pair, pooling, over):
    whole, cut = pair
    options = {"pooling": pooling, "over": over}
    np.testing.assert_allclose(
        spectrum(cut, **options), spectrum(whole, **options), rtol=1e-12, atol=1e-12
    )
    np.testing.assert_array_equal(
        intrinsic_dimension(cut, TAUS, **options), intrinsic_dimension(whole, TAUS, **options)
    )


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 1000), st.integers(0, 12), st.integers(1, 8))
def test_merged_moments_are_those_of_the_whole(seed, cut, features):
    samples = np.random.default_rng(seed).standard_normal((12, features)) * 1e-3 + 1e3
    whole = Moments.of(samples)
    parts = Moments.of(samples[:cut]).merge(Moments.of(samples[cut:]))
    assert parts.count == whole.count
    np.testing.assert_allclose(parts.mean, whole.mean, rtol=1e-12)
    np.testing.assert_allclose(parts.comoment, whole.comoment, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(whole.covariance(), np.cov(samples.T, ddof=0), rtol=1e-9)


@settings(deadline=None, max_examples=50)
@given(
    hnp.arrays(np.float64, st.integers(1, 20), elements=st.floats(0, 1e6)),
    st.lists(st.floats(1e-6, 1), min_size=2, max_size=6),
)
def test_the_dimension_rises_with_the_threshold_and_is_reached(eigenvalues, thresholds):
    modes = np.sort(eigenvalues)[::-1]
    taus = np.sort(thresholds)
    found = dimension_of(modes, taus, 100)
    assert (np.diff(found) >= 0).all()
    assert (found <= len(modes)).all()
    if modes[0] > 0:
        kept = np.where(modes > 100 * np.finfo(float).eps * modes[0], modes, 0)
        for k, tau in zip(found.astype(int), taus, strict=True):
            assert kept[:k].sum() >= tau * kept.sum() * (1 - 2e-9)
            assert k == 1 or kept[: k - 1].sum() < tau * kept.sum()
    below = dimension_of(modes, taus, 100, rule="below")
    np.testing.assert_array_equal(below, np.maximum(found - 1, 0))


@pytest.mark.parametrize("pooling", sorted(RULES))
def test_the_order_of_the_examples_does_not_matter(pooling):
    data = records(1)
    turned = data.isel(example=[3, 0, 5, 1, 4, 2])
    np.testing.assert_array_equal(
        intrinsic_dimension(data, TAUS, pooling=pooling),
        intrinsic_dimension(turned, TAUS, pooling=pooling),
    )


@pytest.mark.parametrize("over", ["step", "run"])
@pytest.mark.parametrize("pooling", ["each", "mean", "max"])
def test_padding_never_counts(pooling, over):
    data = records(2)
    n_examples = np.array([6, 4, 2])
    n_positions = np.array([[4, 3, 2, 4, 1, 4], [2, 2, 2, 2, 9, 9], [4, 1, 9, 9, 9, 9]])
    outside = np.arange(4) >= n_positions[:, :, None]
    outside |= (np.arange(6) >= n_examples[:, None])[:, :, None]
    padded = data.where(~outside[..., None]).assign_coords(
        n_examples=("step", n_examples), n_positions=(("step", "example"), n_positions)
    )
    pool = {"each": lambda rows: rows, "mean": lambda rows: rows.mean(0, keepdims=True)}.get(
        pooling, lambda rows: rows.max(0, keepdims=True)
    )
    rows = [
        np.concatenate([pool(data.values[s, e, : n_positions[s, e]]) for e in range(n)])
        for s, n in enumerate(n_examples)
    ]
    for chunks in ({}, {"step": 2, "example": 3}):
        found = covariance(padded.chunk(chunks), pooling=pooling, over=over).values
        if over == "run":
            expected = np.cov(np.concatenate(rows).T, ddof=0)
        else:
            expected = np.stack([np.cov(one.T, ddof=0) for one in rows])
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-14)


def test_flatten_refuses_sequences_of_unlike_lengths():
    data = records(0).assign_coords(
        n_positions=(("step", "example"), np.tile([4, 4, 3, 4, 4, 4], (3, 1)))
    )
    with pytest.raises(ValueError, match="3 to 4"):
        saturation(data, pooling="flatten")


def test_steps_that_were_not_recorded_are_undefined():
    data = records(0)
    status = np.array([Status.RECORDED, Status.NEVER_CALLED, Status.RECORDED], np.uint8)
    data = data.assign_coords(status=("step", status))
    found = saturation(data, [0.9])
    assert np.isnan(found[1]).all()
    assert np.isfinite(found[[0, 2]]).all()
    assert found["n_samples"].values.tolist() == [24, 0, 24]
    together = covariance(data, over="run")
    np.testing.assert_allclose(together, covariance(data[[0, 2]], over="run"), rtol=1e-12)


@pytest.mark.parametrize("over", ["step", "run"])
def test_values_that_are_not_finite_are_left_out_and_counted(over):
    data = records(3, steps=2)
    clean = data.copy()
    data[0, 1, 2, 3] = np.nan
    data[1, 0, 0, 0] = np.inf
    data[1, 5, 3, 1] = -np.inf
    found = saturation(data, TAUS, over=over)
    assert int(found["n_nonfinite"].sum()) == 3
    assert int(found["n_samples"].sum()) == 2 * 24 - 3
    rows = clean.values.reshape(2, 24, 5)
    kept = [np.delete(rows[0], 6, 0), np.delete(rows[1], [0, 23], 0)]
    if over == "run":
        expected = np.linalg.eigvalsh(np.cov(np.concatenate(kept).T, ddof=0))[::-1]
    else:
        expected = np.stack([np.linalg.eigvalsh(np.cov(k.T, ddof=0))[::-1] for k in kept])
    np.testing.assert_allclose(spectrum(data, over=over), expected, rtol=1e-9)


@pytest.mark.parametrize("value", [0.0, 0.1, -1e7, 1e-30])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_constant_layer_is_0_also_from_many_chunks(value, dtype):
    data = xr.full_like(records(0, steps=7, dtype=dtype), value).chunk(step=2)
    for over in ("step", "run"):
        assert (saturation(data, TAUS, over=over) == 0).all()
        assert (participation_ratio(data, over=over) == 0).all()


def test_a_tiny_spread_is_not_a_constant():
    data = records(0, features=3) * 1e-7 + 1
    assert (intrinsic_dimension(data, 1.0) == 3).all()


def test_fewer_samples_than_features_is_said(tmp_path):
    data = records(0, examples=3, positions=1, features=8)
    found = saturation(data, 0.99)
    assert found["rank_limited"].all()
    assert (found <= 2 / 8).all()
    more = records(0, examples=30, positions=1, features=8)
    assert not saturation(more, 0.99)["rank_limited"].any()


@pytest.mark.parametrize("over", ["step", "run"])
def test_both_ways_to_the_eigenvalues_agree(over):
    wide = records(5, examples=3, positions=2, features=40)
    rows = wide.values.reshape(3, 6, 40)
    rows = rows.reshape(1, 18, 40) if over == "run" else rows
    expected = [np.clip(np.linalg.eigvalsh(np.cov(one.T, ddof=0))[::-1], 0, None) for one in rows]
    found = spectrum(wide.chunk(step=1), over=over).values.reshape(-1, 40)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12 * np.max(expected))


def test_one_far_sample_takes_the_variance_as_defined():
    rows = [[2, 0], [-2, 0], [0, 1], [0, -1]]
    data = xr.DataArray(np.array(rows, float), dims=("sample", "feature"))
    assert float(intrinsic_dimension(data, 0.9)) == 2
    far = xr.DataArray(np.array([*rows, [1000, 0]], float), dims=("sample", "feature"))
    assert float(intrinsic_dimension(far, 0.9)) == 1


def test_variance_far_from_zero():
    rows = np.array([[1.0], [2.0], [3.0]] * 100) + 1e8
    data = xr.DataArray(rows, dims=("sample", "feature"))
    np.testing.assert_allclose(covariance(data.chunk(sample=7)), [[2 / 3]], rtol=1e-8)


def test_nothing_is_computed_before_the_user_asks(tmp_path):
    record_run(tmp_path / "run.zarr")
    run = open_run(tmp_path / "run.zarr")

    def refuse(*_, **__):
        raise AssertionError("computed too early")

    with dask.config.set(scheduler=refuse):
        lazy = saturation(run, TAUS)
        saturation(run, TAUS, over="run")
        participation_ratio(run)
    assert isinstance(lazy.data, da.Array)
    assert np.isfinite(lazy.compute()).all()


def test_other_schedulers_give_the_same_numbers(tmp_path):
    record_run(tmp_path / "run.zarr")
    lazy = saturation(open_run(tmp_path / "run.zarr"), TAUS)
    xr.testing.assert_identical(lazy.compute(scheduler="threads"), lazy.compute(scheduler="sync"))
    xr.testing.assert_identical(
        lazy.compute(scheduler="processes", num_workers=2), lazy.compute(scheduler="sync")
    )


@pytest.mark.distributed
def test_a_cluster_gives_the_same_numbers(tmp_path):
    from distributed import Client

    record_run(tmp_path / "run.zarr")
    lazy = saturation(open_run(tmp_path / "run.zarr"), TAUS)
    here = lazy.compute(scheduler="sync")
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=None):
        xr.testing.assert_identical(lazy.compute(), here)


def blas_threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_blas_has_one_thread_inside_and_its_own_outside():
    before = blas_threads()
    with one_blas_thread(), one_blas_thread():
        assert blas_threads() == {1}
    assert blas_threads() == before


def test_the_limit_holds_whichever_threads_begin_and_end_it():
    before = blas_threads()
    seen = []

    def task(entered, leave):
        with one_blas_thread():
            entered.wait(10)
            leave.wait(10)
            seen.append(blas_threads())

    for _ in range(2):
        entered, leave = threading.Barrier(3), threading.Event()
        tasks = [threading.Thread(target=task, args=(entered, leave)) for _ in range(2)]
        for one in tasks:
            one.start()
        entered.wait(10)
        assert blas_threads() == {1}
        leave.set()
        for one in tasks:
            one.join()
        assert blas_threads() == before
        with one_blas_thread():
            assert blas_threads() == {1}
        assert blas_threads() == before
    assert seen == [{1}] * 4


def test_layers_of_a_run_stand_in_order_with_their_counts(tmp_path):
    record_run(tmp_path / "run.zarr", examples=8)
    run = open_run(tmp_path / "run.zarr")
    found = saturation(run, TAUS).compute()
    assert found.dims == ("step", "layer", "threshold")
    assert found["layer"].values.tolist() == list(run.layers)
    assert found["n_features"].values.tolist() == [4, 4, 4, 36, 3]
    assert found["n_samples"][0].values.tolist() == [8 * 36, 8 * 36, 8 * 9, 8, 8]
    assert found["n_examples"][0].values.tolist() == [8] * 5
    assert found["rank_limited"][0].values.tolist() == [False, False, False, True, False]
    assert found.attrs["units"] == "1"
    assert "2006.08679" in found.attrs["reference"]
    tree = spectrum(run)
    np.testing.assert_array_equal(tree["/4/spectrum"], spectrum(run, layers=["4"]))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"threshold": 0}, ValueError, r"in \(0, 1\]; got 0"),
        ({"threshold": 1.5}, ValueError, r"in \(0, 1\]; got 1.5"),
        ({"threshold": [0.9, float("nan")]}, ValueError, "got nan"),
        ({"threshold": []}, ValueError, "got none"),
        ({"pooling": "men"}, ValueError, "did you mean 'mean'"),
        ({"over": "epochs"}, ValueError, "over is one of 'step', 'run'"),
        ({"rule": "delve"}, ValueError, "'reach' or 'below'"),
        ({"layers": ["conv1"]}, ValueError, "no layer 'conv1'"),
        ({"layers": ["0"], "quantity": "input"}, MissingRecord, "has no input"),
        ({"quantity": "input"}, MissingRecord, "has no input"),
        ({"stream": "validation"}, ValueError, "no stream 'validation'"),
    ],
    ids=lambda value: str(sorted(value)) if isinstance(value, dict) else None,
)
def test_a_mistake_is_told_before_anything_is_computed(options, error, message, tmp_path):
    record_run(tmp_path / "run.zarr", keep=("output",))
    with pytest.raises(error, match=message):
        saturation(open_run(tmp_path / "run.zarr"), **options)


@pytest.mark.parametrize("pooling", ["mean", "max", "flatten"])
def test_sampled_positions_refuse_what_needs_them_all(pooling, tmp_path):
    record_run(tmp_path / "run.zarr", keep=("output",), positions=5)
    run = open_run(tmp_path / "run.zarr")
    with pytest.raises(
        ValueError, match="5 of 36 were recorded of '0': record with positions=None"
    ):
        saturation(run, pooling=pooling)
    assert np.isfinite(saturation(run, pooling="each").compute()).all()


def test_a_covariance_of_many_layers_is_refused(tmp_path):
    record_run(tmp_path / "run.zarr")
    with pytest.raises(ValueError, match="give layer="):
        covariance(open_run(tmp_path / "run.zarr"))


def test_strange_dimensions_are_named():
    with pytest.raises(ValueError, match="got row, feature"):
        saturation(xr.DataArray(np.zeros((3, 2)), dims=("row", "feature")))
    rows = xr.DataArray(np.eye(3), dims=("row", "feature"))
    assert float(intrinsic_dimension(rows, 0.99, sample_dim="row")) == 2
