r"""Mean and covariance: stable, and mergeable, so that no data need be together in memory.

Each block is centred on its own mean first; blocks are joined by Chan's formula. So nothing is
lost when the mean is large beside the spread, as it is in :math:`E[xx^T] - E[x]E[x]^T`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]


@dataclass(frozen=True)
class Moments:
    r"""Count, mean and co-moment :math:`\sum (x - \bar x)(x - \bar x)^T` of some samples.

    Parameters
    ----------
    count : int
        Number of samples.
    mean : array, shape (feature)
        Their mean.
    comoment : array, shape (feature, feature)
        Sum of the products of their deviations.
    n_nonfinite : int
        Samples that were left out because they hold NaN or infinite values.

    References
    ----------
    .. [1] Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing sample
       variances", 1979.

    Examples
    --------
    >>> whole = Moments.of(np.array([[1.0, 2.0], [3.0, 2.0], [5.0, 5.0]]))
    >>> parts = Moments.of(np.array([[1.0, 2.0]])).merge(
    ...     Moments.of(np.array([[3.0, 2.0], [5.0, 5.0]])))
    >>> whole.covariance().round(3).tolist()
    [[2.667, 2.0], [2.0, 2.0]]
    >>> np.allclose(parts.comoment, whole.comoment)
    True
    """

    count: int
    mean: Float
    comoment: Float
    n_nonfinite: int = 0

    @classmethod
    def none(cls, features: int) -> "Moments":
        """Make the moments of no samples."""
        return cls(0, np.zeros(features), np.zeros((features, features)))

    @classmethod
    def of(cls, samples: NDArray[Any]) -> "Moments":
        """Take the moments of samples (sample, feature), in two passes.

        Samples with a NaN or an infinite value are left out and counted.
        """
        rows, n_nonfinite = finite_rows(samples)
        if not len(rows):
            empty = cls.none(samples.shape[1])
            return cls(0, empty.mean, empty.comoment, n_nonfinite)
        mean = rows.mean(axis=0)
        centred = rows - mean
        return cls(len(rows), mean, centred.T @ centred, n_nonfinite)

    def merge(self, other: "Moments") -> "Moments":
        """Join the moments of other samples."""
        n_nonfinite = self.n_nonfinite + other.n_nonfinite
        count = self.count + other.count
        if not (self.count and other.count):
            full = self if self.count else other
            return Moments(count, full.mean, full.comoment, n_nonfinite)
        apart = other.mean - self.mean
        mean = self.mean + apart * (other.count / count)
        between = np.outer(apart, apart) * (self.count * other.count / count)
        return Moments(count, mean, self.comoment + other.comoment + between, n_nonfinite)

    def update(self, samples: NDArray[Any]) -> "Moments":
        """Add samples (sample, feature)."""
        return self.merge(Moments.of(samples))

    def covariance(self, *, ddof: int = 0) -> Float:
        """Give the covariance; NaN without more than `ddof` samples."""
        if self.count <= ddof:
            return np.full_like(self.comoment, np.nan)
        return self.comoment / (self.count - ddof)

    @property
    def is_constant(self) -> bool:
        """Whether what spread there is, is rounding: all samples are the same."""
        return is_constant(
            np.trace(self.comoment), self.count * (self.mean @ self.mean), self.count
        ).item()


def merged(parts: Iterable[Moments]) -> Moments:
    """Join the moments of several blocks."""
    return reduce(Moments.merge, parts)


def finite_rows(samples: NDArray[Any]) -> tuple[Float, int]:
    """Give the samples without NaN and infinite values in float64, and how many are left out."""
    rows = samples.astype(np.float64)
    if is_finite(rows):
        return rows, 0
    finite = np.isfinite(rows).all(axis=1)
    return rows[finite], int((~finite).sum())


def is_finite(rows: Float) -> bool:
    """Whether all values are finite; in most cases by one sum, without an array of truths."""
    with np.errstate(invalid="ignore", over="ignore"):
        return bool(np.isfinite(rows.sum()) or np.isfinite(rows).all())


def is_constant(scatter: Any, square: Any, count: Any) -> NDArray[np.bool_]:
    r"""Whether a scatter is rounding alone: at most :math:`(n \epsilon)^2` of the squares.

    Parameters
    ----------
    scatter : array
        Sum of squared deviations.
    square : array
        Sum of squares of the mean, times the number of samples.
    count : array
        Number of samples, n.
    """
    rounding = np.maximum(count, 1) * np.finfo(np.float64).eps
    return np.asarray(scatter <= rounding**2 * (square + scatter))
