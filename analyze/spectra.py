"""Covariances and their eigenvalues, for each step or for the whole run.

Letters: `s` step, `e` example, `p` position, `f` feature, `m` mode.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, TypeAlias

import dask.array as da
import numpy as np
import xarray as xr
from dask.delayed import delayed
from numpy.typing import NDArray
from outcrop.capture import format as names

from .eigen import eigenvalues_of, eigenvalues_of_moments
from .moments import Moments, merged
from .pooling import Pooling, samples_of
from .records import Records, RunLike, layer_arrays, records_of
from .threads import one_blas_thread

Over: TypeAlias = Literal["step", "run"]
Data: TypeAlias = "RunLike | xr.DataArray"

MODE = "mode"
_RESULTS = {MODE: "spectrum", "feature_2": "covariance"}
_OVER = ("step", "run")
_FAN_IN = 8
_REFERENCE = "Richter et al., Feature space saturation during training, arXiv:2006.08679"


def spectrum(
    data: Data,
    *,
    layers: Sequence[str] | None = None,
    quantity: str = "output",
    stream: str = names.TRAIN,
    pooling: Pooling = "each",
    over: Over = "step",
    sample_dim: str = "sample",
) -> xr.DataArray | xr.DataTree:
    """Take the eigenvalues of the covariance of a layer's features.

    Parameters
    ----------
    data : Run or DataArray, dims (step, example, position, feature) or (sample, feature)
        A run, or data of one layer.
    layers : sequence of str or None
        Names of the layers of a run; None for all.
    quantity : {"output", "input", "backprop"}
        What of the layers.
    stream : str
        Stream of the run.
    pooling : {"each", "mean", "max", "flatten"}
        What becomes of the positions.
    over : {"step", "run"}
        A spectrum for each step, or one of all records together.
    sample_dim : str
        Name of the dimension of samples, if `data` has one.

    Returns
    -------
    DataArray, dims (step, mode), or DataTree of them
        Descending, in squared units of the quantity; NaN where fewer than two samples are.
        Coordinates: ``n_samples``, ``n_examples``, ``n_nonfinite``. A tree, with the layers'
        keys, if a run has more than one layer.

    Raises
    ------
    ValueError
        If an option is not known, or the data cannot give what is asked.

    Examples
    --------
    >>> rows = xr.DataArray([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]],
    ...                     dims=("sample", "feature"))
    >>> spectrum(rows).values
    array([4.5, 0.5])
    """
    options: dict[str, Any] = {"pooling": pooling, "over": over, "sample_dim": sample_dim}
    if isinstance(data, xr.DataArray):
        return spectrum_of(data, **options)
    arrays = layer_arrays(data, layers, quantity=quantity, stream=stream)
    found = {layer: spectrum_of(array, **options) for layer, array in arrays.items()}
    if len(found) == 1:
        return next(iter(found.values()))
    keys = names.keys(found)
    return xr.DataTree.from_dict(
        {f"/{keys[layer]}": one.to_dataset(name="spectrum") for layer, one in found.items()}
    )


def covariance(
    data: Data,
    *,
    layer: str | None = None,
    quantity: str = "output",
    stream: str = names.TRAIN,
    pooling: Pooling = "each",
    over: Over = "step",
    ddof: int = 0,
    sample_dim: str = "sample",
) -> xr.DataArray:
    r"""Take the covariance of a layer's features.

    :math:`\sum (x - \bar x)(x - \bar x)^T / (n - ddof)`, accumulated in float64.

    Parameters
    ----------
    data : Run or DataArray, dims (step, example, position, feature) or (sample, feature)
        A run, or data of one layer.
    layer : str or None
        Name of the layer of a run.
    quantity, stream, pooling, over, sample_dim
        As for `spectrum`.
    ddof : int
        0 divides by n, the population's; 1 by n - 1.

    Returns
    -------
    DataArray, dims (step, feature, feature_2)
        NaN where there are not more than `ddof` samples.

    Raises
    ------
    ValueError
        If a run is given without a layer, or an option is not known.

    Examples
    --------
    >>> rows = xr.DataArray([[1.0, 2.0], [3.0, 2.0], [5.0, 5.0]], dims=("sample", "feature"))
    >>> covariance(rows).values.round(3)
    array([[2.667, 2.   ],
           [2.   , 2.   ]])
    """
    if not isinstance(data, xr.DataArray):
        if layer is None:
            raise ValueError(f"covariance is of one layer: give layer=, one of {data.layers}")
        data = data.quantity(quantity, layer, stream=stream)
    records = records_of(data, pooling=pooling, sample_dim=sample_dim)
    f = records.features
    if _is_one_window(over, records):
        found = da.from_delayed(
            delayed(Moments.covariance)(_moments(records), ddof=ddof), (f, f), np.float64
        )
        return _labelled(
            _computed_if_eager(found, records), records, ("feature", "feature_2"), {"ddof": ddof}
        )
    kernel = partial(_step_covariances, pooling=pooling, ddof=ddof)
    found = _computed_if_eager(_blockwise(kernel, records, "sfg", {"f": f, "g": f}), records)
    return _labelled(found, records, (names.STEP, "feature", "feature_2"), {"ddof": ddof})


def spectrum_of(
    data: xr.DataArray, *, pooling: str, over: str, sample_dim: str = "sample"
) -> xr.DataArray:
    """Take the spectrum of one layer's data; see `spectrum`."""
    records = records_of(data, pooling=pooling, sample_dim=sample_dim)
    if _is_one_window(over, records):
        packed = da.from_delayed(
            delayed(_run_spectrum)(_moments_or_rows(records)),
            (records.features + 2,),
            np.float64,
        )
        found = _unpacked(packed, records, (MODE,))
        n_examples: Any = records.n_examples.sum()
    else:
        kernel = partial(_step_spectra, pooling=pooling)
        packed = _blockwise(kernel, records, "sm", {"m": records.features + 2})
        found = _unpacked(packed, records, (names.STEP, MODE))
        n_examples = (names.STEP, records.n_examples)
    found = found.assign_coords(n_examples=n_examples)
    found.attrs |= {
        "long_name": "eigenvalues of the covariance",
        "pooling": pooling,
        "over": over,
        **{key: data.attrs[key] for key in ("layer", "quantity", "run") if key in data.attrs},
    }
    return found


