"""Records until it is killed; says each step that is committed, after it is.

python kill_child.py STORE
"""

import sys

import torch
from outcrop.capture import Recorder
from outcrop.capture.store import grids
from torch import nn


def rows_of(step):
    """What the layer gives at a step: numbers that tell where they belong."""
    return torch.arange(32 * 8, dtype=torch.float32).reshape(32, 8) + 1000 * step


def main(path):
    # Seals come every few records, so that kills hit them too.
    grids.LEAST_RECORDS = grids.MOST_RECORDS = 4
    grids.ROW_CHUNK = 8
    model = nn.ModuleDict({"one": nn.Identity(), "two": nn.Identity()})
    with Recorder(model, path, keep=("output",), when=1, examples=None) as recorder:
        for step in range(1_000_000):
            with recorder.step(step) as record:
                rows = rows_of(step)
                model["one"](rows)
                if step % 3:
                    model["two"](-rows)
                record.log(loss=step / 7)
            recorder.flush()
            print(step, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
