"""The metadata document: an array of bytes to which each new version is appended.

A version is one line of JSON, padded with blanks to whole chunks. The last one holds. So the
document has checksums, and there is no moment at which it is half written.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from outcrop.capture.errors import DamagedStore
from outcrop.capture.format import BYTE, METADATA

from .chunks import ChunkCodec
from .files import replace_file
from .model import ArraySpec, Document
from .nodes import Grid, Node, array_node, chunk_key

_CHUNK = 16 * 2**10
_GRID = Grid((_CHUNK,), (_CHUNK,))
_CODEC = ChunkCodec("zstd")


def metadata_node(length: int) -> Node:
    """Make the zarr.json of the document's array."""
    attributes = {"long_name": "metadata document, JSON; the last line holds"}
    spec = ArraySpec(METADATA, (BYTE,), (), "uint8", 0, attributes=attributes)
    return array_node(spec, _GRID, _CODEC, length)


def append_document(folder: Path, length: int, document: Document, *, sync: bool) -> int:
    """Append a version of the document behind `length` bytes; gives the new length."""
    line = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    padding = -(len(line) + 1) % _CHUNK
    data = np.frombuffer(line + b" " * padding + b"\n", np.uint8)
    for start in range(0, len(data), _CHUNK):
        encoded = b"".join(map(bytes, _CODEC.encode(data[start : start + _CHUNK])))
        name = chunk_key(((length + start) // _CHUNK,))
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
    for number in range(length // _CHUNK - 1, -1, -1):
        chunk = _read_chunk(folder / chunk_key((number,)))
        if lines and chunk.endswith(b"\n"):
            break
        lines.insert(0, chunk)
    try:
        document: Any = json.loads(b"".join(lines))
    except ValueError as error:
        raise DamagedStore(f"the metadata document in {str(folder)!r} is not JSON") from error
    return dict(document)


def _read_chunk(path: Path) -> bytes:
    out = np.empty(_CHUNK, np.uint8)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise DamagedStore(f"the metadata document lacks its chunk {str(path)!r}") from None
    _CODEC.decode(data, out, str(path))
    return out.tobytes()
