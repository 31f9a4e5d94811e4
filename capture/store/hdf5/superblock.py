"""The first bytes of an HDF5 file: taking back the mark of a writer that is no more.

A process that is killed leaves the mark that the file is being written, and libhdf5 then
refuses to open it for writing. (`h5clear -s` does the same as `unmarked`.)
"""

import struct

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_VERSION = 3
_FLAGS = 11
_END = slice(28, 36)
_BODY = 44
SIZE = 48
"""Bytes of a superblock of version 3."""

_WORD = 0xFFFFFFFF


def is_hdf5(data: bytes) -> bool:
    """Whether a file begins as HDF5 files do."""
    return data.startswith(_SIGNATURE)


def is_marked(superblock: bytes) -> bool:
    """Whether a writer has left its mark."""
    return superblock[8] == _VERSION and superblock[_FLAGS] != 0


def unmarked(superblock: bytes, size: int) -> bytes:
    """Give the superblock without the mark, of a file that has `size` bytes.

    >>> superblock = bytearray(_SIGNATURE + bytes([3, 8, 8, 5]) + bytes(36))
    >>> clean = unmarked(bytes(superblock), 4096)
    >>> is_marked(clean), int.from_bytes(clean[28:36], "little"), len(clean)
    (False, 4096, 48)
    """
    data = bytearray(superblock[:_BODY])
    data[_FLAGS] = 0
    # What a killed writer added without saying so must not be given away a second time.
    data[_END] = size.to_bytes(8, "little")
    return bytes(data) + lookup3(bytes(data)).to_bytes(4, "little")


def lookup3(data: bytes) -> int:
    """Jenkins's hash, HDF5's checksum of metadata.

    >>> hex(lookup3(b"Four score and seven years ago"))
    '0x17770551'
    """
    a = b = c = (0xDEADBEEF + len(data)) & _WORD
    while len(data) > 12:
        x, y, z = struct.unpack_from("<3I", data)
        a, b, c = _mixed((a + x) & _WORD, (b + y) & _WORD, (c + z) & _WORD)
        data = data[12:]
    if not data:
        return c
    x, y, z = struct.unpack("<3I", data.ljust(12, b"\0"))
    return _final((a + x) & _WORD, (b + y) & _WORD, (c + z) & _WORD)


# Rounds of the hash: each changes one of the words (a, b, c), from another, turned by bits.
_MIX = [(0, 2, 1, 4), (1, 0, 2, 6), (2, 1, 0, 8), (0, 2, 1, 16), (1, 0, 2, 19), (2, 1, 0, 4)]
_FINAL = [(2, 1, 14), (0, 2, 11), (1, 0, 25), (2, 1, 16), (0, 2, 4), (1, 0, 14), (2, 1, 24)]


def _mixed(*words: int) -> tuple[int, ...]:
    state = list(words)
    for changed, by, then, bits in _MIX:
        state[changed] = ((state[changed] - state[by]) & _WORD) ^ _turned(state[by], bits)
        state[by] = (state[by] + state[then]) & _WORD
    return tuple(state)


def _final(*words: int) -> int:
    state = list(words)
    for changed, by, bits in _FINAL:
        state[changed] = ((state[changed] ^ state[by]) - _turned(state[by], bits)) & _WORD
    return state[2]


def _turned(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (32 - bits))) & _WORD
