"""Bringing a run into one HDF5 file: when it is closed, and after its process was killed."""

from contextlib import ExitStack
from pathlib import Path

import h5py
from outcrop.capture.format import CHECKSUMS, METADATA, ROWS
from outcrop.capture.store.commit_log import NAME as LOG
from outcrop.capture.store.commit_log import Entry, read_log
from outcrop.capture.store.model import Document

from .files import (
    VERSIONS,
    check_room,
    close_quietly,
    journal_of,
    log_folder,
    open_for_reading,
    segment_paths,
    side_folder,
)
from .finish import finish_stream, unindexed_chunks, write_chunks
from .journal import Overlay, carry_out, changing
from .scales import label_array
from .snapshot import pending, sealed_records
from .superblock import SIZE, is_marked, unmarked
from .tree import append_document, document_of

_Files = dict[Path, h5py.File]


def fold(path: Path, document: Document | None = None) -> None:
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
    DamagedStore
        If a file or a log cannot be read; nothing has changed then.
    """
    carry_out(path, journal_of(path))
    segments = segment_paths(path)
    # All arrays of further files are copied before these go.
    check_room(path, sum(segment.stat().st_size for segment in segments))
    logs = [folder / LOG for folder in side_folder(path).iterdir() if folder.is_dir()]
    with changing(path, journal_of(path), [*segments, *logs]) as overlay:
        _unmark(overlay)
        with ExitStack() as stack:
            file = h5py.File(overlay, "r+", libver=VERSIONS)
            stack.callback(close_quietly, file)
            sources = {one: stack.enter_context(open_for_reading(one)) for one in segments}
            _bring_together(path, file, sources, document)
            file.close()


def _unmark(overlay: Overlay) -> None:
    overlay.seek(0)
    superblock = bytearray(SIZE)
    overlay.readinto(superblock)
    if is_marked(bytes(superblock)):
        overlay.seek(0)
        overlay.write(unmarked(bytes(superblock), overlay.size))


def _bring_together(
    path: Path, file: h5py.File, sources: _Files, document: Document | None
) -> None:
    last = _last_document(sources)
    current = document or last or document_of(file, repr(str(path)))
    files = {path: file, **sources}
    logs = {stream: _log(path, files, stream, current) for stream in current.get("streams", {})}
    lost = list(unindexed_chunks(current, logs, files))
    for source in sources.values():
        _copy_arrays(source, file)
    for stream, log in logs.items():
        if stream in file:
            finish_stream(file[stream], current["streams"][stream], log)
    write_chunks(file, lost)
    if document or last:
        append_document(file, current)
    label_array(file, file[METADATA])


def _last_document(sources: _Files) -> Document | None:
    """Give the document of a recording that was resumed, which lies in its first file."""
    found = [document_of(s, repr(str(one))) for one, s in sources.items() if METADATA in s]
    return found[-1] if found else None


def _log(path: Path, files: _Files, stream: str, document: Document) -> list[Entry]:
    """Give the entries of a stream that are not sealed."""
    table = f"{stream}/{CHECKSUMS}/{ROWS}"
    first = f"{stream}/{document['streams'][stream]['rows'][0]}"
    for file in files.values():
        if table in file:
            sealed = sealed_records(file[table], file[first])
            return pending(read_log(log_folder(path, stream)), sealed, stream)
    return []


def _copy_arrays(source: h5py.File, file: h5py.File) -> None:
    names: list[str] = []
    source.visititems(
        lambda name, node: names.append(name) if isinstance(node, h5py.Dataset) else None
    )
    for name in names:
        if name != METADATA:
            group, _, last = name.rpartition("/")
            source.copy(source[name], file.require_group(group), last)
