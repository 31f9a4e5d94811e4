"""Encoded chunks: bytes, zstd, crc32c; and the index of a shard."""

from dataclasses import dataclass
from typing import Any

import google_crc32c
import numpy as np
from numcodecs import Zstd
from numpy.typing import NDArray
from outcrop.capture.errors import DamagedStore

from .model import Compression

_CRC_BYTES = 4
# Level -1 passes over what does not shrink, as most floats do not, nine times faster than
# level 1, and makes the rest 5 % larger: the time belongs to the training.
_LEVEL = -1
MISSING = 2**64 - 1
"""Offset and length, in a shard's index, of a chunk that is not there."""


def checksum(data: bytes | NDArray[np.uint8]) -> bytes:
    """Give the crc32c of some bytes as it is stored."""
    return google_crc32c.value(data).to_bytes(_CRC_BYTES, "little")  # type: ignore[no-any-return]


@dataclass(frozen=True)
class ChunkCodec:
    """Encodes chunks of one kind.

    Parameters
    ----------
    compression : {"zstd", "none"}
        What is done to the bytes before the checksum.
    """

    compression: Compression

    def metadata(self) -> list[dict[str, Any]]:
        """Describe the codec as zarr.json does."""
        zstd = {"name": "zstd", "configuration": {"level": _LEVEL, "checksum": False}}
        return [
            {"name": "bytes", "configuration": {"endian": "little"}},
            *([zstd] if self.compression == "zstd" else []),
            {"name": "crc32c"},
        ]

    @classmethod
    def of_metadata(cls, codecs: list[dict[str, Any]]) -> "ChunkCodec":
        """Find the codec that zarr.json describes."""
        return cls("zstd" if any(codec["name"] == "zstd" for codec in codecs) else "none")

    def encode(self, chunk: NDArray[Any]) -> list[Any]:
        """Encode a chunk into pieces to be written one after the other."""
        data = self.compressed(chunk)
        return [data, checksum(data)]

    def compressed(self, chunk: NDArray[Any]) -> Any:
        """Encode a chunk without its checksum."""
        data: Any = np.ascontiguousarray(chunk).reshape(-1).view(np.uint8)
        return Zstd(level=_LEVEL).encode(data) if self.compression == "zstd" else data

    def decode(self, data: bytes | memoryview, out: NDArray[Any], place: str) -> None:
        """Decode a chunk into `out`, which is contiguous.

        Raises
        ------
        DamagedStore
            If the checksum or the length is wrong; `place` says of what.
        """
        payload, stored = np.frombuffer(data[:-_CRC_BYTES], np.uint8), bytes(data[-_CRC_BYTES:])
        if len(data) < _CRC_BYTES or checksum(payload) != stored:
            raise DamagedStore(f"{place} fails its checksum: the store is damaged there")
        if self.compression == "zstd":
            Zstd(level=_LEVEL).decode(payload, out=out)
        elif len(payload) == out.nbytes:
            out.reshape(-1).view(np.uint8)[:] = payload
        else:
            raise DamagedStore(f"{place} has {len(payload)} bytes; {out.nbytes} were expected")


def encode_index(index: NDArray[np.uint64]) -> bytes:
    """Encode the index of a shard: (chunk, offset and length)."""
    data = index.astype("<u8").tobytes()
    return data + checksum(data)


def index_bytes(n_chunks: int) -> int:
    """Count the bytes of the index of a shard of so many chunks."""
    return 16 * n_chunks + _CRC_BYTES


def decode_index(data: bytes, place: str) -> NDArray[np.uint64]:
    """Decode the index of a shard.

    Raises
    ------
    DamagedStore
        If its checksum is wrong.
    """
    payload, stored = data[:-_CRC_BYTES], data[-_CRC_BYTES:]
    if checksum(payload) != stored:
        raise DamagedStore(f"the index of {place} fails its checksum: the store is damaged there")
    return np.frombuffer(payload, "<u8").reshape(-1, 2).astype(np.uint64)
