"""Eigenvalues of covariances, from whichever matrix is the smaller one."""

from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .moments import Float, Moments, finite_rows, is_constant, is_finite

DimensionRule: TypeAlias = Literal["reach", "below"]
_TIE = 1e-9
_FEWEST = 2


def eigenvalues_of(stack: NDArray[Any]) -> tuple[Float, NDArray[np.int64], NDArray[np.int64]]:
    """Take the covariance's eigenvalues of each data matrix of a stack.

    Parameters
    ----------
    stack : array, shape (step, sample, feature)
        Data matrices.

    Returns
    -------
    array, shape (step, feature)
        Descending, not negative; NaN where fewer than two samples are left.
    array of int, shape (step)
        Number of samples.
    array of int, shape (step)
        Samples left out because they are not finite.
    """
    rows = stack.astype(np.float64)
    steps, n, features = rows.shape
    if not is_finite(rows):
        return _each_apart(rows)
    counts = np.full(steps, n, np.int64)
    if n < _FEWEST:
        return np.full((steps, features), np.nan), counts, np.zeros(steps, np.int64)
    mean = rows.mean(axis=1, keepdims=True)
    rows -= mean
    values = _spectra_of_centred(rows)
    square = n * np.einsum("sif,sif->s", mean, mean)
    values[is_constant(values.sum(axis=1) * n, square, n)] = 0
    return values, counts, np.zeros(steps, np.int64)


def _each_apart(
    rows: Float,
) -> tuple[Float, NDArray[np.int64], NDArray[np.int64]]:
    found = [finite_rows(one) for one in rows]
    spectra = [eigenvalues_of(kept[None])[0][0] for kept, _ in found]
    counts = np.array([len(kept) for kept, _ in found])
    return np.stack(spectra), counts, np.array([lost for _, lost in found])


def _spectra_of_centred(rows: Float) -> Float:
    """Eigenvalues of X^T X / n, or of X X^T / n with the zeros that it lacks."""
    steps, n, features = rows.shape
    turned = rows.transpose(0, 2, 1)
    products = rows @ turned if n < features else turned @ rows
    values = np.zeros((steps, features), np.float64)
    found = np.linalg.eigvalsh(products)[:, ::-1] / n
    values[:, : found.shape[1]] = np.clip(found, 0, None)
    return values


def eigenvalues_of_moments(moments: Moments) -> Float:
    """Take the eigenvalues of the covariance that moments hold, descending."""
    if moments.count < _FEWEST:
        return np.full(len(moments.mean), np.nan)
    if moments.is_constant:
        return np.zeros(len(moments.mean))
    values = np.linalg.eigvalsh(moments.covariance())[::-1].astype(np.float64)
    return np.clip(values, 0, None)


def dimension_of(
    eigenvalues: Float, thresholds: Float, n_samples: Any, *, rule: DimensionRule = "reach"
) -> Float:
    r"""Count the leading modes that hold a share of the variance.

    The smallest :math:`k` with
    :math:`\lambda_1 + \dots + \lambda_k \ge \tau (\lambda_1 + \dots + \lambda_f)`; a share that
    misses the threshold by :math:`10^{-9}` of it reaches it. Eigenvalues below
    :math:`\max(n, f) \, \epsilon \lambda_1` are zero.

    Parameters
    ----------
    eigenvalues : array, shape (..., mode)
        Descending; NaN where they are not defined.
    thresholds : array, shape (threshold)
        Shares of the variance, in (0, 1].
    n_samples : array, shape (...)
        How many samples the eigenvalues come from.
    rule : {"reach", "below"}
        ``"below"`` leaves out the mode that reaches the threshold, as delve does.

    Returns
    -------
    array, shape (..., threshold)
        Whole numbers; 0 for constant data, NaN where the eigenvalues are not defined.

    Examples
    --------
    >>> spectrum = np.array([90.0, 8.5, 1.0, 0.5])
    >>> dimension_of(spectrum, np.array([0.9, 0.99]), 100)
    array([1., 3.])
    >>> dimension_of(spectrum, np.array([0.9, 0.99]), 100, rule="below")
    array([0., 2.])
    """
    modes = eigenvalues.shape[-1]
    largest = np.maximum(np.asarray(n_samples, float), modes)[..., None]
    tolerance = largest * np.finfo(np.float64).eps * eigenvalues[..., :1]
    held = np.where(eigenvalues > tolerance, eigenvalues, 0)
    total = held.sum(axis=-1)[..., None]
    reached = np.cumsum(held, axis=-1)[..., None, :] >= (
        thresholds[:, None] * (1 - _TIE) * total[..., None]
    )
    counted = modes - reached.sum(axis=-1) + (1 if rule == "reach" else 0)
    counted = np.where(total > 0, counted, 0).astype(np.float64)
    return np.where(np.isnan(eigenvalues[..., :1]), np.nan, counted)
