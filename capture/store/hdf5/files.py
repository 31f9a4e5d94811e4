"""HDF5 files as the store uses them: opening, creating arrays, whole chunks."""

import errno
import os
import resource
import shutil
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray
from outcrop.capture.errors import DamagedStore
from outcrop.capture.store.chunks import ChunkCodec
from outcrop.capture.store.grids import Grid
from outcrop.capture.store.model import ArraySpec

from .journal import Pages, Patched
from .scales import DIMENSION_NAMES
from .superblock import SIZE, is_hdf5, is_marked

VERSIONS = ("v110", "v110")
"""The oldest libhdf5 with SWMR reads them, and all metadata have checksums."""

_SIDE = ".d"
LOCK = "lock"
"""File beside the run's that is locked while it is written."""

_JOURNAL = "journal"
_ZSTD, _DEFLATE = 32015, 1
_SPARE_BYTES = 2**20


def side_folder(path: Path) -> Path:
    """Where a run keeps what is not in its file yet.

    >>> str(side_folder(Path("runs/run.h5")))
    'runs/run.h5.d'
    """
    return path.with_name(path.name + _SIDE)


def journal_of(path: Path) -> Path:
    """Where the journal of a change lies."""
    return side_folder(path) / _JOURNAL


def segment_paths(path: Path) -> list[Path]:
    """Find the further files of a run, in the order in which they were made."""
    return sorted(side_folder(path).glob("[0-9]*.h5"))


def log_folder(path: Path, stream: str) -> Path:
    """Where the commit log of a stream lies."""
    return side_folder(path) / stream


def close_quietly(file: h5py.File) -> None:
    """Close a file; what libhdf5 can no longer write was never committed."""
    with suppress(OSError, RuntimeError, ValueError):
        file.close()


def open_for_reading(path: Path, pages: Pages | None = None) -> h5py.File:
    """Open a file that was closed, is being written, or was left by a killed process.

    Parameters
    ----------
    path : Path
        The file.
    pages : dict or None
        Pages of a journal that hold instead of those of the file.

    Raises
    ------
    DamagedStore
        If it is no HDF5 file, or libhdf5 cannot read its structure.
    """
    if pages:
        return h5py.File(Patched(path, pages), "r")
    superblock = _superblock(path)
    if not is_hdf5(superblock):
        raise DamagedStore(f"{str(path)!r} does not begin as an HDF5 file does")
    # A file that is shared is never locked; of one that is closed, other libraries are the judge.
    shared: dict[str, Any] = {"swmr": True, "libver": VERSIONS, "locking": False}
    try:
        return h5py.File(path, "r", **(shared if is_marked(superblock) else {}))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DamagedStore(f"{str(path)!r} cannot be opened as HDF5: {error}") from error


def opened_attributes(path: Path) -> dict[str, Any]:
    """Read the attributes of a file's root; none if it is no HDF5 file."""
    try:
        with open_for_reading(path) as file:
            return {name: as_json(value) for name, value in file.attrs.items()}
    except (DamagedStore, OSError, RuntimeError):
        return {}


def as_json(value: Any) -> Any:
    """Give the value of an attribute as a JSON value."""
    if isinstance(value, bytes):
        return value.decode()
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _superblock(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(SIZE)


def create_array(
    file: h5py.File,
    path: str,
    spec: ArraySpec,
    *,
    grid: Grid,
    filters: str,
) -> None:
    """Create a chunked dataset that can grow along all dimensions.

    Parameters
    ----------
    file : h5py.File
        Where.
    path : str
        Its path; groups are made as needed.
    spec : ArraySpec
        What it is.
    grid : Grid
        How it is cut.
    filters : {"none", "deflate", "zstd"}
        How its chunks are encoded.
    """
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_chunk(grid.inner)
    properties.set_obj_track_times(False)
    dtype = np.dtype(spec.dtype).newbyteorder("<")
    properties.set_fill_value(np.array(spec.fill, dtype))
    if filters == "deflate":
        properties.set_deflate(1)
    elif filters == "zstd":
        # Optional: else it could be created only where the plugin for reading is installed.
        properties.set_filter(_ZSTD, h5py.h5z.FLAG_OPTIONAL, (1,))
    shape = (0, *spec.shape)
    space = h5py.h5s.create_simple(shape, (h5py.h5s.UNLIMITED,) * len(shape))
    links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    kind = h5py.h5t.py_create(dtype)
    h5py.h5d.create(file.id, path.encode(), kind, space, properties, links)
    set_attributes(file[path], spec.attributes)
    set_attributes(file[path], {DIMENSION_NAMES: " ".join(spec.dims)})


def set_attributes(target: Any, attributes: Mapping[str, Any]) -> None:
    """Set attributes, strings with a fixed length: others lie where no checksum covers them."""
    for name, value in attributes.items():
        if isinstance(value, str):
            data = value.encode()
            kind = h5py.string_dtype("utf-8", max(len(data), 1))
            target.attrs.create(name, data, dtype=kind)
        else:
            target.attrs[name] = value


def filters_of(dataset: h5py.Dataset) -> str:
    """Say how the chunks of a dataset are encoded."""
    properties = dataset.id.get_create_plist()
    found = {properties.get_filter(n)[0] for n in range(properties.get_nfilters())}
    return "zstd" if _ZSTD in found else "deflate" if _DEFLATE in found else "none"


def deflated(values: NDArray[Any]) -> bytes:
    """Encode a chunk of an array of rows."""
    return zlib.compress(values.tobytes(), 1)


def codec_of(dataset: h5py.Dataset) -> ChunkCodec:
    """Give the codec of a block array's chunks."""
    return ChunkCodec("zstd" if filters_of(dataset) == "zstd" else "none")


def chunk_place(dataset: h5py.Dataset, chunk: Iterable[int]) -> tuple[int, int] | None:
    """Find a chunk in the file: offset and length; None if it was never written."""
    origin = tuple(c * size for c, size in zip(chunk, dataset.chunks, strict=True))
    return place_at(dataset.id, origin, dataset.shape)


def place_at(
    dataset: h5py.h5d.DatasetID, origin: tuple[int, ...], shape: tuple[int, ...]
) -> tuple[int, int] | None:
    """Find the chunk that begins at `origin`; see `chunk_place`."""
    if any(o >= size for o, size in zip(origin, shape, strict=True)):
        return None
    info = dataset.get_chunk_info_by_coord(origin)
    return None if info.byte_offset is None else (int(info.byte_offset), int(info.size))


@contextmanager
def naming(place: str) -> Iterator[None]:
    """Let what libhdf5 says of damage name the place.

    Raises
    ------
    DamagedStore
        Instead of what came.
    """
    try:
        yield
    except DamagedStore:
        raise
    except (OSError, RuntimeError, KeyError, ValueError, zlib.error) as error:
        raise DamagedStore(f"{place} cannot be read: {error}") from error


def check_room(path: Path, nbytes: int) -> None:
    """Make sure that so many bytes can be added, before libhdf5 fails at it half way.

    Raises
    ------
    OSError
        If the disk, or the largest size of a file, leaves no room.
    """
    needed = nbytes + nbytes // 20 + _SPARE_BYTES
    free = shutil.disk_usage(path.parent).free
    if free < needed:
        raise OSError(
            errno.ENOSPC, f"a record needs {needed} bytes and the disk has {free} left", str(path)
        )
    largest = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if largest != resource.RLIM_INFINITY and path.stat().st_size + needed > largest:
        raise OSError(errno.EFBIG, f"files may not be larger than {largest} bytes", str(path))


def sync(path: Path) -> None:
    """Force a file, or the names in a folder, to the disk."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
