"""Numbers that a spectrum gives: dimension and saturation at any threshold, variance, ranks."""

from collections.abc import Callable, Sequence
from typing import Any, get_args

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from outcrop.capture import format as names

from .eigen import DimensionRule, dimension_of
from .pooling import Pooling
from .records import layer_arrays
from .spectra import MODE, Data, Over, spectrum_of

Thresholds = float | Sequence[float]

_LAYER = "layer"
_BY_LAYER = ("status", "n_samples", "n_examples", "n_nonfinite", "n_features", "rank_limited")
_THRESHOLD = "threshold"


def intrinsic_dimension(
    data: Data,
    threshold: Thresholds = 0.99,
    *,
    layers: Sequence[str] | None = None,
    quantity: str = "output",
    stream: str = names.TRAIN,
    pooling: Pooling = "each",
    over: Over = "step",
    rule: DimensionRule = "reach",
    sample_dim: str = "sample",
) -> xr.DataArray:
    r"""Count the directions that hold a share of the variance of a layer's features.

    The smallest :math:`k` with
    :math:`\lambda_1 + \dots + \lambda_k \ge \tau (\lambda_1 + \dots + \lambda_f)`, of the
    eigenvalues of the covariance.

    Parameters
    ----------
    data : Run or DataArray, dims (step, example, position, feature) or (sample, feature)
        A run, or data of one layer.
    threshold : float or sequence of float
        Shares of the variance, each in (0, 1].
    layers : sequence of str or None
        Names of the layers of a run; None for all that have the quantity.
    quantity : {"output", "input", "backprop"}
        What of the layers.
    stream : str
        Stream of the run.
    pooling : {"each", "mean", "max", "flatten"}
        What becomes of the positions: every one a sample, their mean or largest value, or
        positions x features as the features.
    over : {"step", "run"}
        A value for each step, or one of all records together, in which each sample counts once.
    rule : {"reach", "below"}
        ``"reach"`` counts the direction that reaches the threshold, as defined above.
        ``"below"`` leaves it out, as delve does, and can therefore give 0.
    sample_dim : str
        Name of the dimension of samples, if `data` has one.

    Returns
    -------
    DataArray, dims (step, layer, threshold)
        Whole numbers; 0 for a layer that is constant, NaN where fewer than two samples are.
        Without `step` for the run or samples, without `layer` for a DataArray, without
        `threshold` for a single one. Coordinates: ``n_samples``, ``n_examples``,
        ``n_nonfinite`` (left out), ``n_features``, and ``rank_limited``: no more samples than
        features, so that the value is limited by the sample.

    Raises
    ------
    ValueError
        If a threshold is not a share, an option is not known, or the pooling needs positions
        that were not recorded.
    MissingRecord
        If a named layer was never recorded.

    References
    ----------
    .. [1] Richter et al., "Feature space saturation during training", arXiv:2006.08679.

    Examples
    --------
    >>> rows = xr.DataArray(np.diag([3.0, 2.0, 1.0, 0.0]), dims=("sample", "feature"))
    >>> intrinsic_dimension(rows, [0.5, 0.8, 1.0]).values
    array([1., 2., 3.])
    """
    found = _of_layers(
        data,
        _dimension(threshold, rule),
        layers=layers,
        quantity=quantity,
        stream=stream,
        options={"pooling": pooling, "over": over, "sample_dim": sample_dim},
    )
    return _named(found, "intrinsic_dimension", "1", "smallest k whose share >= threshold", rule)


def saturation(
    data: Data,
    threshold: Thresholds = 0.99,
    *,
    layers: Sequence[str] | None = None,
    quantity: str = "output",
    stream: str = names.TRAIN,
    pooling: Pooling = "each",
    over: Over = "step",
    rule: DimensionRule = "reach",
    sample_dim: str = "sample",
) -> xr.DataArray:
    """Give the share of a layer's features that its data need: intrinsic dimension / features.

    Parameters
    ----------
    data, threshold, layers, quantity, stream, pooling, over, rule, sample_dim
        As for `intrinsic_dimension`.

    Returns
    -------
    DataArray, dims (step, layer, threshold)
        In [0, 1]; dimensions and coordinates as for `intrinsic_dimension`.

    Raises
    ------
    ValueError, MissingRecord
        As for `intrinsic_dimension`.

    Notes
    -----
    delve 0.1.50 keeps the last batch alone, and its dimension is one less than the definition
    of the paper; ``rule="below"`` reproduces the second.

    References
    ----------
    .. [1] Richter et al., "Feature space saturation during training", arXiv:2006.08679.

    Examples
    --------
    >>> rows = xr.DataArray(np.diag([3.0, 2.0, 1.0, 0.0]), dims=("sample", "feature"))
    >>> saturation(rows, [0.5, 0.8]).values
    array([0.25, 0.5 ])
    """
    dimension = intrinsic_dimension(
        data,
        threshold,
        layers=layers,
        quantity=quantity,
        stream=stream,
        pooling=pooling,
        over=over,
        rule=rule,
        sample_dim=sample_dim,
    )
    found = dimension / dimension["n_features"]
    found.attrs |= dimension.attrs
    return _named(found, "saturation", "1", "intrinsic dimension / features", rule)


