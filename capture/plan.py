"""What is recorded at every sampled step, and the metadata that say so."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from . import format as names
from .environment import provenance
from .layers import UNKNOWN, Kind, describe, describe_parameters, kind_of
from .layout import BatchAxis
from .selection import Layers, select_layers
from .step import ArrayKey
from .store import Document
from .words import joined


@dataclass(frozen=True)
class Tap:
    """A layer that is recorded."""

    name: str
    module: nn.Module
    kind: Kind


@dataclass(frozen=True)
class Plan:
    """What is recorded at every sampled step; made once."""

    models: tuple[nn.Module, ...]
    taps: tuple[Tap, ...]
    parameters: Mapping[str, nn.Parameter]
    keep: frozenset[str]
    batch_axis: Mapping[str, BatchAxis]


def make_plan(
    models: Mapping[str, nn.Module],
    layers: Layers,
    *,
    keep: frozenset[str],
    batch_axis: Mapping[str, BatchAxis],
) -> Plan:
    """Plan the recording of some models, given by name."""
    taps = [
        Tap(name, module, kind_of(module) or UNKNOWN)
        for name, module in select_layers(models, layers).items()
    ]
    parameters = {
        joined(model_name, name): parameter
        for model_name, model in models.items()
        for name, parameter in model.named_parameters()
    }
    return Plan(tuple(models.values()), tuple(taps), parameters, keep, batch_axis)


def expected_arrays(plan: Plan) -> Iterator[ArrayKey]:
    """Give the arrays that are asked for, layer by layer."""
    for tap in plan.taps:
        for quantity in names.LAYER_QUANTITIES:
            if quantity in plan.keep:
                yield ArrayKey(tap.name, quantity)
    if names.GRADIENT in plan.keep:
        for name in plan.parameters:
            yield ArrayKey(name, names.GRADIENT)


def make_document(
    plan: Plan,
    models: Mapping[str, nn.Module],
    *,
    settings: Mapping[str, Any],
    optimizer: Optimizer | None,
    attrs: Mapping[str, Any] | None,
    include: Iterable[str] | None,
) -> Document:
    """Make the metadata document as it stands before the first record."""
    layers = names.keys(tap.name for tap in plan.taps)
    parameters = names.keys(plan.parameters)
    return {
        "format": names.NAME,
        "version": names.version_text(),
        "created": datetime.now(UTC).isoformat(),
        "writer": {"name": "outcrop", "version": version("outcrop")},
        "recorder": {
            "keep": sorted(plan.keep),
            **settings,
            "torch_seed": torch.initial_seed(),
            "device": sorted({str(p.device) for p in plan.parameters.values()}),
            "optimizer": None if optimizer is None else _describe_optimizer(optimizer),
        },
        "environment": provenance(None if include is None else frozenset(include)),
        "attrs": dict(attrs or {}),
        "layers": [describe(tap.name, layers[tap.name], tap.module) for tap in plan.taps],
        "parameters": [
            parameter
            for model_name, model in models.items()
            for parameter in describe_parameters(model, model_name, parameters)
        ],
        "closed": None,
    }


def _describe_optimizer(optimizer: Optimizer) -> dict[str, Any]:
    plain = {name: value for name, value in optimizer.defaults.items() if _is_plain(value)}
    return {"class": type(optimizer).__name__, **plain}


def _is_plain(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | bool | int | float)
