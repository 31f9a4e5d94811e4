"""The physical forms of a store, chosen by the suffix of its path."""

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import get_args

from .model import (
    ArraySpec,
    BlockReader,
    Compression,
    Document,
    Fsync,
    Mode,
    Record,
    StoreReader,
    StoreWriter,
)

__all__ = [
    "STORES",
    "ArraySpec",
    "BlockReader",
    "Compression",
    "Document",
    "Fsync",
    "Mode",
    "Record",
    "StoreReader",
    "StoreWriter",
    "create_store",
    "open_store",
]

STORES = {".zarr": "zarr", ".h5": "hdf5"}
"""The module of each form, by suffix. A module has `create`, `resume`, `read`, `findings` and
`COMPRESSION`, the codec that it takes by itself."""


def create_store(
    path: Path,
    *,
    mode: Mode = "x",
    compression: Compression | None = None,
    fsync: Fsync = "seal",
) -> StoreWriter:
    """Create an empty store.

    Parameters
    ----------
    path : Path
        A path whose suffix names the form.
    mode : {"x", "a", "w"}
        ``"x"`` refuses a path that exists; ``"a"`` seals what a store of ours holds and goes
        on in new streams, or begins one; ``"w"`` replaces a store of ours, nothing else.
    compression : {"zstd", "none"} or None
        Codec of the large arrays. Every chunk has a checksum in both cases. None takes the
        form's own: ``"zstd"`` for Zarr, ``"none"`` for HDF5, where other programs need a plugin
        to read it.
    fsync : {"never", "seal"} or float
        When data are forced to the disk: never, when a shard is sealed, or at least every so
        many seconds.

    Returns
    -------
    StoreWriter

    Raises
    ------
    FileExistsError
        If `path` exists and may not be replaced.
    ValueError
        If no form has this suffix, or an option is not one of its words.
    """
    _check_word(mode, get_args(Mode), name="mode")
    form = _form(path)
    compression = form.COMPRESSION if compression is None else compression
    _check_word(compression, get_args(Compression), name="compression")
    _check_fsync(fsync)
    begin = form.resume if mode == "a" and path.exists() else form.create
    writer: StoreWriter = begin(path, mode=mode, compression=compression, fsync=fsync)
    return writer


def open_store(path: Path) -> StoreReader:
    """Open a store for reading: closed, live or left by a killed process.

    Raises
    ------
    FileNotFoundError
        If there is nothing at `path`.
    FormatError
        If what is there is not a store, or one of another version.
    ValueError
        If no form has this suffix.
    """
    reader: StoreReader = _form(path).read(path)
    return reader


def _check_word(value: object, words: tuple[str, ...], *, name: str) -> None:
    if value not in words:
        raise ValueError(f"{name}= is one of {', '.join(map(repr, words))}; got {value!r}")


def _check_fsync(fsync: object) -> None:
    if fsync in ("never", "seal") or (isinstance(fsync, int | float) and fsync >= 0):
        return
    raise ValueError(f"fsync= is 'never', 'seal' or a number of seconds; got {fsync!r}")


def _form(path: Path) -> ModuleType:
    try:
        name = STORES[path.suffix]  # the lookup alone: a KeyError inside a store is not caught
    except KeyError:
        raise ValueError(
            f"no store is named by the suffix {path.suffix!r} of {str(path)!r}; "
            f"use one of {', '.join(STORES)}"
        ) from None
    return import_module(f".{name}", __name__)
