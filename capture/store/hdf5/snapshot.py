"""What an HDF5 store is made of at one moment, taken while it may be written."""

import os
from pathlib import Path
from typing import NamedTuple

import h5py
from outcrop.capture.errors import DamagedStore, FormatError
from outcrop.capture.format import CHECKSUMS, METADATA, NAME, ROWS, is_readable, version_text
from outcrop.capture.store.commit_log import NAME as LOG
from outcrop.capture.store.commit_log import Entry, read_log
from outcrop.capture.store.files import is_locked
from outcrop.capture.store.model import Document

from .files import (
    LOCK,
    as_json,
    journal_of,
    log_folder,
    open_for_reading,
    segment_paths,
    side_folder,
)
from .journal import Journal, Pages, read_journal
from .tree import document_of

_TRIES = 100
_NO_CHANGE = Journal({}, ())


class Snapshot(NamedTuple):
    """A store at one moment.

    Parameters
    ----------
    files : tuple of Path
        The run's file, and further ones.
    document : dict
        The metadata document.
    state : str
        ``"closed"``, ``"recording"`` or ``"interrupted"``.
    sealed : dict of str to int
        How many records of each stream have their rows in the files.
    entries : dict of str to list
        Those that the logs add.
    """

    files: tuple[Path, ...]
    document: Document
    state: str
    sealed: dict[str, int]
    entries: dict[str, list[Entry]]


def take_snapshot(path: Path) -> Snapshot:
    """Take a snapshot.

    Raises
    ------
    FileNotFoundError
        If there is nothing.
    FormatError
        If it is not a store of ours, or of another version.
    DamagedStore
        If its structure cannot be read.
    """
    if not path.exists():
        raise FileNotFoundError(f"there is no run at {str(path)!r}")
    if path.is_dir():
        raise FormatError(f"{str(path)!r} is a folder; a run of this form is a file")
    for _ in range(_TRIES):
        before = _stamp(path)
        try:
            snapshot = _take(path)
        except (OSError, RuntimeError, KeyError, DamagedStore):
            if _stamp(path) == before:
                raise
        else:
            if _stamp(path) == before and _sealed(path, snapshot) == snapshot.sealed:
                return snapshot
        # A seal, a further file or the closing came in between: look again.
    raise FormatError(f"{str(path)!r} changes faster than it can be read; try again")


def opened(path: Path, name: str) -> h5py.File:
    """Open a run's file, or one beside it, by its name."""
    return open_for_reading(*located(path, name))


def located(path: Path, name: str) -> tuple[Path, Pages]:
    """Find a file of a run by its name, and the pages of a journal that hold instead of its own.

    What lay in a further file is in the run's own once that has been closed.
    """
    change = read_journal(journal_of(path)) or _NO_CHANGE
    further = side_folder(path) / name
    if name != path.name and name not in change.superseded and further.exists():
        return further, {}
    return path, change.pages


def sealed_records(table: h5py.Dataset, first_row: h5py.Dataset) -> int:
    """Count the records whose rows are in the file, and no longer in the log."""
    return int(min(table.shape[0] * first_row.chunks[0], first_row.shape[0]))


def pending(log: list[Entry], sealed: int, stream: str) -> list[Entry]:
    """Give the entries of a log that are not sealed.

    Raises
    ------
    DamagedStore
        If the log does not go on where the seals end.
    """
    entries = [entry for entry in log if entry.record >= sealed]
    if [entry.record for entry in entries] != list(range(sealed, sealed + len(entries))):
        raise DamagedStore(
            f"the commit log of {stream!r} does not go on after {sealed} sealed records"
        )
    return entries


def _take(path: Path) -> Snapshot:
    superseded = (read_journal(journal_of(path)) or _NO_CHANGE).superseded
    further = [one for one in segment_paths(path) if one.name not in superseded]
    files = (path, *further)
    document, attributes = _document(path, files)
    _check_version(path, attributes)
    snapshot = Snapshot(files, document, _state(path, document), {}, {})
    sealed = _sealed(path, snapshot)
    entries = {}
    for stream in document.get("streams", {}):
        folder = log_folder(path, stream)
        log = [] if f"{stream}/{LOG}" in superseded else read_log(folder)
        entries[stream] = pending(log, sealed.get(stream, 0), stream)
    return snapshot._replace(sealed=sealed, entries=entries)


def _document(path: Path, files: tuple[Path, ...]) -> tuple[Document, dict[str, object]]:
    """Read the document of the last recording, and the root's attributes."""
    with opened(path, path.name) as file:
        attributes = {name: as_json(value) for name, value in file.attrs.items()}
        _check_ours(path, attributes)
    for home in reversed(files):
        with opened(path, home.name) as file:
            if METADATA in file:
                return document_of(file, repr(str(home))), attributes
    raise DamagedStore(f"{str(path)!r} has no metadata document")


def _sealed(path: Path, snapshot: Snapshot) -> dict[str, int]:
    found: dict[str, int] = {}
    streams = snapshot.document.get("streams", {})
    for home in snapshot.files:
        with opened(path, home.name) as file:
            for stream, about in streams.items():
                table = f"{stream}/{CHECKSUMS}/{ROWS}"
                if stream not in found and table in file:
                    found[stream] = sealed_records(
                        file[table], file[f"{stream}/{about['rows'][0]}"]
                    )
    return found


def _state(path: Path, document: Document) -> str:
    if document.get("closed"):
        return "closed"
    return "recording" if is_locked(side_folder(path) / LOCK) else "interrupted"


def _stamp(path: Path) -> list[tuple[str, int]]:
    """Tell apart the moments between which files came, went or were replaced."""
    side = side_folder(path)
    found = [("", path.stat().st_ino)]
    for folder, _, names in os.walk(side):
        for name in names:
            one = Path(folder) / name
            try:
                found.append((str(one), one.stat().st_ino))
            except FileNotFoundError:
                found.append((str(one), -1))
    return sorted(found)


def _check_ours(path: Path, attributes: dict[str, object]) -> None:
    found = attributes.get("format")
    if found != NAME:
        raise FormatError(
            f"{str(path)!r} is an HDF5 file, but not a run: its attribute 'format' is "
            f"{found!r}, not {NAME!r}"
        )


def _check_version(path: Path, attributes: dict[str, object]) -> None:
    version = str(attributes.get("version"))
    if not is_readable(version):
        raise FormatError(
            f"{str(path)!r} has version {version!r} of the format; this is a reader of version "
            f"{version_text()!r}: read it with the outcrop that wrote it"
        )
