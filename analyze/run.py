"""A recorded run, lazily: the only module of the analysis that reads stores."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from dask.base import tokenize
from numpy.typing import NDArray
from outcrop.capture import format as names
from outcrop.capture.errors import MissingRecord
from outcrop.capture.format import HAS_VALUES, MEANINGS, Status
from outcrop.capture.store import StoreReader, open_store
from outcrop.capture.words import did_you_mean

from .blocks import LazyBlocks, lazy_array
from .labels import attributes_of, column_of, coordinates_of, label_of, widened


def open_run(path: str | Path) -> "Run":
    """Open a recorded run: a closed one, a live one, or one whose process was killed.

    Nothing but metadata and small tables is read; values come when they are computed. Of a
    live run the records committed so far are seen; open it again for more.

    Parameters
    ----------
    path : path
        The store.

    Returns
    -------
    Run

    Raises
    ------
    FileNotFoundError
        If there is nothing at `path`.
    FormatError
        If it is not a store of this format and version.

    Examples
    --------
    >>> open_run("no/such/run.zarr")
    Traceback (most recent call last):
    ...
    FileNotFoundError: there is no run at 'no/such/run.zarr'
    """
    return Run(Path(path))


class Run:
    """A recorded run; made by `open_run`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._store: StoreReader = open_store(path)
        self.document: dict[str, Any] = self._store.document

    def __repr__(self) -> str:
        counts = ", ".join(f"{stream} {len(self.steps_of(stream))}" for stream in self.streams)
        return f"<Run {str(self.path)!r}: {len(self.layers)} layers; records: {counts or 'none'}>"

    # What is in it.
    @property
    def state(self) -> str:
        """``"closed"``, ``"recording"`` or ``"interrupted"``."""
        return self._store.state

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers, in forward order."""
        return tuple(layer["name"] for layer in self.document["layers"])

    @property
    def parameters(self) -> tuple[str, ...]:
        """Canonical names of the parameters."""
        return tuple(parameter["name"] for parameter in self.document["parameters"])

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the streams of steps."""
        streams: Mapping[str, Any] = self.document.get("streams", {})
        return tuple(s for s, about in streams.items() if about["dimension"] == names.STEP)

    @property
    def steps(self) -> NDArray[np.int64]:
        """The recorded training steps."""
        return self.steps_of(names.TRAIN)

    def steps_of(self, stream: str) -> NDArray[np.int64]:
        """Give the recorded steps of a stream; none if it has no records yet."""
        if stream not in self.document.get("streams", {}):
            return np.zeros(0, np.int64)
        return self._rows(stream)[names.STEP]

    def statuses(self, stream: str = names.TRAIN) -> xr.DataArray:
        """Give what became of each array at each step.

        Returns
        -------
        DataArray, dims (step, array)
            `Status` numbers; the coordinate `array` names the arrays.
        """
        status = self._rows(stream)[f"{names.RECORDS}/{names.STATUS}"]
        labels = [label_of(entry) for entry in self._arrays(stream)]
        return xr.DataArray(
            widened(status, len(labels), int(Status.ABSENT)),
            dims=(names.STEP, names.ARRAY),
            coords={names.STEP: self.steps_of(stream), names.ARRAY: labels},
            attrs=names.flag_attributes(Status),
        )

    # Quantities.
    def input(self, layer: str, **where: Any) -> xr.DataArray:
        """Give the input of a layer; see `quantity`."""
        return self.quantity(names.INPUT, layer, **where)

    def output(self, layer: str, **where: Any) -> xr.DataArray:
        """Give the output of a layer; see `quantity`."""
        return self.quantity(names.OUTPUT, layer, **where)

    def backprop(self, layer: str, **where: Any) -> xr.DataArray:
        """Give dL/d(output) of a layer, as it was recorded; see `quantity`.

        The gradient of an example's own loss is `divisor` times this (coordinate `divisor`).
        """
        return self.quantity(names.BACKPROP, layer, **where)

    def gradient(self, parameter: str, *, stream: str = names.TRAIN) -> xr.DataArray:
        """Give the gradient of a parameter.

        Parameters
        ----------
        parameter : str
            Canonical name or an alias.
        stream : str
            Name of the stream.

        Returns
        -------
        DataArray, dims (step, entry)
            Row-major; ``attrs["shape"]`` is the parameter's shape. NaN where `status` says
            that there is none.

        Raises
        ------
        MissingRecord
            If it was never recorded.
        """
        canonical = {
            alias: about["name"]
            for about in self.document["parameters"]
            for alias in (about["name"], *about["aliases"])
        }
        if parameter not in canonical:
            raise _unknown("parameter", parameter, list(canonical))
        return self._array(stream, (canonical[parameter], names.GRADIENT, "", 0))

    def quantity(
        self,
        quantity: str,
        layer: str,
        *,
        stream: str = names.TRAIN,
        path: str = "",
        call: int = 0,
    ) -> xr.DataArray:
        """Give a quantity of a layer at all recorded steps.

        Parameters
        ----------
        quantity : {"input", "output", "backprop"}
            What is wanted.
        layer : str
            Name of the layer.
        stream : str
            Name of the stream.
        path : str
            Which tensor, where the layer returns several: ``"0"``, ``"1.0"``, ``"hidden"``.
        call : int
            Which call, where the layer runs several times in a pass.

        Returns
        -------
        DataArray, dims (step, example, position, feature)
            Lazy. Coordinates: ``status``, ``n_examples`` and, where there are several,
            ``n_positions`` say what counts; padding is NaN. ``index`` and ``microbatch`` say
            which examples these are.

        Raises
        ------
        ValueError
            If the run has no such layer or stream.
        MissingRecord
            If the quantity was never recorded.
        DamagedStore
            On computing, if a chunk is missing or fails its checksum.
        """
        if layer not in self.layers:
            raise _unknown("layer", layer, self.layers)
        return self._array(stream, (layer, quantity, path, call))

    @cached_property
    def tree(self) -> xr.DataTree:
        """Everything, lazily, as stock xarray shows a closed store."""
        groups: dict[str, dict[str, xr.Variable]] = {}
        for stream, about in self.document.get("streams", {}).items():
            for path, values in self._rows(stream).items():
                group, _, name = f"{stream}/{path}".rpartition("/")
                spec = self._store.spec(stream, path)
                variable = xr.Variable(spec.dims, values, spec.attributes)
                groups.setdefault(group, {})[name] = variable
            for entry in about["arrays"]:
                if entry["group"]:
                    group = f"{stream}/{entry['group']}"
                    variable = xr.Variable(entry["dims"], self._lazy(stream, entry))
                    groups.setdefault(group, {})[names.VALUES] = variable
        return xr.DataTree.from_dict(
            {f"/{group}": xr.decode_cf(xr.Dataset(parts)) for group, parts in groups.items()}
        )

    # Reading.
    def _rows(self, stream: str) -> Mapping[str, NDArray[Any]]:
        if stream not in self._all_rows:
            known = [name for name in self.document.get("streams", {})]
            if stream not in known:
                raise _unknown("stream", stream, known)
            self._all_rows[stream] = self._store.rows(stream)
        return self._all_rows[stream]

    @cached_property
    def _all_rows(self) -> dict[str, Mapping[str, NDArray[Any]]]:
        return {}

    def _arrays(self, stream: str) -> list[dict[str, Any]]:
        streams = self.document.get("streams", {})
        if stream not in streams:
            raise _unknown("stream", stream, list(streams))
        arrays: list[dict[str, Any]] = streams[stream]["arrays"]
        return arrays

    def _entry(self, stream: str, key: tuple[str, str, str, int]) -> dict[str, Any]:
        arrays = self._arrays(stream)
        for entry in arrays:
            if (entry["name"], entry["quantity"], entry["path"], entry["call"]) == key:
                if entry["group"] is None:
                    raise MissingRecord(self._why_missing(stream, entry))
                return entry
        name, quantity, path, call = key
        have = [label_of(entry) for entry in arrays if entry["name"] == name]
        place = f" at path {path!r}, call {call}" if path or call else ""
        raise MissingRecord(
            f"{name!r} has no {quantity}{place} in stream {stream!r}; recorded are "
            f"{', '.join(have) or 'none of its quantities'}: record it with keep=({quantity!r},)"
        )

    def _why_missing(self, stream: str, entry: Mapping[str, Any]) -> str:
        status = column_of(entry, self._rows(stream), names.STATUS)
        found = sorted({Status(int(one)) for one in status})
        why = "; ".join(f"{one.name.lower()} ({MEANINGS[one]})" for one in found)
        return (
            f"{entry['name']!r} has no {entry['quantity']} in stream {stream!r}: "
            f"its status at {len(status)} records is {why or 'unknown, there are no records'}"
        )

    def _array(self, stream: str, key: tuple[str, str, str, int]) -> xr.DataArray:
        entry = self._entry(stream, key)
        values = self._lazy(stream, entry)
        n = values.shape[1]
        return xr.DataArray(
            values,
            dims=entry["dims"],
            coords=coordinates_of(entry, self._rows(stream), n),
            name=entry["quantity"],
            attrs={
                "stream": stream,
                "run": str(self.path),
                **attributes_of(entry, self.document, self._rows(stream)),
            },
        )

    def _lazy(self, stream: str, entry: Mapping[str, Any]) -> Any:
        reader = self._store.blocks(stream, entry["number"])
        extents = self._extents(stream, entry, reader.shape)
        blocks = LazyBlocks(reader, extents, entry["dtype"], f"{label_of(entry)} of {self.path}")
        token = tokenize(
            str(self.path.resolve()), self.document["created"], stream, entry["number"], reader
        )
        return lazy_array(blocks, name=f"{entry['quantity']}-{token}")

    def _extents(
        self, stream: str, entry: Mapping[str, Any], shape: tuple[int, ...]
    ) -> NDArray[np.intp]:
        """How far the values of each record reach, by the counts and statuses."""
        rows = self._rows(stream)
        extents = np.tile(np.array(shape[1:], np.intp), (shape[0], 1))
        if entry["kind"] == "layer":
            extents[:, 0] = column_of(entry, rows, names.N_EXAMPLES)
            counts = rows.get(f"{entry['group']}/{names.N_POSITIONS}")
            if counts is not None:
                extents[:, 1] = counts.max(axis=1, initial=0)
        status = column_of(entry, rows, names.STATUS)
        extents[~np.isin(status, list(HAS_VALUES))] = 0
        return extents


def scalars(run: Run, name: str) -> xr.DataArray:
    """Give a logged scalar at every step it was logged.

    Parameters
    ----------
    run : Run
        The run.
    name : str
        The name it was logged under.

    Returns
    -------
    DataArray, dims (step)
        In the order of logging.

    Raises
    ------
    ValueError
        If nothing was logged under this name.
    """
    known = run.document.get("scalars", [])
    if name not in known:
        raise _unknown("scalar", name, known)
    rows = run._rows(names.SCALARS)
    chosen = rows[names.NAME_NUMBER] == known.index(name)
    return xr.DataArray(
        rows[names.SCALAR_VALUE][chosen],
        dims=(names.STEP,),
        coords={names.STEP: rows[names.STEP][chosen]},
        name=name,
        attrs={"run": str(run.path)},
    )


def _unknown(what: str, name: str, known: "list[str] | tuple[str, ...]") -> ValueError:
    most = 20
    listed = ", ".join(map(repr, known[:most])) + (", …" if len(known) > most else "")
    hint = did_you_mean(name, list(known))
    return ValueError(f"the run has no {what} {name!r}{hint}; it has {listed or 'none'}")
