"""Writing a store as Zarr: streaming shards and a commit log."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from outcrop.capture.format import METADATA
from outcrop.capture.store.chunks import ChunkCodec
from outcrop.capture.store.commit_log import CommitLog, Entry
from outcrop.capture.store.files import Lock, OpenFiles, replace_file
from outcrop.capture.store.grids import block_grid, records_per_shard, row_grid
from outcrop.capture.store.model import ArraySpec, Compression, Document, Fsync, Record
from outcrop.capture.store.row_values import packed

from .block_array import BlockArray, Stored
from .metadata_array import append_document, metadata_node
from .nodes import ZARR_JSON, Node, array_node, group_node, node_text, root_text
from .row_array import RowArray

LOCK = ".lock"


@dataclass
class Stream:
    """A stream being written."""

    name: str
    records_per_shard: int
    blocks: dict[int, BlockArray]
    rows: dict[str, RowArray]
    paths: dict[int, str]
    log: CommitLog
    length: int = 0
    sealed: int = 0
    tidy: bool = True
    """Whether all zarr.json and the log are as the last seal leaves them."""


class ZarrWriter:
    """Writes a store into a folder that has just been made.

    Parameters
    ----------
    root : Path
        The folder.
    attributes : dict
        Facts for people, on the root.
    compression : {"zstd", "none"}
        Codec of the block arrays.
    fsync : {"never", "seal"} or float
        When data are forced to the disk.
    """

    def __init__(
        self, root: Path, attributes: dict[str, Any], *, compression: Compression, fsync: Fsync
    ) -> None:
        self._root = root
        self._node = group_node(attributes)
        self._codec = ChunkCodec(compression)
        self._sync_seal = fsync != "never"
        self._sync_seconds = None if isinstance(fsync, str) else float(fsync)
        self._synced = time.monotonic()
        self._files = OpenFiles()
        self._nodes: dict[str, Node] = {}
        self._streams: dict[str, Stream] = {}
        self._document_length = 0
        self._root_is_old = False
        (root / METADATA).mkdir()
        self._lock = Lock(root / METADATA / LOCK)
        self._write_root()

    def describe(self, document: Document) -> None:
        """Replace the metadata document."""
        self._put_document(document)
        self._write_root()

    def declare(self, stream: str, arrays: list[ArraySpec], document: Document) -> None:
        """Create arrays in a stream, and the stream itself at its first call."""
        if stream not in self._streams:
            self._begin_stream(stream, arrays)
        for spec in arrays:
            self._create(self._streams[stream], spec)
        self._put_document(document)
        self._write_root()

    def append(self, stream: str, records: list[Record]) -> None:
        """Commit records to the end of a stream."""
        target = self._streams[stream]
        while records:
            room = target.records_per_shard - target.length % target.records_per_shard
            self._commit(target, records[:room])
            records = records[room:]
            if target.length % target.records_per_shard == 0:
                self._seal(target)
        self._sync_by_time()

    def close(self, document: Document) -> None:
        """Seal all streams; the logs and the lock are gone afterwards."""
        for stream in self._streams.values():
            self._seal(stream)
        self._put_document(document)
        self._write_root()
        for stream in self._streams.values():
            stream.log.remove()
        self._files.close_all()
        self._lock.release()

    # Creating.
    def _begin_stream(self, name: str, arrays: list[ArraySpec]) -> None:
        first = next(spec for spec in arrays if spec.number is None)
        folder = self._root / name / first.path
        folder.mkdir(parents=True)
        self._streams[name] = Stream(name, records_per_shard(arrays), {}, {}, {}, CommitLog(folder))

    def _create(self, stream: Stream, spec: ArraySpec) -> None:
        path = f"{stream.name}/{spec.path}"
        self._create_groups(path)
        folder = self._root / path
        folder.mkdir(parents=True, exist_ok=True)
        if spec.number is None:
            grid, codec = row_grid(spec), ChunkCodec("zstd")
            rows = RowArray(spec, folder, grid=grid, sealed=stream.sealed, length=stream.length)
            rows.seal(stream.sealed, sync=self._sync_seal)
            stream.rows[spec.path] = rows
        else:
            grid, codec = block_grid(spec, stream.records_per_shard), self._codec
            stream.blocks[spec.number] = BlockArray(
                spec, folder, grid=grid, codec=codec, files=self._files
            )
            stream.paths[spec.number] = path
        self._put_node(path, array_node(spec, grid, codec, stream.sealed))

    def _create_groups(self, path: str) -> None:
        parts = path.split("/")[:-1]
        for depth in range(1, len(parts) + 1):
            group = "/".join(parts[:depth])
            if group not in self._nodes:
                (self._root / group).mkdir(exist_ok=True)
                self._put_node(group, group_node())

    def _put_node(self, path: str, node: Node) -> None:
        self._replace(path, node_text(node), sync=False)
        self._nodes[path] = node

    def _put_document(self, document: Document) -> None:
        folder = self._root / METADATA
        self._document_length = append_document(
            folder, self._document_length, document, sync=self._sync_seal
        )
        self._put_node(METADATA, metadata_node(self._document_length))

    def _write_root(self) -> None:
        self._replace("", root_text(self._node, self._nodes), sync=self._sync_seal)
        self._root_is_old = False

    def _replace(self, path: str, text: bytes, *, sync: bool) -> None:
        # What a kill leaves beside a group would make stock readers warn; not inside an array.
        scratch = self._root / METADATA
        replace_file(self._root / path / ZARR_JSON, text, sync=sync, scratch=scratch)

    # Committing.
    def _commit(self, stream: Stream, records: list[Record]) -> None:
        self._grow(stream, records)
        written = [
            self._write_blocks(stream, stream.length + n, record)
            for n, record in enumerate(records)
        ]
        values = [[record.rows.get(path) for path in stream.rows] for record in records]
        stream.log.append(
            [
                Entry(stream.length + n, _block_entries(stored), list(map(packed, row)))
                for n, (stored, row) in enumerate(zip(written, values, strict=True))
            ]
        )
        # Only now: a record that failed half way must not be seen by a later seal.
        for stored, row in zip(written, values, strict=True):
            for number, places in stored.items():
                stream.blocks[number].commit(places)
            for array, value in zip(stream.rows.values(), row, strict=True):
                array.commit(value)
            stream.length += 1

    def _write_blocks(
        self, stream: Stream, record: int, content: Record
    ) -> dict[int, list[Stored]]:
        return {
            number: stream.blocks[number].write(record, values)
            for number, values in content.blocks.items()
        }

    def _grow(self, stream: Stream, records: Iterable[Record]) -> None:
        """Make room first: a reader that sees a record also sees shapes that hold it."""
        for record in records:
            for number, values in record.blocks.items():
                block = stream.blocks[number]
                if values.shape != block.sizes:
                    block.grow(values.shape)
                    self._resize(stream, stream.paths[number], block.sizes)
            for path, value in record.rows.items():
                if value is not None:
                    self._grow_rows(stream, path, np.shape(value))
        if self._root_is_old:
            self._write_root()

    def _grow_rows(self, stream: Stream, path: str, shape: tuple[int, ...]) -> None:
        rows, node = stream.rows[path], f"{stream.name}/{path}"
        rows.grow(shape)
        if self._has_grown(node, rows.sizes):
            rows.seal(stream.sealed, sync=self._sync_seal)
            self._resize(stream, node, rows.sizes)

    def _has_grown(self, path: str, sizes: tuple[int, ...]) -> bool:
        # Asked of the node, not of the array: a growth that failed half way is done again.
        return bool(self._nodes[path]["shape"][1:] != list(sizes))

    def _resize(self, stream: Stream, path: str, sizes: tuple[int, ...]) -> None:
        if self._has_grown(path, sizes):
            self._nodes[path]["shape"] = [stream.sealed, *sizes]
            self._root_is_old = True
            self._put_node(path, self._nodes[path])

    # Sealing.
    def _seal(self, stream: Stream) -> None:
        """Give shards their names, then all arrays their length, then begin a new log."""
        if stream.sealed < stream.length:
            for block in stream.blocks.values():
                block.seal(sync=self._sync_seal)
            for row in stream.rows.values():
                row.seal(stream.length, sync=self._sync_seal)
            stream.sealed, stream.tidy = stream.length, False
        if not stream.tidy:
            self._publish(stream)

    def _publish(self, stream: Stream) -> None:
        own = [f"{stream.name}/{path}" for path in stream.rows] + list(stream.paths.values())
        for path in own:
            self._nodes[path]["shape"][0] = stream.length
        # The root first: it holds the shapes of all arrays, and is replaced in one piece.
        self._write_root()
        for path in own:
            self._put_node(path, self._nodes[path])
        stream.log.restart()
        stream.tidy = True

    def _sync_by_time(self) -> None:
        if self._sync_seconds is None or time.monotonic() - self._synced < self._sync_seconds:
            return
        self._files.sync()  # the data before the log that speaks of them
        for stream in self._streams.values():
            stream.log.sync()
        self._synced = time.monotonic()


def _block_entries(stored: dict[int, list[Stored]]) -> list[list[Any]]:
    return [
        [number, one.offset, one.length, list(one.chunk) if any(one.chunk) else 0]
        for number, places in stored.items()
        for one in places
    ]
