"""The zarr.json of groups and arrays, and how arrays are cut into chunks."""

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .chunks import ChunkCodec
from .model import ArraySpec

ZARR_JSON = "zarr.json"
INNER_BYTES = 8 * 2**20
ROW_CHUNK_BYTES = 4 * 2**20
ROW_CHUNK = 1024
ARRAY_CHUNK = 256
SHARD_BYTES = 256 * 2**20
LEAST_RECORDS, MOST_RECORDS = 16, 1024
ROWS_ONLY_RECORDS = 16_384

Node = dict[str, Any]


@dataclass(frozen=True)
class Grid:
    """How an array is cut: inner chunks of one record, and shards of them.

    Parameters
    ----------
    inner : tuple of int
        Shape of a chunk.
    outer : tuple of int
        Shape of a shard, a multiple of `inner`; the same as `inner` if there are no shards.
    """

    inner: tuple[int, ...]
    outer: tuple[int, ...]

    @property
    def per_shard(self) -> tuple[int, ...]:
        """Chunks in a shard, along each dimension."""
        return tuple(o // i for o, i in zip(self.outer, self.inner, strict=True))

    def cover(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """Count the chunks that cover so many items along each dimension after the first."""
        return tuple(math.ceil(s / i) for s, i in zip(sizes, self.inner[1:], strict=True))


def block_grid(spec: ArraySpec, records: int) -> Grid:
    """Cut a block array: one record a chunk, split along its longest axis if it is huge."""
    sizes = [max(size, 1) for size in spec.shape]
    inner = list(sizes)
    parts = math.ceil(math.prod(sizes) * _itemsize(spec) / INNER_BYTES)
    if parts > 1:
        axis = max(range(len(sizes)), key=sizes.__getitem__)
        inner[axis] = math.ceil(sizes[axis] / parts)
    outer = [math.ceil(s / i) * i for s, i in zip(sizes, inner, strict=True)]
    return Grid((1, *inner), (records, *outer))


def row_grid(spec: ArraySpec) -> Grid:
    """Cut an array of rows: many records a chunk, in columns of 256 along `array`."""
    sizes = [
        ARRAY_CHUNK if dim == "array" else max(size, 1)
        for dim, size in zip(spec.dims[1:], spec.shape, strict=True)
    ]
    fitting = ROW_CHUNK_BYTES // (math.prod(sizes) * _itemsize(spec))
    records = min(ROW_CHUNK, 2 ** max(int(fitting).bit_length() - 1, 0))
    return Grid((records, *sizes), (records, *sizes))


def records_per_shard(specs: list[ArraySpec]) -> int:
    """Choose how many records a stream's shards hold: a power of two."""
    sizes = [math.prod(s.shape) * _itemsize(s) for s in specs if s.number is not None]
    if not sizes and specs[0].dims[0] != "step":
        return ROWS_ONLY_RECORDS
    fitting = SHARD_BYTES // max(*sizes, 1) if sizes else MOST_RECORDS
    records: int = min(max(fitting, LEAST_RECORDS), MOST_RECORDS)
    return 1 << (records.bit_length() - 1)


def group_node(attributes: dict[str, Any] | None = None) -> Node:
    """Make the zarr.json of a group."""
    return {"zarr_format": 3, "node_type": "group", "attributes": attributes or {}}


def array_node(spec: ArraySpec, grid: Grid, codec: ChunkCodec, length: int) -> Node:
    """Make the zarr.json of an array."""
    sharded = {
        "name": "sharding_indexed",
        "configuration": {
            "chunk_shape": list(grid.inner),
            "codecs": codec.metadata(),
            "index_codecs": ChunkCodec("none").metadata(),
            "index_location": "end",
        },
    }
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [length, *spec.shape],
        "data_type": spec.dtype,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(grid.outer)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
        "fill_value": _json_fill(spec.fill),
        "codecs": codec.metadata() if spec.number is None else [sharded],
        "attributes": dict(spec.attributes),
        "dimension_names": list(spec.dims),
        "storage_transformers": [],
    }


def grid_of(node: Node) -> Grid:
    """Read how an array is cut from its zarr.json."""
    outer = tuple(node["chunk_grid"]["configuration"]["chunk_shape"])
    first = node["codecs"][0]
    sharded = first["name"] == "sharding_indexed"
    return Grid(tuple(first["configuration"]["chunk_shape"]) if sharded else outer, outer)


def codec_of(node: Node) -> ChunkCodec:
    """Read the codec of an array's chunks from its zarr.json."""
    first = node["codecs"][0]
    sharded = first["name"] == "sharding_indexed"
    return ChunkCodec.of_metadata(first["configuration"]["codecs"] if sharded else node["codecs"])


def spec_of(path: str, node: Node, number: int | None) -> ArraySpec:
    """Read what an array is from its zarr.json."""
    return ArraySpec(
        path=path,
        dims=tuple(node["dimension_names"]),
        shape=tuple(node["shape"][1:]),
        dtype=node["data_type"],
        fill=float("nan") if node["fill_value"] == "NaN" else node["fill_value"],
        number=number,
        attributes=node["attributes"],
    )


def root_text(root: Node, nodes: dict[str, Node]) -> bytes:
    """Make the root's zarr.json, with the metadata of all nodes inside."""
    # In order: zarr-python loses nodes whose siblings do not stand together.
    ordered = dict(sorted(nodes.items()))
    consolidated = {"kind": "inline", "must_understand": False, "metadata": ordered}
    return node_text(root | {"consolidated_metadata": consolidated})


def node_text(node: Node) -> bytes:
    """Make the bytes of a zarr.json."""
    return json.dumps(node, separators=(",", ":")).encode()


def chunk_key(coordinates: tuple[int, ...]) -> str:
    """Name the file of a chunk.

    >>> chunk_key((3, 0, 0))
    'c.3.0.0'
    """
    return "c" + "".join(f".{one}" for one in coordinates)


def _itemsize(spec: ArraySpec) -> int:
    return int(np.dtype(spec.dtype).itemsize)


def _json_fill(fill: float) -> float | str:
    return "NaN" if isinstance(fill, float) and math.isnan(fill) else fill
