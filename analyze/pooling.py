"""What becomes of the positions of images and sequences: from records to samples.

A sample is a row of the data matrix. Letters: `s` step, `e` example, `p` position, `f` feature.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Pooling: TypeAlias = Literal["each", "mean", "max", "flatten"]
Values: TypeAlias = NDArray[Any]
Counts: TypeAlias = NDArray[np.integer[Any]]


def _each(values: Values) -> Values:
    *steps, examples, positions, features = values.shape
    return values.reshape(*steps, examples * positions, features)


def _mean(values: Values) -> Values:
    pooled: Values = values.mean(axis=-2, dtype=np.float64)
    return pooled


def _max(values: Values) -> Values:
    pooled: Values = values.max(axis=-2)
    return pooled


def _flatten(values: Values) -> Values:
    *steps, positions, features = values.shape
    return values.reshape(*steps, positions * features)


@dataclass(frozen=True)
class Rule:
    """How positions are pooled.

    Parameters
    ----------
    pool : callable
        (…, e, p, f) to (…, sample, feature), where all positions count.
    partial : bool
        Whether a sample of the positions, or a varying number of them, will do.
    what : str
        In words.
    """

    pool: Callable[[Values], Values]
    partial: bool
    what: str


RULES: dict[str, Rule] = {
    "each": Rule(_each, partial=True, what="every position a sample"),
    "mean": Rule(_mean, partial=False, what="mean over the positions of an example"),
    "max": Rule(_max, partial=False, what="largest value over the positions of an example"),
    "flatten": Rule(_flatten, partial=False, what="positions x features, position-major"),
}


def checked_rule(pooling: str) -> Rule:
    """Find the rule of a pooling.

    Raises
    ------
    ValueError
        If there is none of this name.

    Examples
    --------
    >>> checked_rule("mean").what
    'mean over the positions of an example'
    >>> checked_rule("men")
    Traceback (most recent call last):
    ...
    ValueError: pooling is one of 'each', 'mean', 'max', 'flatten'; got 'men' (did you mean 'mean'?)
    """
    if pooling in RULES:
        return RULES[pooling]
    close = get_close_matches(pooling, RULES, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    raise ValueError(f"pooling is one of {', '.join(map(repr, RULES))}; got {pooling!r}{hint}")


def n_samples(pooling: str, n_examples: Counts, n_positions: Counts) -> int:
    """Count the samples of some records, before non-finite ones are left out.

    Parameters
    ----------
    pooling : str
        The pooling.
    n_examples : array, shape (s)
        Examples of each record.
    n_positions : array, shape (s, e)
        Positions of each example, 0 where there is none.
    """
    return int(n_positions.sum() if pooling == "each" else n_examples.sum())


def pooled_features(pooling: str, positions: int, features: int) -> int:
    """Count the features of a sample."""
    return positions * features if pooling == "flatten" else features


def samples_of(
    values: Values, n_examples: Counts, n_positions: Counts, pooling: str
) -> Iterator[tuple[slice, Values]]:
    """Give the data matrices of some records, stacked where they have the same shape.

    Padding never counts.

    Parameters
    ----------
    values : array, shape (s, e, p, f)
        The records, padded.
    n_examples : array, shape (s)
        Examples of each.
    n_positions : array, shape (s, e)
        Positions of each example.
    pooling : str
        What becomes of the positions.

    Yields
    ------
    slice
        The records of a stack.
    array, shape (s, sample, feature)
        Their data matrices.
    """
    rule = checked_rule(pooling)
    steps, examples, positions, _ = values.shape
    if (n_examples == examples).all() and (n_positions == positions).all():
        yield slice(0, steps), rule.pool(values)
        return
    for step in range(steps):
        n = int(n_examples[step])
        counted = n_positions[step, :n]
        yield slice(step, step + 1), _ragged(values[step, :n], counted, rule)[None]


def _ragged(values: Values, n_positions: Counts, rule: Rule) -> Values:
    """Pool the examples of one record, each over as many positions as it has."""
    if rule.pool is _each:
        return values[np.arange(values.shape[1]) < n_positions[:, None]]
    if (n_positions == values.shape[1]).all():
        return rule.pool(values)
    # An example without positions is padding, or an empty sequence: there is nothing to pool.
    counted = zip(values, n_positions, strict=True)
    pooled = [rule.pool(one[None, :n]) for one, n in counted if n]
    return np.concatenate(pooled) if pooled else rule.pool(values[:0])
