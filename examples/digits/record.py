"""Train a small MLP and a small CNN on scikit-learn's handwritten digits, and record both.

Everything runs on one CPU core in a few seconds. The stores go to OUT, two folders that any
machine with `outcrop[analyze]` can study; figure.py draws from them.
"""

import argparse
from itertools import pairwise
from pathlib import Path

import torch
from outcrop.capture import Every, First, Recorder
from sklearn.datasets import load_digits
from torch import Tensor, nn

STEPS = 400
BATCH = 256
HELD_OUT = 360


def mlp() -> nn.Module:
    """Three hidden layers of 64 units."""
    widths = [64, 64, 64, 64]
    hidden: list[nn.Module] = []
    for a, b in pairwise(widths):
        hidden += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(64, 10))


def cnn() -> nn.Module:
    """Three convolutions, then a linear classifier."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, padding=1, stride=2), nn.ReLU()),
        *(nn.Conv2d(32, 32, 3, padding=1, stride=2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(128, 10)),
    )


def digits() -> tuple[Tensor, Tensor]:
    """1,797 images of 8 x 8 pixels, and their labels."""
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32)[:, None] / 16 - 0.5
    return images, torch.tensor(data.target)


def train(name: str, model: nn.Module, path: Path) -> None:
    """Train a model and record its layers on some of the steps."""
    images, labels = digits()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    loss_of = nn.CrossEntropyLoss()
    recorder = Recorder(
        model,
        path,
        keep=("output", "backprop", "gradient"),
        layers=lambda _, layer: isinstance(layer, nn.Linear | nn.Conv2d),
        when=First(10) | Every(10),
        examples=None,
        optimizer=optimizer,
        attrs={"model": name, "data": "scikit-learn digits"},
        mode="w",
    )
    with recorder:
        for step in range(STEPS):
            chosen = torch.randint(len(images) - HELD_OUT, (BATCH,))
            with recorder.step(step) as record:
                loss = loss_of(model(images[chosen]), labels[chosen])
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                record.log(loss=loss)
    with torch.no_grad():
        right = model(images[-HELD_OUT:]).argmax(1) == labels[-HELD_OUT:]
    print(f"{name}: {right.float().mean():.1%} of held-out digits right; recorded {path}")


def main() -> None:
    """Train and record both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "out")
    out: Path = parser.parse_args().out
    for name, make in (("MLP", mlp), ("CNN", cnn)):
        torch.manual_seed(0)
        train(name, make(), out / f"{name.lower()}.zarr")


if __name__ == "__main__":
    main()
