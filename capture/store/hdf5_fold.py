"""Bringing a run into one HDF5 file: when it is closed, and after its process was killed."""

from pathlib import Path
from typing import Any

import h5py
from outcrop.capture.format import CHECKSUMS, METADATA, ROWS, VALUES

from .commit_log import NAME as LOG
from .commit_log import Entry, read_log
from .hdf5_arrays import grow_rows, write_rows
from .hdf5_files import (
    VERSIONS,
    check_room,
    close_quietly,
    journal_of,
    log_folder,
    open_for_reading,
    segment_paths,
    side_folder,
)
from .hdf5_journal import Overlay, changing
from .hdf5_scales import label_array, label_dimensions
from .hdf5_snapshot import pending, sealed_records
from .hdf5_stream import write_checksums, write_seal
from .hdf5_superblock import SIZE, is_marked, unmarked
from .hdf5_tree import append_document, document_of
from .model import Document
from .row_values import unpacked


def fold(path: Path, document: Document | None = None, *, durable: bool) -> None:
    """Bring the rows of the logs and the arrays of further files into a run's file.

    It happens in one piece: whoever reads, or is killed, sees the run as it was or as it will
    be. Nobody may be writing.

    Parameters
    ----------
    path : Path
        The run's file.
    document : dict or None
        The metadata document from now on; None for the last one.

    Raises
    ------
    OSError
        If the disk has no room for the arrays of the further files.
    """
    segments = segment_paths(path)
    # All arrays of further files are copied before these go.
    check_room(path, sum(segment.stat().st_size for segment in segments))
    logs = [log / LOG for log in side_folder(path).iterdir() if log.is_dir()]
    superseded = [*segments, *logs]
    with changing(path, journal_of(path), superseded) as overlay:
        _unmark(overlay)
        file = h5py.File(overlay, "r+", libver=VERSIONS)
        try:
            last = _bring_in(file, segments)
            current = document or last or document_of(file, repr(str(path)))
            for stream, about in current.get("streams", {}).items():
                if stream in file:
                    _finish(file, stream, about, read_log(log_folder(path, stream)))
            if document or last:
                append_document(file, current)
            label_array(file, file[METADATA])
        except BaseException:
            close_quietly(file)
            raise
        file.close()


def _unmark(overlay: Overlay) -> None:
    overlay.seek(0)
    superblock = bytearray(SIZE)
    overlay.readinto(superblock)
    if is_marked(bytes(superblock)):
        overlay.seek(0)
        overlay.write(unmarked(bytes(superblock), overlay.size))


# Further files.
def _bring_in(file: h5py.File, segments: list[Path]) -> Document | None:
    """Copy the arrays of further files; gives the last document that they have."""
    document = None
    for segment in segments:
        with open_for_reading(segment) as source:
            if METADATA in source:
                document = document_of(source, repr(str(segment)))
            for name in _arrays(source):
                if name != METADATA:
                    parent = file.require_group(name.rpartition("/")[0] or "/")
                    source.copy(source[name], parent, name.rpartition("/")[2])
    return document


def _arrays(file: h5py.File) -> list[str]:
    found: list[str] = []
    file.visititems(
        lambda name, node: found.append(name) if isinstance(node, h5py.Dataset) else None
    )
    return found


# Streams.
def _finish(file: h5py.File, stream: str, about: dict[str, Any], log: list[Entry]) -> None:
    """Write what the log has, and give all arrays the length of the stream."""
    group = file[stream]
    tables = group[CHECKSUMS]
    rows = [path for path in about["rows"] if path in group]
    if rows:
        sealed = sealed_records(tables[ROWS], group[rows[0]])
        entries = pending(log, sealed, stream)
        if entries:
            _write_pending(group, rows, sealed, entries)
        _set_length(group, rows, about["arrays"], sealed + len(entries))
    label_dimensions(group)


def _write_pending(group: h5py.Group, rows: list[str], sealed: int, entries: list[Entry]) -> None:
    found = []
    for number, path in enumerate(rows):
        values = [
            unpacked(entry.rows[number]) if number < len(entry.rows) else None for entry in entries
        ]
        found.append(write_rows(group[path], sealed, values))
    tables = group[CHECKSUMS]
    blocks = [dict(entry.blocks) for entry in entries]
    write_checksums(tables[VALUES], sealed, blocks, 0)
    write_seal(tables[ROWS], sealed // group[rows[0]].chunks[0], found)


def _set_length(
    group: h5py.Group, rows: list[str], arrays: list[dict[str, Any]], length: int
) -> None:
    blocks = [f"{entry['group']}/{VALUES}" for entry in arrays if entry["group"]]
    for path in [*rows, *blocks, f"{CHECKSUMS}/{VALUES}"]:
        if path in group:
            dataset = group[path]
            dataset.id.set_extent((length, *dataset.shape[1:]))
    grow_rows(group[f"{CHECKSUMS}/{VALUES}"], (len(arrays),))
