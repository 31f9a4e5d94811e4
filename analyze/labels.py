"""What goes with the values of an array: coordinates, attributes, names."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from outcrop.capture import format as names
from outcrop.capture.format import Status

Entry = Mapping[str, Any]
"""An array, as the metadata document describes it."""

Rows = Mapping[str, NDArray[Any]]
"""The arrays of rows of a stream, by path."""


def label_of(entry: Entry) -> str:
    """Name an array.

    >>> label_of({"name": "lstm", "quantity": "output", "path": "1.0", "call": 2})
    'lstm output.1.0@2'
    """
    return f"{entry['name']} {quantity_label(entry)}"


def quantity_label(entry: Entry) -> str:
    """Name the quantity of an array, with path and call if there are several."""
    path = f".{entry['path']}" if entry["path"] else ""
    call = f"@{entry['call']}" if entry["call"] else ""
    return f"{entry['quantity']}{path}{call}"


def column_of(entry: Entry, rows: Rows, name: str) -> NDArray[Any]:
    """Give the statuses, or the numbers of examples, of one array."""
    # A run that was killed may have declared an array and never recorded it.
    table = widened(rows[f"{names.RECORDS}/{name}"], entry["number"] + 1, int(Status.ABSENT))
    return table[:, entry["number"]]


def coordinates_of(entry: Entry, rows: Rows, examples: int) -> dict[str, Any]:
    """Give the coordinates of an array: what happened at each step, and what counts.

    Parameters
    ----------
    entry : mapping
        The array.
    rows : mapping
        The stream's arrays of rows.
    examples : int
        Size of the array along `example`.
    """
    coordinates: dict[str, Any] = {
        name: (names.STEP, rows[name]) for name in ("epoch", "divisor") if name in rows
    }
    coordinates[names.STEP] = rows[names.STEP]
    status = column_of(entry, rows, names.STATUS)
    coordinates[names.STATUS] = (names.STEP, status, names.flag_attributes(Status))
    if entry["kind"] == "layer":
        coordinates |= _of_examples(entry, rows, examples)
    return coordinates


def _of_examples(entry: Entry, rows: Rows, examples: int) -> dict[str, Any]:
    by_example = (names.STEP, names.EXAMPLE)
    found: dict[str, Any] = {
        names.N_EXAMPLES: (names.STEP, column_of(entry, rows, names.N_EXAMPLES))
    }
    counts = rows.get(f"{entry['group']}/{names.N_POSITIONS}")
    if counts is not None:
        found[names.N_POSITIONS] = (by_example, widened(counts, examples, 0)[:, :examples])
    if entry["batch_axis"] is not None:
        for name in (names.INDEX, names.MICROBATCH):
            values = widened(rows[f"{names.EXAMPLES}/{name}"], examples, -1)
            found[name] = (by_example, values[:, :examples])
    return found


def attributes_of(entry: Entry, document: Mapping[str, Any], rows: Rows) -> dict[str, Any]:
    """Give the attributes of an array."""
    attributes = {
        "long_name": f"{entry['quantity']} of {entry['name']}",
        entry["kind"]: entry["name"],
        "quantity": entry["quantity"],
    }
    if entry["kind"] == "parameter":
        return attributes | {"shape": entry["shape"]}
    layer = next(one for one in document["layers"] if one["name"] == entry["name"])
    attributes["layer_class"] = layer["class"]
    if entry["spatial_shape"]:
        attributes["spatial_shape"] = entry["spatial_shape"]
    if entry["samples_positions"]:
        recorded, total = (
            int(rows[f"{entry['group']}/{name}"].max(initial=0))
            for name in (names.N_POSITIONS, names.N_POSITIONS_TOTAL)
        )
        attributes |= {"positions_recorded": recorded, "positions_total": total}
    return attributes


def widened(values: NDArray[Any], n: int, fill: int) -> NDArray[Any]:
    """Give rows at least `n` columns."""
    missing = max(n - values.shape[1], 0)
    return np.pad(values, ((0, 0), (0, missing)), constant_values=fill)
