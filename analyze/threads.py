"""One BLAS thread a task: dask already keeps every core busy.

Two BLAS threads a worker on as many workers as cores were measured many times slower than one:
they wait for each other, spinning.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController


class _Limit:
    """A limit that holds while any task needs it; the setting is the process's, not a thread's."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._users = 0
        self._limiter: Any = None

    def begin(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._limiter = _controller(len(sys.modules)).limit(limits=1, user_api="blas")

    def end(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                self._limiter.restore_original_limits()


_LIMIT = _Limit()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread inside the block."""
    _LIMIT.begin()
    try:
        yield
    finally:
        _LIMIT.end()


@lru_cache(maxsize=1)
def _controller(n_modules: int) -> ThreadpoolController:
    """Find the BLAS libraries; looked for again when modules came, which may bring their own."""
    return ThreadpoolController()
