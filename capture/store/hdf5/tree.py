"""Making an HDF5 file of a run: its groups, arrays and document."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import h5py
from outcrop.capture.errors import DamagedStore
from outcrop.capture.format import ARRAY, BYTE, CHECKSUMS, COLUMN, METADATA, ROWS, SEAL, VALUES
from outcrop.capture.store.document import CHUNK, LONG_NAME, decode_document, encode_document
from outcrop.capture.store.grids import ARRAY_CHUNK, Grid, block_grid, records_per_shard, row_grid
from outcrop.capture.store.model import ArraySpec, Compression, Document

from .files import VERSIONS, create_array, set_attributes, sync

State: TypeAlias = Literal["closed", "shared"]


class Declared(NamedTuple):
    """An array of a stream, with the number of records in a chunk of the stream's rows."""

    stream: str
    spec: ArraySpec
    records: int


def records_per_chunk(specs: list[ArraySpec]) -> int:
    """Choose how many records a chunk of a stream's rows holds; so many are sealed together."""
    return min(
        records_per_shard(specs),
        *(row_grid(spec).inner[0] for spec in specs if spec.number is None),
    )


def checksum_tables(dimension: str, n_arrays: int) -> list[ArraySpec]:
    """Describe the tables of checksums of a stream: of its block arrays, and of its rows."""
    return [
        ArraySpec(
            f"{CHECKSUMS}/{VALUES}",
            (dimension, ARRAY),
            (n_arrays,),
            "uint32",
            0,
            attributes={"long_name": "crc32c of the chunks of each record; 0 if there are none"},
        ),
        ArraySpec(
            f"{CHECKSUMS}/{ROWS}",
            (SEAL, COLUMN),
            (0,),
            "uint32",
            0,
            attributes={"long_name": "crc32c of each chunk of each array of rows"},
        ),
    ]


def begin_file(
    path: Path,
    attributes: Mapping[str, Any],
    document: Document | None,
    declared: Iterable[Declared],
    *,
    compression: Compression,
    state: State,
    durable: bool,
) -> h5py.File:
    """Make a file with some arrays; it has its name only when all of them are there.

    Parameters
    ----------
    path : Path
        Where.
    attributes : mapping
        Facts for people, on the root.
    document : dict or None
        The metadata document, if this file is to hold it.
    declared : iterable of Declared
        The arrays.
    compression : {"zstd", "none"}
        Codec of the block arrays.
    state : {"closed", "shared"}
        Whether the file is closed, or begins to be shared with readers.
    durable : bool
        Whether the file is forced to the disk.

    Returns
    -------
    h5py.File
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    file = h5py.File(temporary, "w", libver=VERSIONS, locking=False)
    try:
        set_attributes(file, attributes)
        if document is not None:
            _create_document(file, document)
        create_arrays(file, declared, compression=compression)
        if state == "shared":
            file.swmr_mode = True
            file.flush()
        else:
            file.close()
        if durable:
            sync(temporary)
        temporary.replace(path)
        if durable:
            sync(path.parent)
    except BaseException:
        file.close()
        temporary.unlink(missing_ok=True)
        raise
    return file


def create_arrays(
    file: h5py.File, declared: Iterable[Declared], *, compression: Compression
) -> None:
    """Create arrays. Their dimensions have names when all arrays are in one file."""
    for stream, spec, records in declared:
        grid = _grid(spec, records)
        filters = "deflate" if spec.number is None else compression
        create_array(file, f"{stream}/{spec.path}", spec, grid=grid, filters=filters)


def append_document(file: h5py.File, document: Document) -> None:
    """Append a version of the metadata document."""
    data = encode_document(document)
    array = file[METADATA]
    start = array.shape[0]
    array.resize((start + len(data),))
    for offset in range(0, len(data), CHUNK):
        array.id.write_direct_chunk((start + offset,), data[offset : offset + CHUNK])


def document_of(file: h5py.File, place: str) -> Document:
    """Read the last version of the metadata document.

    Raises
    ------
    DamagedStore
        If there is none, or it fails its checksum.
    """
    try:
        return decode_document(file[METADATA][()].tobytes(), place)
    except (KeyError, OSError) as error:
        raise DamagedStore(f"{place} has no readable metadata document: {error}") from error


def _create_document(file: h5py.File, document: Document) -> None:
    spec = ArraySpec(METADATA, (BYTE,), (), "uint8", 0, attributes={"long_name": LONG_NAME})
    create_array(file, METADATA, spec, grid=Grid((CHUNK,), (CHUNK,)), filters="none")
    append_document(file, document)


def _grid(spec: ArraySpec, records: int) -> Grid:
    if spec.dims[0] == SEAL:
        return Grid((1, ARRAY_CHUNK), (1, ARRAY_CHUNK))
    if spec.number is not None:
        return block_grid(spec, 1)
    inner = (records, *row_grid(spec).inner[1:])
    return Grid(inner, inner)
