"""What analyses are given, made one: records `(step, example, position, feature)` and counts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import dask.array as da
import numpy as np
import xarray as xr
from numpy.typing import NDArray
from outcrop.capture import format as names
from outcrop.capture.errors import MissingRecord
from outcrop.capture.format import HAS_VALUES

from .pooling import checked_rule, n_samples, pooled_features

Counts = NDArray[np.int64]


@runtime_checkable
class RunLike(Protocol):
    """What of a run the analyses need."""

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers, in forward order."""

    def quantity(self, quantity: str, layer: str, *, stream: str) -> xr.DataArray:
        """Give a quantity of a layer."""


@dataclass(frozen=True)
class Records:
    """The records of one layer, ready for the kernels.

    Parameters
    ----------
    values : dask array, dims (step, example, position, feature)
        Blocks hold whole records; over the run they may be cut along `example` too.
    n_examples : array, shape (step)
        Examples that count: 0 where nothing was recorded.
    n_positions : array, shape (step, example)
        Positions that count; 0 for padding.
    pooling : str
        What becomes of the positions.
    lazy : bool
        Whether the data were given as a dask array, so that results stay lazy.
    coordinates : dict
        Coordinates along `step` that go with the results; empty if there is no `step`.
    """

    values: da.Array
    n_examples: Counts
    n_positions: Counts
    pooling: str
    lazy: bool
    coordinates: dict[str, xr.DataArray]

    @property
    def features(self) -> int:
        """Features of a sample."""
        return pooled_features(self.pooling, *self.values.shape[2:])

    @property
    def n_samples(self) -> int:
        """Samples of all records together, non-finite ones included."""
        return n_samples(self.pooling, self.n_examples, self.n_positions)


def records_of(data: xr.DataArray, *, pooling: str, sample_dim: str = "sample") -> Records:
    """Make records of a DataArray, of the reader or of the user.

    Parameters
    ----------
    data : DataArray, dims (step, example, position, feature), fewer, or (sample, feature)
        Coordinates ``status``, ``n_examples`` and ``n_positions`` say what counts; without them
        all does.
    pooling : str
        What becomes of the positions.
    sample_dim : str
        Name of a dimension that already counts samples.

    Returns
    -------
    Records

    Raises
    ------
    ValueError
        If dimensions are missing or not known, or the pooling needs positions that are not
        there.
    """
    rule = checked_rule(pooling)
    coordinates = _step_coordinates(data)
    data = _four_dims(data, sample_dim)
    n_examples, n_positions = _counts(data)
    if not rule.partial:
        _refuse_partial_positions(data, pooling, n_positions)
    lazy = data.chunks is not None
    blocks = data.data if lazy else da.from_array(data.values, chunks=_whole_records(data))
    blocks = blocks.rechunk({2: -1, 3: -1})
    return Records(blocks, n_examples, n_positions, pooling, lazy, coordinates)


def layer_arrays(
    run: RunLike, layers: Sequence[str] | None, *, quantity: str, stream: str
) -> dict[str, xr.DataArray]:
    """Give a quantity of some layers of a run; of all that have it, if none are named.

    Raises
    ------
    MissingRecord
        If a named layer, or every layer, was never recorded.
    """
    if layers is not None:
        return {layer: run.quantity(quantity, layer, stream=stream) for layer in layers}
    found: dict[str, xr.DataArray] = {}
    missing: MissingRecord | None = None
    for layer in run.layers:
        try:
            found[layer] = run.quantity(quantity, layer, stream=stream)
        except MissingRecord as error:
            missing = error
    if not found:
        raise missing or MissingRecord(f"the run has no layers to take the {quantity} of")
    return found


def _step_coordinates(data: xr.DataArray) -> dict[str, xr.DataArray]:
    if names.STEP not in data.dims:
        return {}
    wanted = (names.STEP, "epoch", names.STATUS)
    return {name: data[name].reset_coords(drop=True) for name in wanted if name in data.coords}


def _four_dims(data: xr.DataArray, sample_dim: str) -> xr.DataArray:
    if sample_dim in data.dims and sample_dim != names.EXAMPLE:
        data = data.rename({sample_dim: names.EXAMPLE})
    strange = set(map(str, data.dims)) - set(names.LAYER_DIMS)
    needed = {names.EXAMPLE, names.FEATURE} - set(data.dims)
    if strange or needed:
        raise ValueError(
            f"data have the dimensions {', '.join(names.LAYER_DIMS)}, or {sample_dim} and "
            f"{names.FEATURE}; got {', '.join(map(str, data.dims))}: rename or transpose them"
        )
    for dim in (names.STEP, names.POSITION):
        if dim not in data.dims:
            data = data.expand_dims(dim)
    return data.transpose(*names.LAYER_DIMS)


def _counts(data: xr.DataArray) -> tuple[Counts, Counts]:
    steps, examples, positions, _ = data.shape
    n_examples = np.full(steps, examples)
    if names.N_EXAMPLES in data.coords:
        n_examples = np.broadcast_to(data[names.N_EXAMPLES].values, steps).copy()
    if names.STATUS in data.coords:
        status = np.broadcast_to(data[names.STATUS].values, steps)
        n_examples[~np.isin(status, list(HAS_VALUES))] = 0
    n_positions = np.full((steps, examples), positions)
    if names.N_POSITIONS in data.coords:
        n_positions = np.broadcast_to(data[names.N_POSITIONS].values, (steps, examples)).copy()
    n_positions[np.arange(examples) >= n_examples[:, None]] = 0
    return n_examples.astype(np.int64), n_positions.astype(np.int64)


def _refuse_partial_positions(data: xr.DataArray, pooling: str, n_positions: Counts) -> None:
    layer = data.attrs.get("layer", "these data")
    recorded, total = (data.attrs.get(f"positions_{what}") for what in ("recorded", "total"))
    if recorded is not None and recorded < total:
        raise ValueError(
            f"pooling {pooling!r} needs all positions, but {recorded} of {total} were recorded of "
            f"{layer!r}: record with positions=None, or use pooling='each'"
        )
    counts = np.unique(n_positions[n_positions > 0])
    if pooling == "flatten" and len(counts) > 1:
        raise ValueError(
            f"pooling 'flatten' needs as many positions in every example, but {layer!r} has "
            f"{counts.min()} to {counts.max()}: use pooling 'each', 'mean' or 'max'"
        )


def _whole_records(data: xr.DataArray, most: int = 8 * 2**20) -> tuple[int, ...]:
    steps, examples, *rest = data.shape
    one = max(int(np.prod(rest)) * data.dtype.itemsize, 1)
    # A matrix without steps is cut along its samples.
    if steps == 1:
        return (1, max(min(examples, most // one), 1), *rest)
    return (max(min(steps, most // max(one * examples, 1)), 1), examples, *rest)
