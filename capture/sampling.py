"""Which examples and which positions of a step are recorded."""

from zlib import crc32

import numpy as np
from numpy.typing import NDArray

Index = NDArray[np.int64]


def example_index(
    n: int, limit: int | None, *, seed: int, stream: str, step: int, microbatch: int, rank: int = 0
) -> Index:
    """Draw the examples of one forward pass that are recorded.

    The draw depends on the arguments alone: all layers and quantities of a step have the same
    examples, and two recordings with one seed have the same ones.

    Parameters
    ----------
    n : int
        Number of examples in the pass.
    limit : int or None
        How many to draw at most; None for all.
    seed, rank, stream, step, microbatch
        What the draw depends on.

    Returns
    -------
    array of int64, shape (example)
        Ascending, without repetition.

    Examples
    --------
    >>> len(example_index(128, 4, seed=0, stream="train", step=7, microbatch=0))
    4
    >>> example_index(3, 64, seed=0, stream="train", step=7, microbatch=0).tolist()
    [0, 1, 2]
    """
    return _draw(n, limit, (seed, rank, crc32(stream.encode()), step, microbatch))


def position_index(
    n: int, limit: int | None, *, seed: int, stream: str, step: int, rank: int = 0
) -> Index:
    """Draw the positions of a step that are recorded, the same for all tensors with `n` of them.

    Parameters
    ----------
    n : int
        Number of positions in an example.
    limit : int or None
        How many to draw at most; None for all.
    seed, rank, stream, step
        What the draw depends on, besides `n`.

    Returns
    -------
    array of int64, shape (position)
        Ascending, without repetition.
    """
    return _draw(n, limit, (seed, rank, crc32(stream.encode()), step, n, 1))


def _draw(n: int, limit: int | None, key: tuple[int, ...]) -> Index:
    if limit is None or n <= limit:
        return np.arange(n)
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(key)))
    return np.sort(generator.choice(n, limit, replace=False, shuffle=False))
