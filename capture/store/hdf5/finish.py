"""Finishing the streams of an HDF5 store: what only their logs know goes into the file."""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import h5py
from outcrop.capture.format import CHECKSUMS, ROWS, VALUES
from outcrop.capture.store.commit_log import Entry
from outcrop.capture.store.cutting import Coordinates
from outcrop.capture.store.model import Document
from outcrop.capture.store.row_values import unpacked

from .arrays import Stored, grow_rows, write_rows
from .block_reader import read_at
from .files import place_at
from .scales import label_dimensions
from .snapshot import pending, sealed_records
from .stream import write_checksums, write_seal

Logs = Mapping[str, list[Entry]]
"""The entries of each stream."""


class Unindexed(NamedTuple):
    """A chunk whose bytes are in a file that does not know it yet."""

    array: str
    origin: Coordinates
    home: Path
    offset: int
    length: int


def unindexed_chunks(
    document: Document, logs: Logs, files: Mapping[Path, h5py.File]
) -> Iterator[Unindexed]:
    """Find the chunks that the logs tell of, and libhdf5 was not given the time to note.

    Parameters
    ----------
    document : dict
        The metadata document.
    logs : mapping
        The entries of each stream.
    files : mapping
        The files of the store, open.
    """
    for stream, entries in logs.items():
        arrays = document["streams"][stream]["arrays"]
        for number, items in _items_by_array(entries).items():
            path = f"{stream}/{arrays[number]['group']}/{VALUES}"
            home = next(home for home, file in files.items() if path in file)
            yield from _unindexed_of(files[home][path], path, home, items)


def _items_by_array(entries: list[Entry]) -> dict[int, list[tuple[int, Any]]]:
    """Give records, and what the log says of their chunks, by number of the array."""
    found = defaultdict(list)
    for entry in entries:
        for item in entry.blocks:
            found[item[0]].append((entry.record, item))
    return found


def _unindexed_of(
    array: h5py.Dataset, path: str, home: Path, items: list[tuple[int, Any]]
) -> Iterator[Unindexed]:
    shape, sizes, dataset = array.shape, array.chunks, array.id
    for record, item in items:
        for chunk, offset, length in Stored.of_json(item, len(sizes) - 1).places:
            origin = tuple(c * size for c, size in zip((record, *chunk), sizes, strict=True))
            if place_at(dataset, origin, shape) != (offset, length):
                yield Unindexed(path, origin, home, offset, length)


def write_chunks(file: h5py.File, chunks: Iterable[Unindexed]) -> None:
    """Write chunks again, so that libhdf5 knows them."""
    for one in chunks:
        descriptor = os.open(one.home, os.O_RDONLY)
        try:
            data = read_at(descriptor, one.offset, one.length)
        finally:
            os.close(descriptor)
        file[one.array].id.write_direct_chunk(one.origin, data)


def finish_stream(group: h5py.Group, about: Mapping[str, Any], log: list[Entry]) -> None:
    """Write the rows of a log, and give all arrays the length of the stream.

    Parameters
    ----------
    group : h5py.Group
        The stream.
    about : mapping
        What the document says of it.
    log : list of Entry
        Its log.
    """
    rows = [path for path in about["rows"] if path in group]
    if rows:
        sealed = sealed_records(group[CHECKSUMS][ROWS], group[rows[0]])
        entries = pending(log, sealed, group.name)
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
    blocks = [{number: checksum for number, checksum, *_ in entry.blocks} for entry in entries]
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
