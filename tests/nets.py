"""Small networks and batches, and the truth about one step of them by plain autograd."""

import torch
from torch import nn


def mlp(*, inplace: bool = False) -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(inplace=inplace), nn.Linear(5, 3))


def cnn(*, inplace: bool = False) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.ReLU(inplace=inplace),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(36, 3),
    )


def token_mlp(*, inplace: bool = False) -> nn.Sequential:
    """The ordinary MLP of a transformer: its first output is a view, changed in place."""
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(inplace=inplace), nn.Linear(5, 3))


BATCHES = {
    "mlp": lambda n: torch.randn(n, 6),
    "cnn": lambda n: torch.randn(n, 2, 6, 6),
    "tokens": lambda n: torch.randn(n, 7, 6),
}
NETS = {"mlp": mlp, "cnn": cnn, "tokens": token_mlp}


def batch(kind: str, n: int, seed: int) -> torch.Tensor:
    torch.manual_seed(seed)
    return BATCHES[kind](n)


def loss_of(output: torch.Tensor) -> torch.Tensor:
    """A loss with unlike gradients for all of its entries."""
    return output.flatten(1).sin().square().sum(1).mean()


def truth(model: nn.Sequential, x: torch.Tensor) -> dict[tuple[str, str], torch.Tensor]:
    """Inputs, outputs, backprops and gradients of one pass, without any recorder.

    The model's in-place layers must be off: here every tensor keeps its value.
    """
    found = {}
    outputs = {}
    h = x
    for name, layer in model.named_children():
        found[name, "input"] = h.detach().clone()
        h = layer(h)
        found[name, "output"] = h.detach().clone()
        h.retain_grad()
        outputs[name] = h
    loss_of(h).backward()
    for name, output in outputs.items():
        found[name, "backprop"] = output.grad.clone()
    for name, parameter in model.named_parameters():
        found[name, "gradient"] = parameter.grad.clone()
        parameter.grad = None
    return found
