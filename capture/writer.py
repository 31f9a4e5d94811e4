"""The writer thread: takes what was captured off the training loop's hands."""

import threading
from collections import deque
from collections.abc import Callable
from typing import Any


class WriterThread:
    """Hands items to a function, one after another, in a thread of its own.

    The queue is bounded by bytes: a training loop that is faster than the disk waits, and
    memory stays flat. After an error nothing more is written; `error` says what it was.

    Parameters
    ----------
    write : callable
        Called with each item.
    max_bytes : int
        How much may wait. A single item may be larger.
    """

    def __init__(self, write: Callable[[Any], None], *, max_bytes: int) -> None:
        self._write = write
        self._max_bytes = max_bytes
        self._waiting: deque[tuple[Any, int]] = deque()
        self._bytes = 0
        self._unfinished = 0
        self._closing = False
        self._changed = threading.Condition()
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="outcrop writer", daemon=True)
        self._thread.start()

    def put(self, item: Any, nbytes: int) -> None:
        """Queue an item; waits while the queue is full."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_room(nbytes))
            if self.error is None:
                self._waiting.append((item, nbytes))
                self._bytes += nbytes
                self._unfinished += 1
                self._changed.notify_all()

    def flush(self) -> None:
        """Wait until everything is written, or an error came."""
        with self._changed:
            self._changed.wait_for(lambda: not self._unfinished)

    def close(self) -> None:
        """Write what waits and end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()

    def _has_room(self, nbytes: int) -> bool:
        return self.error is not None or not self._bytes or self._bytes + nbytes <= self._max_bytes

    def _run(self) -> None:
        while (taken := self._next()) is not None:
            item, nbytes = taken
            try:
                self._write(item)
            except Exception as error:  # noqa: BLE001 - told at the next step and at close
                self._fail(error)
            del item, taken  # or the last record would stay in memory
            with self._changed:
                self._bytes -= nbytes
                self._unfinished -= 1
                self._changed.notify_all()

    def _next(self) -> tuple[Any, int] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            return self._waiting.popleft() if self._waiting else None

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self.error = error
            self._bytes -= sum(nbytes for _, nbytes in self._waiting)
            self._unfinished -= len(self._waiting)
            self._waiting.clear()
