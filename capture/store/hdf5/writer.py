"""Writing a store as HDF5: whole chunks into files shared with readers, and logs beside."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
from outcrop.capture.format import CHECKSUMS
from outcrop.capture.store.chunks import ChunkCodec
from outcrop.capture.store.commit_log import CommitLog
from outcrop.capture.store.files import Lock
from outcrop.capture.store.model import ArraySpec, Compression, Document, Fsync, Record

from .files import check_room, close_quietly, log_folder, segment_paths, side_folder, sync
from .fold import fold
from .stream import Hdf5Stream
from .tree import (
    Declared,
    append_document,
    begin_file,
    checksum_tables,
    records_per_chunk,
)


@dataclass(frozen=True)
class Target:
    """Where a recording goes.

    Parameters
    ----------
    path : Path
        The run's file.
    first : Path
        File of the arrays that are declared before the first record: the run's own, or one
        beside it if the run is resumed.
    lock : Lock
        The run's lock, held.
    closed_streams : frozenset of str
        Streams of earlier recordings.
    attributes : dict
        Facts for people, on the root.
    """

    path: Path
    first: Path
    lock: Lock
    closed_streams: frozenset[str]
    attributes: dict[str, Any]


class Hdf5Writer:
    """Writes a store; what is declared before the first record goes into one file.

    libhdf5 shares a file with readers once all objects are made. So arrays that are declared
    later go into a further file beside, and closing brings all together.

    Parameters
    ----------
    target : Target
        Where it goes.
    compression : {"zstd", "none"}
        Codec of the block arrays.
    fsync : {"never", "seal"} or float
        When data are forced to the disk.
    """

    def __init__(self, target: Target, *, compression: Compression, fsync: Fsync) -> None:
        self._target = target
        self._compression = compression
        self._codec = ChunkCodec(compression)
        self._durable = fsync != "never"
        self._sync_seconds = None if isinstance(fsync, str) else float(fsync)
        self._synced = time.monotonic()
        self._files: dict[Path, h5py.File] = {}
        self._declared: list[tuple[str, ArraySpec]] = []
        self._streams: dict[str, Hdf5Stream] = {}
        self._document: Document = {}

    def describe(self, document: Document) -> None:
        """Replace the metadata document."""
        self._document = document
        if self._files:
            append_document(self._files[self._target.first], document)
            self._flush()
        else:
            self._begin(self._target.first, [], state="closed")

    def declare(self, stream: str, arrays: list[ArraySpec], document: Document) -> None:
        """Declare arrays in a stream; they are made with the next record."""
        if stream in self._target.closed_streams:
            raise ValueError(
                f"the stream {stream!r} was closed by an earlier recording: give the new one "
                "another name"
            )
        self._declared += [(stream, spec) for spec in arrays]
        self._document = document

    def append(self, stream: str, records: list[Record]) -> None:
        """Commit records to the end of a stream."""
        if self._declared:
            self._make_declared()
        target = self._streams[stream]
        while records:
            if target.is_due:  # a seal that failed is done again
                self._seal(target)
            room = target.records - target.length % target.records
            self._commit(target, records[:room])
            records = records[room:]
            if target.is_due:
                self._seal(target)
        self._sync_by_time()

    def close(self, document: Document) -> None:
        """Bring everything into one file; the folder beside it is gone afterwards."""
        if self._declared:
            self._make_declared()
        for stream in self._streams.values():
            stream.log.close()
        for file in self._files.values():
            close_quietly(file)
        fold(self._target.path, document)
        self._target.lock.release()
        side_folder(self._target.path).rmdir()

    # Creating.
    def _make_declared(self) -> None:
        path = self._next_path()
        streams: dict[str, list[ArraySpec]] = {}
        for name, spec in self._declared:
            streams.setdefault(name, []).append(spec)
        declared = [
            one for name, specs in streams.items() for one in self._with_tables(name, specs)
        ]
        file = self._begin(path, declared, state="shared")
        self._files[path] = file
        for one in declared:
            self._open(one, file)
        self._declared = []
        if path != self._target.first:
            self.describe(self._document)

    def _with_tables(self, name: str, specs: list[ArraySpec]) -> list[Declared]:
        if name in self._streams:
            return [Declared(name, spec, self._streams[name].records) for spec in specs]
        records = records_per_chunk(specs)
        n_blocks = sum(spec.number is not None for spec in specs)
        tables = checksum_tables(specs[0].dims[0], n_blocks)
        return [Declared(name, spec, records) for spec in [*tables, *specs]]

    def _begin(self, path: Path, declared: list[Declared], *, state: Any) -> h5py.File:
        return begin_file(
            path,
            self._target.attributes,
            self._document if path == self._target.first else None,
            declared,
            compression=self._compression,
            state=state,
            durable=self._durable,
        )

    def _open(self, one: Declared, file: h5py.File) -> None:
        if one.stream not in self._streams:
            folder = log_folder(self._target.path, one.stream)
            folder.mkdir(exist_ok=True)
            self._streams[one.stream] = Hdf5Stream(
                file[f"{one.stream}/{CHECKSUMS}"],
                CommitLog(folder),
                records=one.records,
                flush=self._flush,
            )
        if not one.spec.path.startswith(f"{CHECKSUMS}/"):
            dataset = file[f"{one.stream}/{one.spec.path}"]
            self._streams[one.stream].open(dataset, one.spec, self._codec)

    def _next_path(self) -> Path:
        if not self._files:
            return self._target.first
        number = len(segment_paths(self._target.path)) + 1
        return side_folder(self._target.path) / f"{number:04d}.h5"

    # Writing.
    def _commit(self, target: Hdf5Stream, records: list[Record]) -> None:
        nbytes = sum(values.nbytes for record in records for values in record.blocks.values())
        check_room(self._target.path, nbytes)
        target.commit(records)

    def _seal(self, stream: Hdf5Stream) -> None:
        stream.seal(self._sync_files if self._durable else self._flush)

    def _flush(self) -> None:
        for file in self._files.values():
            file.flush()

    def _sync_files(self) -> None:
        self._flush()
        for path in self._files:
            sync(path)

    def _sync_by_time(self) -> None:
        if self._sync_seconds is None or time.monotonic() - self._synced < self._sync_seconds:
            return
        for path in self._files:
            sync(path)  # the data before the log that speaks of them
        for stream in self._streams.values():
            stream.log.sync()
        self._synced = time.monotonic()
