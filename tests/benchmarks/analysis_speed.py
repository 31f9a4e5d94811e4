"""Saturation of a recorded run against a numpy loop that reads the same store, paired.

    python tests/benchmarks/analysis_speed.py [--seconds 20]

20 layers, 200 steps, 64 examples of 128 features, float32. The loop reads each layer's array
with zarr, whole, and takes the eigenvalues of each step's Gram matrix, the smaller one; BLAS has
one thread in both. Quoted is the loop's time over ours: the share of its speed.
"""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
import zarr
from outcrop.analyze import open_run, saturation
from outcrop.capture import Recorder
from pairing import paired
from threadpoolctl import threadpool_limits

LAYERS, STEPS, THRESHOLDS = 20, 200, [0.99]


def record(path: Path) -> None:
    names = [f"layer{number:02d}" for number in range(LAYERS)]
    model = torch.nn.ModuleDict({name: torch.nn.Identity() for name in names})
    torch.manual_seed(0)
    with Recorder(model, path, keep=("output",), when=1) as recorder:
        for step in range(STEPS):
            with recorder.step(step):
                for name in names:
                    model[name](torch.randn(64, 128))


def numpy_loop(path: Path) -> np.ndarray:
    root = zarr.open_group(path, mode="r")["train/layers"]
    return np.array(
        [[one(rows) for rows in root[name]["output/values"][:]] for name in sorted(root)]
    )


def one(rows: np.ndarray) -> float:
    rows = rows[:, 0].astype(np.float64)
    rows -= rows.mean(axis=0)
    eigenvalues = np.clip(np.linalg.eigvalsh(rows @ rows.T)[::-1], 0, None)
    share = np.cumsum(eigenvalues) / eigenvalues.sum()
    return (1 + np.argmax(share >= THRESHOLDS[0] * (1 - 1e-9))) / rows.shape[1]


def ours(path: Path) -> np.ndarray:
    found = saturation(open_run(path), THRESHOLDS)
    return found.transpose("layer", "step", "threshold").values[..., 0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20)
    seconds = parser.parse_args().seconds
    with TemporaryDirectory() as folder, threadpool_limits(1):
        path = Path(folder) / "run.zarr"
        record(path)
        np.testing.assert_array_equal(ours(path), numpy_loop(path))
        found = paired(lambda: numpy_loop(path), lambda: ours(path), seconds=seconds)
        print(f"share of the numpy loop's speed: {found}")


if __name__ == "__main__":
    main()
