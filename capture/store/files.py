"""Files that are there whole or not at all."""

import fcntl
import os
from collections import OrderedDict
from pathlib import Path
from typing import Any


def replace_file(
    path: Path, data: bytes, *, sync: bool = False, scratch: Path | None = None
) -> None:
    """Write a file under a temporary name, in the folder `scratch` if given, and rename it."""
    temporary = (scratch or path.parent) / f".{path.name}.{os.getpid()}.tmp"
    try:
        with temporary.open("wb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def append_whole(file: int, pieces: list[Any]) -> tuple[int, int]:
    """Append to a file; gives offset and length.

    What is written in part is cut off again, so that the next offset is right.

    Raises
    ------
    OSError
        If not everything could be written.
    """
    offset = os.fstat(file).st_size
    length = sum(len(piece) for piece in pieces)
    try:
        written = os.writev(file, pieces)
        if written == length:
            return offset, length
        raise OSError(f"{written} of {length} bytes could be written: is the disk full?")
    except OSError:
        os.ftruncate(file, offset)
        raise


class OpenFiles:
    """Files open for appending, at most so many at a time."""

    def __init__(self, most: int = 256) -> None:
        self._most = most
        self._files: OrderedDict[Path, int] = OrderedDict()
        self._unsynced: set[Path] = set()

    def __getitem__(self, path: Path) -> int:
        self._unsynced.add(path)
        file = self._files.get(path)
        if file is not None:
            self._files.move_to_end(path)
            return file
        while len(self._files) >= self._most:
            os.close(self._files.popitem(last=False)[1])
        flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND
        self._files[path] = os.open(path, flags, 0o666)
        return self._files[path]

    def close(self, path: Path, *, sync: bool = False) -> None:
        """Close one file, forced to the disk if asked."""
        if sync:
            self._sync(path)
        self._unsynced.discard(path)
        file = self._files.pop(path, None)
        if file is not None:
            os.close(file)

    def sync(self) -> None:
        """Force to the disk what was appended since the last time, to open files and others."""
        for path in list(self._unsynced):
            self._sync(path)
            self._unsynced.discard(path)

    def _sync(self, path: Path) -> None:
        if path in self._files:
            os.fsync(self._files[path])
            return
        file = os.open(path, os.O_WRONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)

    def close_all(self) -> None:
        """Close all files."""
        while self._files:
            os.close(self._files.popitem()[1])


class Lock:
    """A lock that a killed process leaves open.

    Parameters
    ----------
    path : Path
        The file that is locked.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_CREAT | os.O_RDWR, 0o666)
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def release(self) -> None:
        """Give the lock back and take its file away."""
        self._path.unlink(missing_ok=True)
        os.close(self._file)


def is_locked(path: Path) -> bool:
    """Whether a living process holds the lock."""
    try:
        file = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False
