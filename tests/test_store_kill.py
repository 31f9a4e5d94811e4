"""A recording process is killed; every committed step is there and right, and none else."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from kill_child import rows_of
from outcrop.analyze import open_run, scalars
from outcrop.capture.format import Status
from outcrop.capture.store import STORES

CHILD = Path(__file__).parent / "kill_child.py"


def record_and_kill(path, delay):
    """Kill a recording process some time after its first commit; gives the steps it told."""
    reading, writing = os.pipe()
    child = subprocess.Popen([sys.executable, str(CHILD), str(path)], stdout=writing)
    os.close(writing)
    with os.fdopen(reading) as told:
        first = told.readline()
        time.sleep(delay)
        child.send_signal(signal.SIGKILL)
        child.wait()
        lines = [first, *told]
    return [int(line) for line in lines if line.endswith("\n")]


@pytest.mark.parametrize("suffix", sorted(STORES))
@pytest.mark.parametrize("trial", range(5))
def test_a_killed_run_keeps_every_committed_step_and_shows_no_other(tmp_path, suffix, trial):
    path = tmp_path / f"run{suffix}"
    told = record_and_kill(path, random.Random(trial).uniform(0, 0.5))
    run = open_run(path)
    assert run.state == "interrupted"
    steps = run.steps.tolist()
    # One more may have been committed that the child had no time to tell.
    assert told == list(range(len(told)))
    assert steps in (told, [*told, len(told)])
    one, two = run.output("one").values, run.output("two")
    for step in steps:
        np.testing.assert_array_equal(one[step, :, 0], rows_of(step))
    for step, status in enumerate(two["status"].values):
        if step % 3:
            np.testing.assert_array_equal(two.values[step, :, 0], -rows_of(step))
        else:
            assert status in {Status.NEVER_CALLED, Status.ABSENT}
    losses = scalars(run, "loss")
    assert set(losses["step"].values) >= set(told)
    np.testing.assert_array_equal(losses, losses["step"] / 7)
