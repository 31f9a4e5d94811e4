"""A store as a folder of Zarr v3 arrays: creating and opening."""

import json
import shutil
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from outcrop.capture.format import METADATA, NAME, version_text
from outcrop.capture.store.files import is_locked
from outcrop.capture.store.model import Compression, Fsync, Mode, StoreReader, StoreWriter

from .nodes import ZARR_JSON
from .reader import ZarrReader
from .writer import LOCK, ZarrWriter

COMPRESSION: Compression = "zstd"


def create(path: Path, *, mode: Mode, compression: Compression, fsync: Fsync) -> StoreWriter:
    """Create an empty store; see `create_store`."""
    if path.exists() or path.is_symlink():
        if mode != "w":
            raise FileExistsError(
                f"{str(path)!r} exists; record to another path, or give mode='w' to replace "
                "a run that you no longer need"
            )
        _remove_ours(path)
    path.mkdir(parents=True)
    attributes = {
        "format": NAME,
        "version": version_text(),
        "created": datetime.now(UTC).isoformat(),
        "writer": {"name": NAME, "version": version(NAME)},
    }
    return ZarrWriter(path, attributes, compression=compression, fsync=fsync)


def read(path: Path) -> StoreReader:
    """Open a store for reading; see `open_store`."""
    return ZarrReader(path)


def _remove_ours(path: Path) -> None:
    if path.is_symlink():
        raise FileExistsError(
            f"{str(path)!r} is a link; mode='w' replaces runs only, nothing was touched: "
            f"give the path of the run itself, {str(path.resolve())!r}"
        )
    if not _is_ours(path):
        raise FileExistsError(
            f"{str(path)!r} is not a run; mode='w' replaces runs only, nothing was touched"
        )
    if is_locked(path / METADATA / LOCK):
        raise FileExistsError(
            f"{str(path)!r} is being recorded by another process; nothing was touched"
        )
    shutil.rmtree(path)


def _is_ours(path: Path) -> bool:
    try:
        node = json.loads((path / ZARR_JSON).read_bytes())
        return bool(node["attributes"]["format"] == NAME)
    except (OSError, ValueError, KeyError, TypeError):
        return False
