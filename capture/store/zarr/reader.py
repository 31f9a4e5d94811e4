"""Reading a Zarr store: what is sealed, and what the commit log adds."""

import json
from collections import defaultdict
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from outcrop.capture.errors import DamagedStore, FormatError
from outcrop.capture.format import METADATA, NAME, VALUES, is_readable, version_text
from outcrop.capture.store.commit_log import Entry, read_log
from outcrop.capture.store.cutting import paste, put_row
from outcrop.capture.store.files import is_locked
from outcrop.capture.store.lazy_rows import LazyRows
from outcrop.capture.store.model import ArraySpec, Document
from outcrop.capture.store.row_values import unpacked

from .block_reader import Pending, ZarrBlockReader
from .metadata_array import read_document
from .nodes import ZARR_JSON, Node, chunk_key, codec_of, grid_of, spec_of
from .writer import LOCK

_TRIES = 20


class ZarrReader:
    """A snapshot of a store: the records that are committed when it is made.

    Parameters
    ----------
    root : Path
        The store's folder.

    Raises
    ------
    FileNotFoundError
        If there is nothing.
    FormatError
        If it is not a store of ours, or of another version.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        for _ in range(_TRIES):
            text = _read_root(root)
            try:
                self._take(text)
            except DamagedStore:
                if _read_root(root) == text:
                    raise
            else:
                if _read_root(root) == text:
                    return
            # A seal came between the shapes and the log: look again.
        raise FormatError(f"{str(root)!r} changes faster than it can be read; try again")

    @property
    def state(self) -> str:
        """``"closed"``, ``"recording"`` or ``"interrupted"``."""
        if self.document.get("closed"):
            return "closed"
        return "recording" if is_locked(self._root / METADATA / LOCK) else "interrupted"

    def length(self, stream: str) -> int:
        """Count the committed records of a stream."""
        if stream not in self._stream_names:
            return 0
        return self._sealed(stream) + len(self._entries[stream])

    def spec(self, stream: str, path: str) -> ArraySpec:
        """Describe an array; its shape is that of one record."""
        return spec_of(path, self._nodes[f"{stream}/{path}"], None)

    def rows(self, stream: str) -> LazyRows:
        """Give all arrays of rows of a stream, by path, read when they are used."""
        paths: list[str] = self.document["streams"][stream]["rows"]
        numbers = {path: n for n, path in enumerate(paths)}
        return LazyRows(paths, lambda path: self._read_rows(stream, path, numbers[path]))

    def blocks(self, stream: str, number: int) -> ZarrBlockReader:
        """Make the reader of a block array."""
        group = self.document["streams"][stream]["arrays"][number]["group"]
        path = f"{stream}/{group}/{VALUES}"
        node = self._nodes[path]
        spec = spec_of(path, node, number)
        pending: Pending = defaultdict(list)
        for record, offset, length, chunk in self._pending_chunks.get((stream, number), ()):
            coordinates = tuple(chunk) if chunk else (0,) * len(spec.shape)
            pending[record].append((coordinates, offset, length))
        return ZarrBlockReader(
            # Absolute, since other processes may have another working directory.
            folder=(self._root / path).absolute(),
            shape=(self.length(stream), *spec.shape),
            dtype=np.dtype(spec.dtype),
            fill=spec.fill,
            grid=grid_of(node),
            codec=codec_of(node),
            sealed=self._sealed(stream),
            pending=dict(pending),
        )

    @cached_property
    def _pending_chunks(self) -> dict[tuple[str, int], list[tuple[int, int, int, Any]]]:
        """Chunks that the logs tell of, by stream and array number: found in one pass."""
        chunks = defaultdict(list)
        for stream, entries in self._entries.items():
            for entry in entries:
                for number, offset, length, chunk in entry.blocks:
                    chunks[stream, number].append((entry.record, offset, length, chunk))
        return chunks

    # Metadata.
    def _take(self, text: bytes) -> None:
        self._nodes, self.document = self._read_metadata(text)
        self._entries = {name: self._pending(name) for name in self._stream_names}

    def _read_metadata(self, text: bytes) -> tuple[dict[str, Node], Document]:
        root = _parse_root(text, self._root)
        try:
            nodes: dict[str, Node] = root["consolidated_metadata"]["metadata"]
        except (KeyError, TypeError) as error:
            raise DamagedStore(
                f"{str(self._root / ZARR_JSON)!r} lacks the metadata of the run's arrays, "
                "'consolidated_metadata': another program has rewritten it"
            ) from error
        if METADATA not in nodes:  # no record has come yet
            return nodes, {"streams": {}, **root["attributes"]}
        length = nodes[METADATA]["shape"][0]
        return nodes, read_document(self._root / METADATA, length)

    @property
    def _stream_names(self) -> list[str]:
        return list(self.document.get("streams", {}))

    def _sealed(self, stream: str) -> int:
        return int(self._nodes[f"{stream}/{self._first_row(stream)}"]["shape"][0])

    def _first_row(self, stream: str) -> str:
        first: str = self.document["streams"][stream]["rows"][0]
        return first

    def _pending(self, stream: str) -> list[Entry]:
        sealed = self._sealed(stream)
        folder = self._root / stream / self._first_row(stream)
        # Entries of sealed records are left when a kill comes just before the log begins anew.
        entries = [entry for entry in read_log(folder) if entry.record >= sealed]
        expected = list(range(sealed, sealed + len(entries)))
        if [entry.record for entry in entries] != expected:
            raise DamagedStore(
                f"the commit log in {str(folder)!r} does not go on after {sealed} sealed records"
            )
        return entries

    # Rows.
    def _read_rows(self, stream: str, path: str, number: int) -> NDArray[Any]:
        node = self._nodes[f"{stream}/{path}"]
        spec = spec_of(path, node, None)
        sealed = self._sealed(stream)
        shape = (self.length(stream), *spec.shape)
        values = np.full(shape, spec.fill, spec.dtype)
        if sealed:
            self._read_sealed_rows(self._root / stream / path, node, values[:sealed])
        for row, entry in enumerate(self._entries[stream], start=sealed):
            value = unpacked(entry.rows[number]) if number < len(entry.rows) else None
            if value is not None:
                put_row(values, row, np.asarray(value, spec.dtype))
        return values

    def _read_sealed_rows(self, folder: Path, node: Node, values: NDArray[Any]) -> None:
        grid, codec = grid_of(node), codec_of(node)
        counts = [-(-size // part) for size, part in zip(values.shape, grid.outer, strict=True)]
        for chunk in np.ndindex(*counts):
            out = np.empty(grid.outer, values.dtype)
            path = folder / chunk_key(chunk)
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                raise DamagedStore(f"the chunk {str(path)!r} is missing from the store") from None
            codec.decode(data, out, f"the chunk {str(path)!r}")
            paste(out, chunk, values)


def _read_root(root: Path) -> bytes:
    try:
        return (root / ZARR_JSON).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        pass
    if not root.exists():
        raise FileNotFoundError(f"there is no run at {str(root)!r}")
    raise FormatError(
        f"a run's folder has a file {ZARR_JSON}; {str(root)!r} has none: it is not a run, "
        "or was only copied in part"
    )


def _parse_root(text: bytes, root: Path) -> Node:
    try:
        node: Node = json.loads(text)
        attributes = dict(node["attributes"])
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedStore(f"{str(root / ZARR_JSON)!r} is not the zarr.json of a group") from error
    if attributes.get("format") != NAME:
        raise FormatError(
            f"{str(root)!r} is a Zarr group, but not a run: its attribute 'format' is "
            f"{attributes.get('format')!r}, not {NAME!r}"
        )
    if not is_readable(str(attributes.get("version"))):
        raise FormatError(
            f"{str(root)!r} has version {attributes.get('version')!r} of the format; this is a "
            f"reader of version {version_text()!r}: read it with the outcrop that wrote it"
        )
    return node
