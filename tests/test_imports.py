"""The recorder needs no analysis library, the analysis no torch; the base install neither."""

import subprocess
import sys

import pytest

ANALYSIS = ("dask", "distributed", "xarray", "matplotlib", "scipy", "pandas", "threadpoolctl")

RECORD = """
import torch
from outcrop.capture import Recorder
model = torch.nn.Linear(3, 2)
keep = ("input", "output", "backprop", "gradient")
with Recorder(model, {path!r}, keep=keep, when=1) as recorder:
    with recorder.step(0):
        model(torch.ones(4, 3)).sum().backward()
"""
ANALYSE = """
from outcrop.analyze import open_run, saturation
print(float(saturation(open_run({path!r}), 0.99).sum()))
"""


def run_without(modules, code):
    blocked = f"import sys; sys.modules.update(dict.fromkeys({tuple(modules)!r}))\n"
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", blocked + code],
        capture_output=True,
        text=True,
        check=False,
    )


def test_recording_and_analysing_need_nothing_of_each_other(tmp_path):
    path = str(tmp_path / "run.zarr")
    recorded = run_without(ANALYSIS, RECORD.format(path=path))
    assert recorded.returncode == 0, recorded.stderr
    analysed = run_without(["torch"], ANALYSE.format(path=path))
    assert analysed.returncode == 0, analysed.stderr


def test_the_base_install_shows_a_store(tmp_path):
    path = str(tmp_path / "run.zarr")
    run_without([], RECORD.format(path=path))
    shown = run_without(
        [*ANALYSIS, "torch"],
        f"import sys; sys.argv = ['outcrop', 'info', {path!r}]\n"
        "from outcrop.analyze.cli import main; main()",
    )
    assert shown.returncode == 0, shown.stderr
    assert "recorded 1" in shown.stdout


@pytest.mark.parametrize(
    ("missing", "name", "hint"),
    [
        ("torch", "outcrop.capture.Recorder", "outcrop[capture]"),
        ("xarray", "outcrop.analyze.open_run", "outcrop[analyze]"),
    ],
)
def test_a_missing_library_says_what_to_install(missing, name, hint):
    module, _, attribute = name.rpartition(".")
    failed = run_without([missing], f"from {module} import {attribute}")
    assert failed.returncode != 0
    assert hint in failed.stderr


def test_a_module_is_one_object():
    from outcrop.capture import format as first

    assert sys.modules["outcrop.capture.format"] is first
    assert "capture.format" not in sys.modules
