"""Runs recorded for tests of what reads them."""

import torch
from nets import NETS, batch, loss_of
from outcrop.capture import Recorder

ALL = ("input", "output", "backprop", "gradient")


def record_run(path, *, kind="cnn", steps=5, n=16, close=True, **options):
    """Record a few training steps; gives the recorder, closed unless asked otherwise."""
    torch.manual_seed(0)
    model = NETS[kind]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    options = {"keep": ALL, "when": 1, "on_error": "raise", "optimizer": optimizer} | options
    recorder = Recorder(model, path, **options)
    for step in range(steps):
        with recorder.step(step, epoch=step // 2) as record:
            loss = loss_of(model(batch(kind, n, seed=step)))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            record.log(loss=loss, accuracy=step / 10)
    if close:
        recorder.close()
    else:
        recorder.flush()
    return recorder
