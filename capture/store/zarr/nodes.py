"""The zarr.json of groups and arrays."""

import json
import math
from typing import Any

from outcrop.capture.store.chunks import ChunkCodec
from outcrop.capture.store.grids import Grid
from outcrop.capture.store.model import ArraySpec

ZARR_JSON = "zarr.json"
Node = dict[str, Any]


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


def _json_fill(fill: float) -> float | str:
    return "NaN" if isinstance(fill, float) and math.isnan(fill) else fill
