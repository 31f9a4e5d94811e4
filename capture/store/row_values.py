"""Values of arrays of rows as JSON, for commit logs."""

from typing import Any

import numpy as np

_FOLD = 4


def packed(value: Any) -> Any:
    """Make a value JSON; many equal numbers are folded into one and their count.

    >>> packed(np.ones(9, int)), packed([1, 2]), packed(None)
    ({'n': 9, 'v': 1}, [1, 2], None)
    """
    if value is None:
        return None
    array = np.asarray(value)
    if array.ndim == 1 and array.size > _FOLD and (array == array[0]).all():
        return {"n": array.size, "v": array[0].item()}
    return array.tolist()


def unpacked(value: Any) -> Any:
    """Give a value that was packed.

    >>> unpacked({"n": 3, "v": 1})
    [1, 1, 1]
    """
    return [value["v"]] * value["n"] if isinstance(value, dict) else value
