"""One BLAS thread a task: dask already keeps every core busy.

Two BLAS threads a worker on as many workers as cores were measured many times slower than one:
they wait for each other, spinning.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from threadpoolctl import OpenBLASController, ThreadpoolController


class _Limit:
    """A limit that holds while any task needs it; the setting is the process's, not a thread's."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._users = 0
        self._limiter: Any = None

    def begin(self) -> None:
        with self._lock:
            if not self._users:
                _free_control()
                # Looked for each time: a library may have come with its own BLAS since.
                self._limiter = ThreadpoolController().limit(limits=1, user_api="blas")
            self._users += 1

    def end(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                _free_control()
                self._limiter.restore_original_limits()
                _free_control()


_LIMIT = _Limit()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread inside the block."""
    _LIMIT.begin()
    try:
        yield
    finally:
        _LIMIT.end()


def _free_control() -> None:
    """Let any thread set the number of OpenBLAS's threads.

    threadpoolctl lets the first thread alone set it, and ignores all others without a word. Here
    the first task to begin sets the limit and the last one to end takes it back, and these may
    run in any two threads.
    """
    clear = getattr(OpenBLASController, "clear_controlling_thread", None)
    if clear is not None:  # older versions know no such thing
        clear(force=True)
