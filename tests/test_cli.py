"""The command line: what a user sees, errors included."""

import csv
import subprocess
import sys

import pytest
from runs import record_run


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli") / "run.zarr"
    record_run(path)
    return path


def outcrop(*arguments):
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "outcrop.analyze", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_info_shows_layers_arrays_and_statuses(store):
    shown = outcrop("info", store)
    assert shown.returncode == 0, shown.stderr
    for words in (
        "closed",
        "stream train: 5 records, steps 0 to 4",
        "Conv2d",
        "recorded 5",
        "loss",
    ):
        assert words in shown.stdout


def test_info_of_a_live_run_says_so(tmp_path):
    recorder = record_run(tmp_path / "run.zarr", close=False)
    assert "being recorded" in outcrop("info", tmp_path / "run.zarr").stdout
    recorder.close()


def test_saturation_prints_a_table(store):
    shown = outcrop("saturation", store, "--threshold", "0.9", "0.99")
    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()
    assert lines[0].split()[:3] == ["layer", "0.9", "0.99"]
    assert len(lines) == 7
    # 16 examples of 36 features: the Flatten's value cannot be larger.
    assert [line.split()[0] for line in lines if line.endswith("*")] == ["3"]
    assert lines[-1].startswith("* no more samples than features")


@pytest.mark.parametrize("suffix", ["pdf", "svg", "png"])
def test_saturation_writes_a_figure_and_a_table(store, tmp_path, suffix):
    figure, table = tmp_path / f"out.{suffix}", tmp_path / "out.csv"
    thresholds = ("--threshold", "0.9", "0.99")
    shown = outcrop("saturation", store, *thresholds, "--figure", figure, "--csv", table)
    assert shown.returncode == 0, shown.stderr
    assert figure.stat().st_size > 1000
    with table.open() as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == 5 * 5 * 2
    assert {"step", "layer", "threshold", "saturation", "n_samples", "rank_limited"} <= rows[
        0
    ].keys()
    first = figure.read_bytes()
    outcrop("saturation", store, *thresholds, "--figure", figure)
    assert figure.read_bytes() == first


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("saturation", "STORE", "--threshold", "1.5"), "in (0, 1]; got 1.5"),
        (("saturation", "STORE", "--threshold", "0"), "in (0, 1]; got 0"),
        (("saturation", "STORE", "--layers", "conv1"), "no layer 'conv1'"),
        (("saturation", "STORE", "--pooling", "sum"), "pooling"),
        (("saturation", "STORE", "--figure", "out.bmp"), ".bmp"),
        (("saturation", "none.zarr"), "there is no run at 'none.zarr'"),
        (("info", "run.hdf"), "use one of"),
        (("inof", "STORE"), "inof"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_an_error_is_one_clear_line(store, arguments, message):
    shown = outcrop(*(store if word == "STORE" else word for word in arguments))
    assert shown.returncode != 0
    assert message in shown.stderr
    assert shown.stderr.count("\n") == 1
    assert "Traceback" not in shown.stderr


def test_every_command_has_an_example_in_its_help():
    for command in ("info", "saturation"):
        assert "Example" in outcrop(command, "--help").stdout
