"""Changing an HDF5 file in one piece: a process that dies half way has changed nothing.

libhdf5 changes metadata in place. So a change is made on an overlay: what it writes before the
old end of the file stays in memory, what it adds behind goes to the file at once. Then the
pages in memory are written to a journal, and from there into the file. A journal that is whole
is part of the file, for readers too, until it has been carried out; one that is not whole
does not exist.
"""

import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c
from outcrop.capture.store.files import replace_file

_PAGE = 4096
_CHECKSUM = 4

Pages = dict[int, bytes]
"""Bytes of a file, by the number of their page."""


@dataclass(frozen=True)
class Journal:
    """A change of a file.

    Parameters
    ----------
    pages : dict
        What the file has from now on.
    superseded : tuple of str
        Files, by their path from the journal's folder, whose content is in the file now.
    """

    pages: Pages
    superseded: tuple[str, ...]


class Overlay(io.RawIOBase):
    """A file of which the pages below `limit` are written into memory; for h5py.

    Parameters
    ----------
    file : int
        The file.
    pages : dict
        Pages that hold instead of those of the file.
    limit : int
        Where the file ends for good; what is written behind goes to the file.
    """

    def __init__(self, file: int, pages: Pages, *, limit: int) -> None:
        self._file = file
        self._limit = limit
        self._place = 0
        self._end = max(os.fstat(file).st_size, limit)
        self.pages = {number: bytearray(page) for number, page in pages.items()}

    def readable(self) -> bool:
        """Whether it can be read."""
        return True

    def writable(self) -> bool:
        """Whether it can be written."""
        return True

    def seekable(self) -> bool:
        """Whether it has places."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place; gives it."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._end}[whence]
        self._place = base + offset
        return self._place

    def tell(self) -> int:
        """Give the place."""
        return self._place

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer; what lies behind the end is zeros."""
        view = memoryview(buffer).cast("B")
        data = os.pread(self._file, len(view), self._place)
        view[: len(data)] = data
        view[len(data) :] = bytes(len(view) - len(data))
        for number, at, begin, end in _parts(self._place, len(view)):
            piece = self.pages.get(number, bytearray())[begin:end]
            view[at : at + len(piece)] = piece
        self._place += len(view)
        return len(view)

    def write(self, data: Any) -> int:
        """Write at the place."""
        view = memoryview(data).cast("B")
        inside = min(max(self._limit - self._place, 0), len(view))
        for number, at, begin, end in _parts(self._place, inside):
            self._page(number)[begin:end] = view[at : at + end - begin]
        written = inside
        while written < len(view):
            written += os.pwrite(self._file, view[written:], self._place + written)
        self._place += len(view)
        self._end = max(self._end, self._place)
        return len(view)

    @property
    def size(self) -> int:
        """Where the file ends."""
        return self._end

    def truncate(self, size: int | None = None) -> int:
        """Set the end; the file itself keeps what it had."""
        self._end = self._place if size is None else size
        if self._end > os.fstat(self._file).st_size:
            os.ftruncate(self._file, self._end)
        return self._end

    def flush(self) -> None:
        """Do nothing: a change counts when its journal is whole."""

    def _page(self, number: int) -> bytearray:
        if number not in self.pages:
            data = os.pread(self._file, _PAGE, number * _PAGE)
            # A page over the limit would cover what was written behind it.
            size = min(_PAGE, self._limit - number * _PAGE)
            self.pages[number] = bytearray(data[:size].ljust(size, b"\0"))
        return self.pages[number]


class Patched(Overlay):
    """A file for reading, with the pages of a journal that was not carried out."""

    def __init__(self, path: Path, pages: Pages) -> None:
        self._descriptor = os.open(path, os.O_RDONLY)
        super().__init__(self._descriptor, pages, limit=0)

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            os.close(self._descriptor)
        super().close()


@contextmanager
def changing(path: Path, journal: Path, superseded: list[Path]) -> Iterator[Overlay]:
    """Change a file in one piece, at the end of the block; an exception changes nothing.

    Parameters
    ----------
    path : Path
        The file.
    journal : Path
        Where the journal goes; one that is there is carried out first.
    superseded : list of Path
        Files below the journal's folder that go with the change.
    """
    carry_out(path, journal)
    file = os.open(path, os.O_RDWR)
    try:
        overlay = Overlay(file, {}, limit=os.fstat(file).st_size)
        yield overlay
        os.fsync(file)
        gone = tuple(str(one.relative_to(journal.parent)) for one in superseded)
        pages = {number: bytes(page) for number, page in overlay.pages.items()}
        replace_file(journal, _encode(Journal(pages, gone)), sync=True)
    finally:
        os.close(file)
    carry_out(path, journal)


def carry_out(path: Path, journal: Path) -> None:
    """Do what a journal says, if there is one."""
    change = read_journal(journal)
    if change is None:
        return
    file = os.open(path, os.O_RDWR)
    try:
        for number, page in sorted(change.pages.items()):
            os.pwrite(file, page, number * _PAGE)
        os.fsync(file)
    finally:
        os.close(file)
    for name in change.superseded:
        _remove(journal.parent / name, keep=journal.parent)
    journal.unlink()


def read_journal(journal: Path) -> Journal | None:
    """Read a journal; None if there is no whole one."""
    try:
        data = journal.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    body, stored = data[:-_CHECKSUM], data[-_CHECKSUM:]
    if _checksum(body) != stored:
        return None
    head, _, body = body.partition(b"\n")
    return Journal(dict(_decode(body)), tuple(json.loads(head)))


def _remove(path: Path, *, keep: Path) -> None:
    path.unlink(missing_ok=True)
    if path.parent != keep:
        with suppress(OSError):
            path.parent.rmdir()


def _encode(change: Journal) -> bytes:
    body = json.dumps(change.superseded).encode() + b"\n"
    body += b"".join(
        number.to_bytes(8, "little") + len(page).to_bytes(4, "little") + page
        for number, page in change.pages.items()
    )
    return body + _checksum(body)


def _decode(body: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(body):
        number = int.from_bytes(body[at : at + 8], "little")
        size = int.from_bytes(body[at + 8 : at + 12], "little")
        yield number, body[at + 12 : at + 12 + size]
        at += 12 + size


def _checksum(body: bytes) -> bytes:
    return int(google_crc32c.value(body)).to_bytes(_CHECKSUM, "little")


def _parts(place: int, length: int) -> Iterator[tuple[int, int, int, int]]:
    """Cut a range into pages: number, place in the range, begin and end in the page."""
    at = 0
    while at < length:
        number, begin = divmod(place + at, _PAGE)
        end = min(_PAGE, begin + length - at)
        yield number, at, begin, end
        at += end - begin
