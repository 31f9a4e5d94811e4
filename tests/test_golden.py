"""Stores of every version that was ever written open for ever, with the same numbers."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
from outcrop.analyze import open_run, saturation
from outcrop.capture.format import version_text

VERSIONS = sorted(path.name for path in (Path(__file__).parent / "golden").glob("[0-9]*"))


@pytest.fixture(params=VERSIONS)
def golden(request, tmp_path):
    folder = Path(__file__).parent / "golden" / request.param
    with zipfile.ZipFile(folder / "run.zarr.zip") as archive:
        archive.extractall(tmp_path / "run.zarr")
    with np.load(folder / "expected.npz") as arrays:
        return tmp_path / "run.zarr", dict(arrays)


def test_the_present_version_has_a_golden_store():
    assert version_text() in VERSIONS


def test_a_golden_store_gives_the_numbers_it_was_written_with(golden):
    path, expected = golden
    tree = open_run(path).tree
    found = {
        f"{group}/{name}".strip("/"): variable
        for group in tree.groups
        for name, variable in tree[group].to_dataset(inherit=False).variables.items()
    }
    assert set(found) == set(expected)
    for name, values in expected.items():
        if not name.endswith("wall_time"):  # decoded into a date
            np.testing.assert_array_equal(found[name], values, err_msg=name)


def test_a_golden_store_can_be_analysed(golden):
    path, _ = golden
    found = saturation(open_run(path), [0.9, 0.99])
    assert np.isfinite(found).all()