def _is_one_window(over: str, records: Records) -> bool:
    if over not in _OVER:
        raise ValueError(f"over is one of {', '.join(map(repr, _OVER))}; got {over!r}")
    return over == "run" or not records.coordinates


# One step, one matrix.
def _step_spectra(
    values: NDArray[Any], n_examples: NDArray[Any], n_positions: NDArray[Any], *, pooling: str
) -> NDArray[np.float64]:
    """Give spectra, numbers of samples and of non-finite ones, side by side."""
    with one_blas_thread():
        parts = [
            np.column_stack(eigenvalues_of(stack))
            for _, stack in samples_of(values, n_examples, n_positions, pooling)
        ]
    return np.concatenate(parts)


def _step_covariances(
    values: NDArray[Any],
    n_examples: NDArray[Any],
    n_positions: NDArray[Any],
    *,
    pooling: str,
    ddof: int,
) -> NDArray[np.float64]:
    with one_blas_thread():
        return np.stack(
            [
                Moments.of(samples).covariance(ddof=ddof)
                for _, stack in samples_of(values, n_examples, n_positions, pooling)
                for samples in stack
            ]
        )


def _blockwise(kernel: Any, records: Records, out: str, new_axes: dict[str, int]) -> da.Array:
    """Run a kernel on each block of whole records."""
    values = records.values.rechunk({1: -1})
    steps, examples = values.chunks[0], values.chunks[1]
    n_examples = da.from_array(records.n_examples, chunks=(steps,))
    n_positions = da.from_array(records.n_positions, chunks=(steps, examples))
    # `f` of the data and of a result are not the same axis: a result's is made anew.
    found: da.Array = da.blockwise(
        kernel,
        out,
        *(values, "sepx"),
        *(n_examples, "s"),
        *(n_positions, "se"),
        new_axes=new_axes,
        concatenate=True,
        dtype=np.float64,
        meta=np.empty((0,) * len(out)),
    )
    return found