def total_variance(
    data: Data,
    *,
    layers: Sequence[str] | None = None,
    quantity: str = "output",
    stream: str = names.TRAIN,
    pooling: Pooling = "each",
    over: Over = "step",
    sample_dim: str = "sample",
) -> xr.DataArray:
    """Sum the variances of a layer's features: the trace of the covariance.

    Parameters
    ----------
    data, layers, quantity, stream, pooling, over, sample_dim
        As for `intrinsic_dimension`.

    Returns
    -------
    DataArray, dims (step, layer)
        In squared units of the quantity; coordinates as for `intrinsic_dimension`.

    Raises
    ------
    ValueError, MissingRecord
        As for `intrinsic_dimension`.

    Examples
    --------
    >>> rows = xr.DataArray([[1.0, 2.0], [3.0, 2.0], [5.0, 5.0]], dims=("sample", "feature"))
    >>> total_variance(rows).values.round(3)[()]
    np.float64(4.667)
    """
    found = _of_layers(
        data,
        lambda spectrum: spectrum.sum(MODE, skipna=False),
        layers=layers,
        quantity=quantity,
        stream=stream,
        options={"pooling": pooling, "over": over, "sample_dim": sample_dim},
    )
    return _named(found, "total_variance", "squared units of the quantity", "trace(covariance)")


def participation_ratio(
    data: Data,
    *,
    layers: Sequence[str] | None = None,
    quantity: str = "output",
    stream: str = names.TRAIN,
    pooling: Pooling = "each",
    over: Over = "step",
    sample_dim: str = "sample",
) -> xr.DataArray:
    r"""Give a dimension without a threshold: :math:`(\sum \lambda)^2 / \sum \lambda^2`.

    Parameters
    ----------
    data, layers, quantity, stream, pooling, over, sample_dim
        As for `intrinsic_dimension`.

    Returns
    -------
    DataArray, dims (step, layer)
        From 1 to the number of features; 0 for a layer that is constant. Biased down by small
        samples. Coordinates as for `intrinsic_dimension`.

    Raises
    ------
    ValueError, MissingRecord
        As for `intrinsic_dimension`.

    Examples
    --------
    >>> rows = xr.DataArray(np.eye(4) - 0.25, dims=("sample", "feature"))
    >>> participation_ratio(rows).values.round(9)[()]
    np.float64(3.0)
    """
    found = _of_layers(
        data,
        _participation,
        layers=layers,
        quantity=quantity,
        stream=stream,
        options={"pooling": pooling, "over": over, "sample_dim": sample_dim},
    )
    return _named(found, "participation_ratio", "1", "(sum lambda)^2 / sum lambda^2")


def _participation(spectrum: xr.DataArray) -> xr.DataArray:
    squares = (spectrum**2).sum(MODE, skipna=False)
    # A constant layer has no directions at all: 0 / 0 is 0.
    return spectrum.sum(MODE, skipna=False) ** 2 / squares.where(squares != 0, 1)


def _dimension(
    threshold: Thresholds, rule: DimensionRule
) -> Callable[[xr.DataArray], xr.DataArray]:
    thresholds = _checked_thresholds(threshold)
    if rule not in get_args(DimensionRule):
        raise ValueError(f"rule is 'reach' or 'below'; got {rule!r}")

    def measure(spectrum: xr.DataArray) -> xr.DataArray:
        found: xr.DataArray = xr.apply_ufunc(
            dimension_of,
            spectrum,
            thresholds,
            spectrum["n_samples"],
            kwargs={"rule": rule},
            input_core_dims=[[MODE], [_THRESHOLD], []],
            output_core_dims=[[_THRESHOLD]],
            dask="parallelized",
            dask_gufunc_kwargs={"allow_rechunk": True},
            output_dtypes=[np.float64],
            keep_attrs=True,
        )
        return found.squeeze(_THRESHOLD) if np.ndim(threshold) == 0 else found

    return measure


def _checked_thresholds(threshold: Thresholds) -> xr.DataArray:
    values: NDArray[np.float64] = np.atleast_1d(np.asarray(threshold, np.float64))
    for value in values:
        if not 0 < value <= 1:
            raise ValueError(f"threshold is a share of the variance, in (0, 1]; got {value:g}")
    if not values.size:
        raise ValueError("threshold is a share of the variance, in (0, 1]; got none")
    return xr.DataArray(values, dims=_THRESHOLD, coords={_THRESHOLD: values})


def _of_layers(
    data: Data,
    measure: Callable[[xr.DataArray], xr.DataArray],
    *,
    layers: Sequence[str] | None,
    quantity: str,
    stream: str,
    options: dict[str, Any],
) -> xr.DataArray:
    """Measure the spectrum of each layer, one after another along `layer`."""
    if isinstance(data, xr.DataArray):
        return _measured(data, measure, options)
    arrays = layer_arrays(data, layers, quantity=quantity, stream=stream)
    found = [_measured(array, measure, options) for array in arrays.values()]
    names_along = xr.DataArray(list(arrays), dims=_LAYER, name=_LAYER)
    # Named one by one: comparing the layers' coordinates would compute them.
    apart = [name for name in _BY_LAYER if name in found[0].coords]
    joined = xr.concat(found, names_along, coords=apart, compat="override", join="exact")
    order = [dim for dim in (names.STEP, _LAYER, _THRESHOLD) if dim in joined.dims]
    joined = joined.transpose(*order)
    joined.attrs.pop(_LAYER, None)
    return joined


def _measured(
    data: xr.DataArray, measure: Callable[[xr.DataArray], xr.DataArray], options: dict[str, Any]
) -> xr.DataArray:
    spectrum = spectrum_of(data, **options)
    features = spectrum.sizes[MODE]
    found = measure(spectrum).assign_coords(
        n_features=features, rank_limited=spectrum["n_samples"] <= features
    )
    found.attrs |= spectrum.attrs
    return found


def _named(
    found: xr.DataArray, name: str, units: str, formula: str, rule: str | None = None
) -> xr.DataArray:
    found.name = name
    found.attrs |= {"long_name": name.replace("_", " "), "units": units, "formula": formula}
    if rule is not None:
        found.attrs["rule"] = rule
    return found
