"""The metadata document as bytes: one line of JSON, padded with blanks to whole chunks.

Each new version is appended; the last one holds. Its first member is the checksum of what
follows. So there is no moment at which it is half written.
"""

import json
import re
from typing import Any

import google_crc32c
from outcrop.capture.errors import DamagedStore

from .model import Document

CHUNK = 16 * 2**10
LONG_NAME = "metadata document, JSON; the last line holds"
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
