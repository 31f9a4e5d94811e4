"""What is in a store, as text; needs none of the analysis libraries."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from outcrop.capture import format as names
from outcrop.capture.format import Status
from outcrop.capture.store import StoreReader, open_store

from .labels import column_of, quantity_label

_STATES = {
    "closed": "closed",
    "recording": "being recorded",
    "interrupted": "not closed: its process ended early; what was committed can be read",
}


def describe_store(path: Path) -> str:
    """Describe a store: state, sizes, streams, layers, arrays and what became of them.

    Parameters
    ----------
    path : Path
        The store.

    Returns
    -------
    str
        Several lines.

    Raises
    ------
    FileNotFoundError, FormatError
        If there is no store of ours.
    """
    store = open_store(path)
    return "\n".join([*_head(path, store), *_streams(store), *_layers(store)])


def _head(path: Path, store: StoreReader) -> Iterator[str]:
    document = store.document
    recorder = document["recorder"]
    yield f"{path}"
    yield f"  state      {_STATES[store.state]}"
    yield f"  format     {document['format']} {document['version']}, created {document['created']}"
    yield f"  size       {_size(_bytes_of(path))}"
    yield f"  kept       {', '.join(recorder['keep'])}; when {recorder['when']}"
    yield (
        f"  sampling   {_or_all(recorder['examples'])} examples, "
        f"{_or_all(recorder['positions'])} positions, seed {recorder['seed']}"
    )
    git = document["environment"].get("git")
    if git:
        yield f"  code       {git['commit'][:12]}{' (modified)' if git['modified'] else ''}"
    for name, value in document["attrs"].items():
        yield f"  {name:<10} {value}"


def _streams(store: StoreReader) -> Iterator[str]:
    yield ""
    for stream, about in store.document.get("streams", {}).items():
        records = store.length(stream)
        what = "records" if about["dimension"] == names.STEP else "rows"
        steps = store.rows(stream)[names.STEP].tolist()
        span = f", steps {min(steps)} to {max(steps)}" if steps else ""
        yield f"stream {stream}: {records} {what}{span}"
    if store.document.get("scalars"):
        yield f"scalars: {', '.join(store.document['scalars'])}"


def _layers(store: StoreReader) -> Iterator[str]:
    streams = store.document.get("streams", {})
    if names.TRAIN not in streams:
        return
    arrays = streams[names.TRAIN]["arrays"]
    rows = store.rows(names.TRAIN)
    for kind, title in (("layer", "layers, in forward order"), ("parameter", "parameters")):
        about = {one["name"]: one for one in store.document[f"{kind}s"]}
        mine = [entry for entry in arrays if entry["kind"] == kind]
        if mine:
            yield f"\n{title}"
        for name, described in about.items():
            found = [entry for entry in mine if entry["name"] == name]
            if found:
                yield f"  {name or '(model)'}{_class(described)}"
            for entry in found:
                became = Counter(Status(int(one)) for one in column_of(entry, rows, names.STATUS))
                label, shape = quantity_label(entry), _shape(store, entry)
                yield f"    {label:<18} {shape:<58} {_counts(became)}"


def _class(described: Mapping[str, Any]) -> str:
    return f"  {described['class']}" if "class" in described else f"  {described['shape']}"


def _shape(store: StoreReader, entry: Mapping[str, Any]) -> str:
    if entry["group"] is None:
        return "-"
    shape = store.blocks(names.TRAIN, entry["number"]).shape
    sizes = ", ".join(
        f"{dim} {size}" for dim, size in zip(entry["dims"][1:], shape[1:], strict=True)
    )
    return f"{entry['dtype']} ({sizes})"


def _counts(became: Counter[Status]) -> str:
    return ", ".join(f"{status.name.lower()} {n}" for status, n in sorted(became.items()))


def _or_all(limit: int | None) -> str:
    return "all" if limit is None else f"at most {limit}"


def _bytes_of(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def _size(n: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if n < 1000:
            return f"{n:.3g} {unit}"
        n /= 1000
    return f"{n:.3g} TB"
