"""What is known of each class of layer: where its features lie, and its settings.

The features of a tensor are stored last, whatever the layer was; `Kind` says on which axis
they are found. Layers that work on each number alone (activations, Dropout, …) have their
features where their input has them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from torch import nn

from .words import joined

Axis: TypeAlias = int | Literal["inherit", "none"]
"""Axis of the features: counted from either end; that of the layer's input; or no such axis."""


@dataclass(frozen=True)
class Kind:
    """What is known of a class of layers.

    Parameters
    ----------
    output_axis, input_axis : int, "inherit" or "none"
        Axis of the features of the output and of the input.
    settings : tuple of str
        Attributes of the layer that analysis needs.
    needs_all_positions : bool
        Whether the gradient of the layer's weight mixes positions of its input, so that the
        input is recorded whole.
    """

    output_axis: Axis = "inherit"
    input_axis: Axis = "inherit"
    settings: tuple[str, ...] = ()
    needs_all_positions: bool = False


def _convolution(dimensions: int, *, transposed: bool = False) -> Kind:
    axis = -(dimensions + 1)
    settings = (
        *("in_channels", "out_channels", "kernel_size", "stride", "padding", "padding_mode"),
        *("dilation", "groups"),
        *(("output_padding",) if transposed else ()),
    )
    return Kind(axis, axis, settings, needs_all_positions=True)


def _pooling(dimensions: int, *settings: str) -> Kind:
    axis = -(dimensions + 1)
    return Kind(axis, axis, settings)


_ELEMENTWISE = (
    *(nn.CELU, nn.ELU, nn.GELU, nn.Hardshrink, nn.Hardsigmoid, nn.Hardswish, nn.Hardtanh),
    *(nn.LeakyReLU, nn.LogSigmoid, nn.Mish, nn.PReLU, nn.RReLU, nn.ReLU, nn.ReLU6, nn.SELU),
    *(nn.SiLU, nn.Sigmoid, nn.Softplus, nn.Softshrink, nn.Softsign, nn.Tanh, nn.Tanhshrink),
    *(nn.Threshold, nn.Identity, nn.Dropout, nn.AlphaDropout, nn.FeatureAlphaDropout),
    *(nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.Softmax, nn.LogSoftmax, nn.Softmin),
)
_POOL = ("kernel_size", "stride", "padding", "ceil_mode")

KINDS: dict[type[nn.Module], Kind] = {
    nn.Linear: Kind(-1, -1, ("in_features", "out_features")),
    nn.Conv1d: _convolution(1),
    nn.Conv2d: _convolution(2),
    nn.Conv3d: _convolution(3),
    nn.ConvTranspose1d: _convolution(1, transposed=True),
    nn.ConvTranspose2d: _convolution(2, transposed=True),
    nn.ConvTranspose3d: _convolution(3, transposed=True),
    nn.Embedding: Kind(-1, "none", ("num_embeddings", "embedding_dim", "padding_idx")),
    nn.LayerNorm: Kind(-1, -1, ("normalized_shape", "eps")),
    nn.RMSNorm: Kind(-1, -1, ("normalized_shape", "eps")),
    nn.BatchNorm1d: Kind(1, 1, ("num_features", "eps", "momentum", "track_running_stats")),
    nn.BatchNorm2d: Kind(1, 1, ("num_features", "eps", "momentum", "track_running_stats")),
    nn.BatchNorm3d: Kind(1, 1, ("num_features", "eps", "momentum", "track_running_stats")),
    nn.GroupNorm: Kind(1, 1, ("num_groups", "num_channels", "eps")),
    nn.MaxPool1d: _pooling(1, *_POOL),
    nn.MaxPool2d: _pooling(2, *_POOL),
    nn.MaxPool3d: _pooling(3, *_POOL),
    nn.AvgPool1d: _pooling(1, *_POOL),
    nn.AvgPool2d: _pooling(2, *_POOL),
    nn.AvgPool3d: _pooling(3, *_POOL),
    nn.AdaptiveAvgPool1d: _pooling(1, "output_size"),
    nn.AdaptiveAvgPool2d: _pooling(2, "output_size"),
    nn.AdaptiveAvgPool3d: _pooling(3, "output_size"),
    nn.AdaptiveMaxPool1d: _pooling(1, "output_size"),
    nn.AdaptiveMaxPool2d: _pooling(2, "output_size"),
    nn.AdaptiveMaxPool3d: _pooling(3, "output_size"),
    nn.Flatten: Kind(-1, "inherit", ("start_dim", "end_dim")),
    **dict.fromkeys(_ELEMENTWISE, Kind()),
}
"""The documented layers; a class inherits the entry of its nearest base."""

UNKNOWN = Kind()
"""Layers of other classes, which are recorded only when they are named."""

MIXING = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
"""Layers whose output for one example depends on the other examples, while training."""


def kind_of(module: nn.Module) -> Kind | None:
    """Find the entry of a layer's class or nearest base; None for a class without one."""
    return next((KINDS[base] for base in type(module).__mro__ if base in KINDS), None)


def describe(name: str, key: str, module: nn.Module) -> dict[str, Any]:
    """Describe a layer as the metadata document does."""
    kind = kind_of(module) or UNKNOWN
    return {
        "name": name,
        "key": key,
        "class": type(module).__name__,
        "bias": getattr(module, "bias", None) is not None,
        "mixes_examples": isinstance(module, MIXING),
        **{setting: _plain(getattr(module, setting)) for setting in kind.settings},
    }


def describe_parameters(
    model: nn.Module, model_name: str, keys: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Describe the parameters of a model: canonical name, aliases of tied ones, shape."""
    aliases: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        aliases.setdefault(id(parameter), []).append(joined(model_name, name))
    return [
        {
            "name": joined(model_name, name),
            "key": keys[joined(model_name, name)],
            "aliases": aliases[id(parameter)][1:],
            "shape": list(parameter.shape),
            "requires_grad": parameter.requires_grad,
        }
        for name, parameter in model.named_parameters()
    ]


def _plain(value: object) -> object:
    """Turn tuples of numbers into lists, as JSON has them."""
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_plain(one) for one in value]
    return value
