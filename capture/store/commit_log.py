"""The commit log of a stream: one checksummed line a record, appended last.

A record is committed when its line is whole. The log starts anew at each seal.
"""

import json
import os
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import google_crc32c
from outcrop.capture.errors import DamagedStore

NAME = ".commit.log"
_PREFIX = 9  # eight hexadecimal digits and a space
# Where the power fails, a file may have its new length and zeros for its new bytes.
_TORN = b"\0" * 16


@dataclass(frozen=True)
class Entry:
    """One committed record.

    Parameters
    ----------
    record : int
        Its number in the stream.
    blocks : list
        ``[array number, offset, length, chunk coordinates or 0]`` of each chunk.
    rows : list
        A value for each array of rows, in the order of declaration; None is the fill value.
    """

    record: int
    blocks: list[list[Any]]
    rows: list[Any]


class CommitLog:
    """The log of one stream, for writing.

    Parameters
    ----------
    folder : Path
        Folder of the array that the log lies in.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._file = -1
        self.restart()

    def append(self, entries: list[Entry]) -> None:
        """Commit records: after this, a killed process keeps them."""
        lines = b"".join(map(_encode, entries))
        size = os.fstat(self._file).st_size
        if os.write(self._file, lines) != len(lines):
            os.ftruncate(self._file, size)
            raise OSError(f"the commit log {str(self._path)!r} could not be written whole")

    def sync(self) -> None:
        """Force the log to the disk."""
        os.fsync(self._file)

    def restart(self) -> None:
        """Begin an empty log, in the place of the old one, which stays if that fails."""
        fresh = self._path.with_name(f"{NAME}.new")
        flags = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_APPEND
        file = os.open(fresh, flags, 0o666)
        try:
            fresh.replace(self._path)
        except OSError:
            os.close(file)
            raise
        if self._file >= 0:
            os.close(self._file)
        self._file = file

    def close(self) -> None:
        """Leave the log as it is."""
        os.close(self._file)

    def remove(self) -> None:
        """Take the log away: the store is closed."""
        self.close()
        self._path.unlink()


def read_log(folder: Path) -> list[Entry]:
    """Read the committed records of a log; none if there is no log.

    Raises
    ------
    DamagedStore
        If an entry that was whole once fails its checksum.
    """
    path = folder / NAME
    found, n_lines = scan_log(path)
    if len(found) == n_lines:
        return found
    raise DamagedStore(
        f"entry {len(found)} of the commit log {str(path)!r} fails its checksum; "
        f"{n_lines - len(found) - 1} entries follow it"
    )


def scan_log(path: Path) -> tuple[list[Entry], int]:
    """Read a log up to the first entry that is damaged; also counts the entries there were."""
    try:
        *lines, rest = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return [], 0
    # What follows the last newline was never finished, unless it was the newline that changed.
    lines += [rest] if _decode(rest[:-1]) else []
    while lines and _TORN in lines[-1]:
        lines.pop()
    entries = list(takewhile(lambda entry: entry is not None, map(_decode, lines)))
    return entries, len(lines)  # type: ignore[return-value]


def _encode(entry: Entry) -> bytes:
    record = {"i": entry.record, "b": entry.blocks, "r": entry.rows}
    text = json.dumps(record, separators=(",", ":")).encode()
    return b"%08x %s\n" % (google_crc32c.value(text), text)


def _decode(line: bytes) -> Entry | None:
    text = line[_PREFIX:]
    if line[:_PREFIX] != b"%08x " % google_crc32c.value(text):
        return None
    record = json.loads(text)
    return Entry(record["i"], record["b"], record["r"])
