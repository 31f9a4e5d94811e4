"""The metadata document of a Zarr store: an array of bytes that grows by whole chunks."""

from pathlib import Path

import numpy as np
from outcrop.capture.errors import DamagedStore
from outcrop.capture.format import BYTE, METADATA
from outcrop.capture.store.chunks import ChunkCodec
from outcrop.capture.store.document import CHUNK, LONG_NAME, decode_document, encode_document
from outcrop.capture.store.files import replace_file
from outcrop.capture.store.grids import Grid
from outcrop.capture.store.model import ArraySpec, Document

from .nodes import Node, array_node, chunk_key

_GRID = Grid((CHUNK,), (CHUNK,))
_CODEC = ChunkCodec("zstd")


def metadata_node(length: int) -> Node:
    """Make the zarr.json of the document's array."""
    spec = ArraySpec(METADATA, (BYTE,), (), "uint8", 0, attributes={"long_name": LONG_NAME})
    return array_node(spec, _GRID, _CODEC, length)


def append_document(folder: Path, length: int, document: Document, *, sync: bool) -> int:
    """Append a version of the document behind `length` bytes; gives the new length."""
    data = np.frombuffer(encode_document(document), np.uint8)
    for start in range(0, len(data), CHUNK):
        encoded = b"".join(map(bytes, _CODEC.encode(data[start : start + CHUNK])))
        name = chunk_key(((length + start) // CHUNK,))
        replace_file(folder / name, encoded, sync=sync)
    return length + len(data)


def read_document(folder: Path, length: int) -> Document:
    """Read the last version of the document.

    Raises
    ------
    DamagedStore
        If a chunk is missing or fails its checksum, or the document is not JSON.
    """
    lines: list[bytes] = []
    for number in range(length // CHUNK - 1, -1, -1):
        chunk = _read_chunk(folder / chunk_key((number,)))
        if lines and chunk.endswith(b"\n"):
            break
        lines.insert(0, chunk)
    return decode_document(b"".join(lines), repr(str(folder)))


def _read_chunk(path: Path) -> bytes:
    out = np.empty(CHUNK, np.uint8)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise DamagedStore(f"the metadata document lacks its chunk {str(path)!r}") from None
    _CODEC.decode(data, out, str(path))
    return out.tobytes()
