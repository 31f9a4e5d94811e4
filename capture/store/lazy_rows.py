"""The arrays of rows of a stream, read when they are asked for."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


class LazyRows(Mapping[str, NDArray[Any]]):
    """Arrays of rows by path; each is read once, at its first use.

    A run of a thousand convolutions has thousands of them, and a question needs a few.

    Parameters
    ----------
    paths : list of str
        The arrays there are.
    read : callable
        Reads the array at a path.
    """

    def __init__(self, paths: list[str], read: Callable[[str], NDArray[np.generic]]) -> None:
        self._paths = dict.fromkeys(paths)
        self._read = read
        self._known: dict[str, NDArray[Any]] = {}

    def __getitem__(self, path: str) -> NDArray[Any]:
        if path not in self._paths:
            raise KeyError(path)
        if path not in self._known:
            self._known[path] = self._read(path)
        return self._known[path]

    def __contains__(self, path: object) -> bool:
        return path in self._paths

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)
