"""The metadata document: an array of bytes to which each new version is appended.

A version is one line of JSON, padded with blanks to whole chunks. The last one holds; its first
member is the checksum of what follows. So there is no moment at which it is half written.
"""

import json
import re
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from outcrop.capture.errors import DamagedStore
from outcrop.capture.format import BYTE, METADATA

from .chunks import ChunkCodec
from .files import replace_file
from .model import ArraySpec, Document
from .nodes import Grid, Node, array_node, chunk_key

CHUNK = 16 * 2**10
LONG_NAME = "metadata document, JSON; the last line holds"
_GRID = Grid((CHUNK,), (CHUNK,))
_CODEC = ChunkCodec("zstd")
_HEAD = re.compile(rb'\{"checksum":"([0-9a-f]{8})",')


def encode_document(document: Document) -> bytes:
    """Make a version of the document: whole chunks that end with a newline."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()[1:]
    line = b'{"checksum":"%08x",%s' % (google_crc32c.value(text), text)
    return line + b" " * (-(len(line) + 1) % CHUNK) + b"\n"


def decode_document(data: bytes, place: str) -> Document:
    """Read the last version of the document.

    Raises
    ------
    DamagedStore
        If it fails its checksum; `place` says where it lies.
    """
    line = data.rstrip(b"\0\n").rpartition(b"\n")[2].rstrip(b" ")
    head = _HEAD.match(line)
    if head is None:
        raise DamagedStore(f"{place} has no metadata document that begins with its checksum")
    text = line[head.end() :]
    if google_crc32c.value(text) != int(head[1], 16):
        raise DamagedStore(f"the metadata document in {place} fails its checksum")
    document: dict[str, Any] = json.loads(b"{" + text)
    return document


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
