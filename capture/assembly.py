"""From what the hooks saw to records of the store; runs in the writer thread, in numpy.

Examples of the forward passes follow one another along `example`. A layer that did not run in
one of the passes has padding there, so that every row stays beside its index.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from . import format as names
from .arrays import STEP_TABLE, ArrayTable, fill_value, scalar_rows, stream_rows
from .format import Status
from .step import ArrayKey, Piece, StepData
from .store import ArraySpec, Document, Record, StoreWriter

Arrays: TypeAlias = Mapping[ArrayKey, tuple[NDArray[Any], NDArray[np.int64]]]
"""The values of each array of a step, with the number of positions of each example."""


@dataclass(frozen=True)
class ScalarRow:
    """One logged scalar."""

    step: int
    name: str
    value: float


class Assembler:
    """Writes steps and scalars into a store, and keeps its metadata document.

    Parameters
    ----------
    store : StoreWriter
        Where everything goes.
    document : dict
        What is known before the first record: recorder, environment, layers, parameters.
    expected : iterable of ArrayKey
        What was asked for, so that an array that never comes is listed all the same.
    """

    def __init__(
        self, store: StoreWriter, document: Document, expected: Iterable[ArrayKey]
    ) -> None:
        self._store = store
        self._document = document
        self._expected = list(expected)
        self._table = ArrayTable(
            {layer["name"]: layer["key"] for layer in document["layers"]},
            {parameter["name"]: parameter["key"] for parameter in document["parameters"]},
        )
        self._rows: dict[str, list[str]] = {}
        self._n_records = 0
        self._ordered = False
        self._scalars: dict[str, int] = {}
        store.describe(self._current_document())

    def write(self, item: StepData | list[ScalarRow]) -> None:
        """Commit a step, or a few scalars."""
        if isinstance(item, StepData):
            self._write_step(item)
        else:
            self._write_scalars(item)

    def close(self) -> None:
        """Seal the store."""
        self._document["closed"] = datetime.now(UTC).isoformat()
        self._store.close(self._current_document())

    # Steps.
    def _write_step(self, step: StepData) -> None:
        self._announce(step)
        self._set_aside(step)
        offsets = np.cumsum([0, *map(len, step.passes)])
        arrays = {key: _merged(parts, offsets) for key, parts in step.pieces.items()}
        self._declare(step, arrays, int(offsets[-1]))
        rows: dict[str, Any] = {
            **{name: value for name, value in step.table.items() if name in STEP_TABLE},
            f"{names.RECORDS}/{names.STATUS}": self._statuses(step),
            f"{names.RECORDS}/{names.N_EXAMPLES}": self._n_examples(arrays),
            **_example_rows(step.passes),
        }
        for key, (_, counts) in arrays.items():
            rows |= self._position_rows(key, step.pieces[key], counts)
        blocks = {self._table.numbers[key]: values for key, (values, _) in arrays.items()}
        self._store.append(names.TRAIN, [Record(rows, blocks)])
        self._n_records += 1

    def _announce(self, step: StepData) -> None:
        seen = [*step.pieces, *step.statuses]
        ran = {(key.name, key.quantity) for key in seen}
        # What was asked for and did not come gets a number as well, to carry its status.
        missing = [key for key in self._expected if (key.name, key.quantity) not in ran]
        self._table.announce([*seen, *missing] if not step.failed else self._expected)
        if step.called and not self._ordered:
            self._order_layers(step.called)

    def _set_aside(self, step: StepData) -> None:
        """Leave out values of another dtype or width than the array has: it cannot hold them."""
        strange = [
            key
            for key, parts in step.pieces.items()
            if not self._table.accepts(key, parts.values())
        ]
        for key in strange:
            del step.pieces[key]
            step.statuses[key] = Status.UNSUPPORTED

    def _order_layers(self, called: list[str]) -> None:
        self._ordered = True
        position = {name: number for number, name in enumerate(called)}
        self._document["layers"].sort(key=lambda layer: position.get(layer["name"], len(position)))

    def _declare(self, step: StepData, arrays: Arrays, n_examples: int) -> None:
        specs: list[ArraySpec] = []
        if names.TRAIN not in self._rows:
            n_groups = len(step.table.get("learning_rate", ()))
            specs += stream_rows(len(self._table.entries), n_examples, n_groups)
        for key, parts in step.pieces.items():
            if not self._table.is_placed(key):
                shape = arrays[key][0].shape
                specs += self._table.place(key, parts[min(parts)], shape, self._n_records)
            counts = arrays[key][1]
            if (counts == 0).any():  # padding of a pass that the layer left out
                specs += self._table.count_positions(key, len(counts))
        if specs:
            self._declare_in(names.TRAIN, specs)

    def _declare_in(self, stream: str, specs: list[ArraySpec]) -> None:
        rows = self._rows.setdefault(stream, [])
        rows += [spec.path for spec in specs if spec.number is None]
        self._store.declare(stream, specs, self._current_document())

    def _current_document(self) -> Document:
        dimensions = {names.TRAIN: names.STEP, names.SCALARS: names.ROW}
        self._document["scalars"] = list(self._scalars)
        self._document["streams"] = {
            stream: {
                "dimension": dimensions[stream],
                "rows": rows,
                "arrays": self._table.entries if stream == names.TRAIN else [],
            }
            for stream, rows in self._rows.items()
        }
        return self._document

    def _statuses(self, step: StepData) -> NDArray[np.uint8]:
        statuses = [
            Status.ERROR if step.failed else step.statuses.get(key, Status.NEVER_CALLED)
            for key in self._table.numbers
        ]
        return np.array(statuses, np.uint8)

    def _n_examples(self, arrays: Arrays) -> NDArray[np.int64]:
        counts = np.zeros(len(self._table.entries), np.int64)
        for key, (_, n_positions) in arrays.items():
            counts[self._table.numbers[key]] = len(n_positions)
        return counts

    def _position_rows(
        self, key: ArrayKey, parts: Mapping[int, Piece], counts: NDArray[np.int64]
    ) -> dict[str, Any]:
        entry = self._table.entries[self._table.numbers[key]]
        rows: dict[str, Any] = {}
        if entry["counts_positions"]:
            rows[f"{entry['group']}/{names.N_POSITIONS}"] = counts
        first = parts[min(parts)]
        if first.positions is not None:
            rows[f"{entry['group']}/{names.POSITION_INDEX}"] = first.positions
            total = int(np.prod(first.facts["spatial_shape"]))
            rows[f"{entry['group']}/{names.N_POSITIONS_TOTAL}"] = total
        return rows

    # Scalars.
    def _write_scalars(self, scalars: list[ScalarRow]) -> None:
        unknown = {row.name for row in scalars} - self._scalars.keys()
        for name in sorted(unknown):
            self._scalars[name] = len(self._scalars)
        if unknown:
            new = names.SCALARS not in self._rows
            self._declare_in(names.SCALARS, scalar_rows() if new else [])
        records = [
            Record(
                {
                    names.STEP: row.step,
                    names.NAME_NUMBER: self._scalars[row.name],
                    names.SCALAR_VALUE: row.value,
                }
            )
            for row in scalars
        ]
        self._store.append(names.SCALARS, records)


def _example_rows(passes: list[NDArray[np.int64]]) -> dict[str, NDArray[np.int64]]:
    index = np.concatenate(passes) if passes else np.zeros(0, np.int64)
    microbatch = np.repeat(np.arange(len(passes)), [len(one) for one in passes])
    return {
        f"{names.EXAMPLES}/{names.INDEX}": index,
        f"{names.EXAMPLES}/{names.MICROBATCH}": microbatch,
    }


def _merged(
    parts: Mapping[int, Piece], offsets: NDArray[np.int64]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Put the passes behind one another; also gives the positions of each example."""
    first = parts[min(parts)]
    if first.values.ndim == 1:  # a parameter
        return first.values, np.zeros(0, np.int64)
    if first.facts["batch_axis"] is None:  # one example a pass
        offsets = np.arange(len(offsets))
    if len(offsets) == 2:
        return first.values, np.full(len(first.values), first.values.shape[1])
    return _concatenated(parts, offsets)


def _concatenated(
    parts: Mapping[int, Piece], offsets: NDArray[np.int64]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    first = parts[min(parts)]
    longest = max(part.values.shape[1] for part in parts.values())
    shape = (int(offsets[-1]), longest, first.values.shape[2])
    values = np.full(shape, fill_value(first.dtype), first.values.dtype)
    counts = np.zeros(len(values), np.int64)
    for number, part in parts.items():
        rows = slice(offsets[number], offsets[number + 1])
        values[rows, : part.values.shape[1]] = part.values
        counts[rows] = part.values.shape[1]
    return values, counts
