"""The arrays of a run: which there are, and how the format describes each.

An array gets its number when it is first heard of. It gets a place in the store when its
first values come, since only then its shape is known.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import format as names
from .format import BFLOAT16, Status
from .step import ArrayKey, Piece
from .store import ArraySpec

_STORED_AS = {BFLOAT16: "uint16", "bool": "uint8"}
_BFLOAT16_NAN = 0x7FC0


@dataclass(frozen=True)
class Column:
    """One array of the step table."""

    dtype: str
    fill: float
    attributes: dict[str, object]
    dims: tuple[str, ...] = (names.STEP,)


STEP_TABLE = {
    "step": Column("int64", -1, {"long_name": "training step"}),
    "epoch": Column("int64", -1, {"long_name": "epoch; -1 if not given"}),
    "wall_time": Column(
        "float64",
        np.nan,
        {"long_name": "time of the record", "units": "seconds since 1970-01-01T00:00:00"},
    ),
    "batch_size": Column("int64", -1, {"long_name": "examples in the step"}),
    "divisor": Column("float64", np.nan, {"long_name": "what each pass's loss was divided by"}),
    "loss": Column("float64", np.nan, {"long_name": "loss, as logged"}),
    "n_microbatches": Column("int64", 0, {"long_name": "forward passes in the step"}),
    "n_passes": Column("int64", 0, {"long_name": "backward passes in the step"}),
    "learning_rate": Column(
        "float64", np.nan, {"long_name": "learning rate"}, (names.STEP, names.GROUP)
    ),
}
"""The step table: one value for each record, or one for each group of the optimizer."""


class ArrayTable:
    """Numbers the arrays of a stream and describes them.

    Parameters
    ----------
    layer_keys, parameter_keys : dict of str to str
        Keys of the layers and parameters.
    """

    def __init__(self, layer_keys: dict[str, str], parameter_keys: dict[str, str]) -> None:
        self._layer_keys = layer_keys
        self._parameter_keys = parameter_keys
        self.numbers: dict[ArrayKey, int] = {}
        self.entries: list[dict[str, Any]] = []

    def announce(self, arrays: Iterable[ArrayKey]) -> None:
        """Give a number to each array that has none yet."""
        for key in arrays:
            if key not in self.numbers:
                self.numbers[key] = len(self.entries)
                self.entries.append(self._entry(key))

    def is_placed(self, key: ArrayKey) -> bool:
        """Whether an array has a place in the store."""
        return self.entries[self.numbers[key]]["group"] is not None

    def accepts(self, key: ArrayKey, pieces: Iterable[Piece]) -> bool:
        """Whether values are of one kind, and of that which the array was made for."""
        entry = self.entries[self.numbers[key]]
        kinds = {_kind(one.facts, one.dtype, one.values.shape[-1]) for one in pieces}
        if entry["group"] is not None:
            kinds.add(_kind(entry, entry["dtype"], entry["n_features"]))
        return len(kinds) == 1

    def place(
        self, key: ArrayKey, piece: Piece, shape: tuple[int, ...], record: int
    ) -> list[ArraySpec]:
        """Describe the arrays that hold a quantity, from its first values.

        Parameters
        ----------
        key : ArrayKey
            The quantity.
        piece : Piece
            Its first values, of one pass.
        shape : tuple of int
            Shape of its first values, of all passes.
        record : int
            Number of the record that brings them.

        Returns
        -------
        list of ArraySpec
        """
        entry = self.entries[self.numbers[key]]
        entry |= piece.facts
        entry["group"] = self._group(key)
        entry["dtype"] = piece.dtype
        entry["first_record"] = record
        entry["n_features"] = shape[-1]
        entry["samples_positions"] = piece.positions is not None
        entry["counts_positions"] = bool(entry.get("spatial_shape"))
        return [self._values(entry, shape), *self._counts(entry, shape)]

    def count_positions(self, key: ArrayKey, n_examples: int) -> list[ArraySpec]:
        """Describe the counts of an array whose examples have one position each, or none.

        They come when a layer first leaves out one of the forward passes of a step; until then
        every example had its position, which is the fill value.
        """
        entry = self.entries[self.numbers[key]]
        if entry["counts_positions"]:
            return []
        entry["counts_positions"] = True
        return [_position_counts(entry, n_examples, fill=1)]

    def _entry(self, key: ArrayKey) -> dict[str, Any]:
        is_layer = key.quantity in names.LAYER_QUANTITIES
        return {
            "number": len(self.entries),
            "kind": "layer" if is_layer else "parameter",
            **key._asdict(),
            "dims": list(names.LAYER_DIMS if is_layer else names.PARAMETER_DIMS),
            "group": None,
        }

    def _group(self, key: ArrayKey) -> str:
        if key.quantity in names.LAYER_QUANTITIES:
            layer = self._layer_keys[key.name]
            return names.layer_group(layer, key.quantity, path=key.path, call=key.call)
        return names.parameter_group(self._parameter_keys[key.name], key.quantity)

    def _values(self, entry: dict[str, Any], shape: tuple[int, ...]) -> ArraySpec:
        stored = _STORED_AS.get(entry["dtype"], entry["dtype"])
        attributes = {"long_name": f"{entry['quantity']} of {entry['kind']} {entry['name']}"}
        if stored != entry["dtype"]:
            attributes["stored_dtype"] = entry["dtype"]
        return ArraySpec(
            path=f"{entry['group']}/{names.VALUES}",
            dims=tuple(entry["dims"]),
            shape=shape,
            dtype=stored,
            fill=fill_value(entry["dtype"]),
            number=entry["number"],
            attributes=attributes,
        )

    def _counts(self, entry: dict[str, Any], shape: tuple[int, ...]) -> Iterable[ArraySpec]:
        if entry["counts_positions"]:
            yield _position_counts(entry, shape[0], fill=0)
        if entry["samples_positions"]:
            yield _row(
                f"{entry['group']}/{names.N_POSITIONS_TOTAL}",
                (names.STEP,),
                (),
                0,
                "positions of an example before sampling",
            )
            yield _row(
                f"{entry['group']}/{names.POSITION_INDEX}",
                (names.STEP, names.POSITION),
                shape[1:2],
                -1,
                "which positions these are",
            )


def stream_rows(n_arrays: int, n_examples: int, n_groups: int) -> list[ArraySpec]:
    """Describe the arrays of rows that every stream of steps has."""
    by_array = (names.STEP, names.ARRAY)
    by_example = (names.STEP, names.EXAMPLE)
    sizes = {names.GROUP: n_groups}
    table = [
        ArraySpec(
            path=name,
            dims=column.dims,
            shape=tuple(sizes[dim] for dim in column.dims[1:]),
            dtype=column.dtype,
            fill=column.fill,
            attributes=column.attributes,
        )
        for name, column in STEP_TABLE.items()
        if names.GROUP not in column.dims or n_groups
    ]
    status = ArraySpec(
        path=f"{names.RECORDS}/{names.STATUS}",
        dims=by_array,
        shape=(n_arrays,),
        dtype="uint8",
        fill=int(Status.ABSENT),
        attributes=names.flag_attributes(Status),
    )
    return [
        *table,
        status,
        _row(f"{names.RECORDS}/{names.N_EXAMPLES}", by_array, (n_arrays,), 0, "recorded examples"),
        _row(f"{names.EXAMPLES}/{names.INDEX}", by_example, (n_examples,), -1, "index in the pass"),
        _row(f"{names.EXAMPLES}/{names.MICROBATCH}", by_example, (n_examples,), -1, "forward pass"),
    ]


def scalar_rows() -> list[ArraySpec]:
    """Describe the arrays of the scalars: a step, the number of a name, a value."""
    dims = (names.ROW,)
    return [
        _row(names.STEP, dims, (), -1, "training step"),
        _row(names.NAME_NUMBER, dims, (), -1, "number of the scalar's name in the metadata"),
        ArraySpec(names.SCALAR_VALUE, dims, (), "float64", np.nan),
    ]


def fill_value(dtype: str) -> float:
    """Give the value of padding: NaN, or the integer that is least likely to be meant.

    >>> fill_value("float32"), fill_value("int8"), fill_value("uint8")
    (nan, -128, 255)
    """
    if dtype == BFLOAT16:
        return _BFLOAT16_NAN
    if dtype == "bool":
        return 255
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return float("nan")
    limits = np.iinfo(kind)
    return int(limits.min if kind.kind == "i" else limits.max)


def _position_counts(entry: dict[str, Any], n_examples: int, *, fill: int) -> ArraySpec:
    path = f"{entry['group']}/{names.N_POSITIONS}"
    dims = (names.STEP, names.EXAMPLE)
    return _row(path, dims, (n_examples,), fill, "positions of each example; 0: it does not count")


def _kind(facts: dict[str, Any], dtype: str, features: int) -> tuple[Any, ...]:
    """Give what must stay the same in an array: it grows in examples and positions alone."""
    return (
        *(dtype, features),
        facts.get("batch_axis") is None,
        bool(facts.get("spatial_shape")),
        # A parameter keeps its shape.
        tuple(facts.get("shape", ())),
    )


def _row(
    path: str, dims: tuple[str, ...], shape: tuple[int, ...], fill: int, long_name: str
) -> ArraySpec:
    return ArraySpec(path, dims, shape, "int64", fill, attributes={"long_name": long_name})
