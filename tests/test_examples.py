"""The examples run as the README says, and leave their figures."""

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(script, *arguments):
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_digits_are_recorded_and_drawn(tmp_path):
    assert "held-out digits right" in run("digits/record.py", "--out", tmp_path)
    said = run("digits/figure.py", "--out", tmp_path)
    figures = sorted(tmp_path.glob("*.png"))
    assert figures
    for figure in figures:
        assert str(figure) in said
        assert figure.stat().st_size > 10_000
    # A second drawing from the same stores is the same, byte for byte.
    before = {figure: figure.read_bytes() for figure in tmp_path.glob("*.p[nd][gf]")}
    run("digits/figure.py", "--out", tmp_path)
    assert {figure: figure.read_bytes() for figure in before} == before
