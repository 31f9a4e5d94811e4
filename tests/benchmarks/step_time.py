"""What recording adds to a training step: recorded over bare, paired, in one process.

    python tests/benchmarks/step_time.py [--seconds 20] [--threads 1]

Two twins from one seed train in alternating blocks of steps. The MLP has three hidden layers of
512 units and batches of 128; recorded are output, backprop and gradient of all layers, 64
examples a record, with zstd. "never" is attached but never sampling; "nothing" is the pair of
two bare twins: what the machine's noise makes of 1.
"""

import argparse
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from timeit import timeit

import torch
from outcrop.capture import At, Recorder
from pairing import Ratio, paired
from torch import nn

KEEP = ("output", "backprop", "gradient")
BLOCK = 20
SCHEDULES = {"every step": 1, "every 10th": 10, "never": At([])}


class Training:
    """One of two equal trainings."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        widths = [64, 512, 512, 512]
        hidden = [p for a, b in pairwise(widths) for p in (nn.Linear(a, b), nn.ReLU())]
        self.model = nn.Sequential(*hidden, nn.Linear(512, 10))
        self.batches = [(torch.randn(128, 64), torch.randint(10, (128,))) for _ in range(8)]
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.step = 0

    def one(self) -> None:
        x, y = self.batches[self.step % 8]
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(x), y).backward()
        self.optimizer.step()
        self.step += 1

    def bare(self) -> None:
        for _ in range(BLOCK):
            self.one()

    def recorded(self, recorder: Recorder) -> None:
        for _ in range(BLOCK):
            with recorder.step(self.step):
                self.one()
        recorder.flush()


def ratio_of(when: object, folder: Path, seconds: float, compression: str) -> Ratio:
    """Ratio of the step times of a recorded and a bare twin."""
    bare, recorded = Training(), Training()
    path = folder / "run.zarr"
    with Recorder(
        recorded.model, path, keep=KEEP, when=when, compression=compression, mode="w"
    ) as recorder:
        found = paired(partial(recorded.recorded, recorder), bare.bare, seconds=seconds)
    same = zip(bare.model.parameters(), recorded.model.parameters(), strict=True)
    assert bare.step != recorded.step or all(torch.equal(a, b) for a, b in same)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"{arguments.threads} thread(s); keep {', '.join(KEEP)}; 64 examples")
    one, other = Training(), Training()
    print(f"{'nothing':12} {'':6} {paired(one.bare, other.bare, seconds=arguments.seconds)}")
    with TemporaryDirectory() as folder:
        for name, when in SCHEDULES.items():
            for compression in ("zstd", "none"):
                found = ratio_of(when, Path(folder), arguments.seconds, compression)
                print(f"{name:12} {compression:6} {found}", flush=True)
        with Recorder(nn.Linear(2, 2), Path(folder) / "idle.zarr", when=At([])) as recorder:
            seconds = timeit(
                lambda: recorder.step(1).__enter__().__exit__(None, None, None), number=100_000
            )
            print(f"a step that is not sampled: {seconds * 10:.2f} microseconds")


if __name__ == "__main__":
    main()
