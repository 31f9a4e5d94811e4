"""A store as one HDF5 file: creating, resuming and opening."""

import shutil
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from outcrop.capture.format import NAME, version_text
from outcrop.capture.store.files import Lock, is_locked
from outcrop.capture.store.model import Compression, Fsync, Mode, StoreReader, StoreWriter

from .files import LOCK, opened_attributes, side_folder
from .fold import fold
from .reader import Hdf5Reader
from .writer import Hdf5Writer, Target

COMPRESSION: Compression = "none"


def create(path: Path, *, mode: Mode, compression: Compression, fsync: Fsync) -> StoreWriter:
    """Create an empty store; see `create_store`."""
    if path.exists() or path.is_symlink():
        if mode != "w":
            raise FileExistsError(
                f"{str(path)!r} exists; record to another path, or give mode='w' to replace "
                "a run that you no longer need"
            )
        _remove_ours(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    target = Target(path, path, _locked(path), frozenset(), _attributes())
    writer = Hdf5Writer(target, compression=compression, fsync=fsync)
    writer.describe(_attributes() | {"streams": {}})
    return writer


def resume(path: Path, *, mode: Mode, compression: Compression, fsync: Fsync) -> StoreWriter:
    """Seal what a recording has left, and go on in new streams; see `create_store`."""
    del mode
    _refuse_link(path, "resumes")
    document = Hdf5Reader(path).document
    lock = _locked(path)
    fold(path)
    first = side_folder(path) / "0001.h5"
    closed = frozenset(document.get("streams", {}))
    target = Target(path, first, lock, closed, _attributes())
    return Hdf5Writer(target, compression=compression, fsync=fsync)


def read(path: Path) -> StoreReader:
    """Open a store for reading; see `open_store`."""
    return Hdf5Reader(path)


def _attributes() -> dict[str, Any]:
    return {
        "format": NAME,
        "version": version_text(),
        "created": datetime.now(UTC).isoformat(),
        "writer": f"{NAME} {version(NAME)}",
    }


def _locked(path: Path) -> Lock:
    side = side_folder(path)
    side.mkdir(exist_ok=True)
    try:
        return Lock(side / LOCK)
    except BlockingIOError:
        raise FileExistsError(
            f"{str(path)!r} is being recorded by another process; nothing was touched"
        ) from None


def _remove_ours(path: Path) -> None:
    _refuse_link(path, "replaces")
    if not path.is_file() or opened_attributes(path).get("format") != NAME:
        raise FileExistsError(
            f"{str(path)!r} is not a run; mode='w' replaces runs only, nothing was touched"
        )
    if is_locked(side_folder(path) / LOCK):
        raise FileExistsError(
            f"{str(path)!r} is being recorded by another process; nothing was touched"
        )
    path.unlink()
    shutil.rmtree(side_folder(path), ignore_errors=True)


def _refuse_link(path: Path, does: str) -> None:
    if path.is_symlink():
        raise FileExistsError(
            f"{str(path)!r} is a link; outcrop {does} runs only, nothing was touched: "
            f"give the path of the run itself, {str(path.resolve())!r}"
        )