# All steps together.
def _moments(records: Records) -> Any:
    """Moments of all records: a tree of merges over the blocks."""
    parts = [delayed(_block_moments)(*block, pooling=records.pooling) for block in _blocks(records)]
    while len(parts) > 1:
        parts = [
            delayed(merged)(parts[start : start + _FAN_IN])
            for start in range(0, len(parts), _FAN_IN)
        ]
    return parts[0]


def _moments_or_rows(records: Records) -> Any:
    """Give moments, or the samples themselves where they are fewer than the features."""
    if records.n_samples >= records.features:
        return _moments(records)
    parts = [delayed(_block_rows)(*block, pooling=records.pooling) for block in _blocks(records)]
    return delayed(np.concatenate)(parts)


def _run_spectrum(found: Moments | NDArray[Any]) -> NDArray[np.float64]:
    with one_blas_thread():
        if isinstance(found, Moments):
            values = eigenvalues_of_moments(found)
            return np.array([*values, found.count, found.n_nonfinite])
        values, counts, lost = eigenvalues_of(found[None])
        return np.array([*values[0], counts[0], lost[0]])


def _blocks(records: Records) -> list[tuple[Any, NDArray[Any], NDArray[Any]]]:
    """Give every block of values with its own counts."""
    blocks = records.values.to_delayed()[:, :, 0, 0]
    bounds = [np.cumsum([0, *sizes]) for sizes in records.values.chunks[:2]]
    found = []
    for (row, column), block in np.ndenumerate(blocks):
        steps = slice(*bounds[0][row : row + 2])
        first, last = bounds[1][column : column + 2]
        n_examples = np.clip(records.n_examples[steps] - first, 0, last - first)
        found.append((block, n_examples, records.n_positions[steps, first:last]))
    return found


def _block_moments(
    values: NDArray[Any], n_examples: NDArray[Any], n_positions: NDArray[Any], *, pooling: str
) -> Moments:
    with one_blas_thread():
        return Moments.of(_block_rows(values, n_examples, n_positions, pooling=pooling))


def _block_rows(
    values: NDArray[Any], n_examples: NDArray[Any], n_positions: NDArray[Any], *, pooling: str
) -> NDArray[Any]:
    parts = [
        stack.reshape(-1, stack.shape[-1])
        for _, stack in samples_of(values, n_examples, n_positions, pooling)
    ]
    return np.concatenate(parts)


# Labels.
def _unpacked(packed: da.Array, records: Records, dims: tuple[str, ...]) -> xr.DataArray:
    values = _computed_if_eager(packed, records)
    counts = values[..., -2:].astype(np.int64)
    found = _labelled(values[..., :-2], records, dims, {})
    return found.assign_coords(
        n_samples=(dims[:-1], counts[..., 0]), n_nonfinite=(dims[:-1], counts[..., 1])
    )


def _labelled(
    values: Any, records: Records, dims: tuple[str, ...], attrs: dict[str, Any]
) -> xr.DataArray:
    coordinates = records.coordinates if names.STEP in dims else {}
    array = xr.DataArray(
        values,
        dims=dims,
        coords=coordinates,
        name=_RESULTS[dims[-1]],
        attrs={"formula": "sum((x - mean)(x - mean)^T) / n", "reference": _REFERENCE, **attrs},
    )
    return array


def _computed_if_eager(values: da.Array, records: Records) -> Any:
    return values if records.lazy else values.compute()
