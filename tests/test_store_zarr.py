"""The Zarr form keeps the contract, and stock zarr and xarray read it."""

import json
import os
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr
from outcrop.capture.errors import DamagedStore, FormatError
from outcrop.capture.store import grids, open_store
from outcrop.capture.store.commit_log import Entry, read_log
from outcrop.capture.store.zarr import block_reader
from outcrop.capture.store.zarr import reader as zarr_reader
from store_contract import STREAM, StoreContract, Writing, block, read, row, values


class TestZarrStore(StoreContract):
    suffix = ".zarr"

    def damage(self, path, what):
        shard = path / "train/layers/0/output/values/c.0.0.0.0"
        data = bytearray(shard.read_bytes())
        if what == "lose":
            shard.unlink()
            return
        if what == "cut":
            del data[len(data) // 2 :]
        else:
            data[10] ^= 4
        shard.write_bytes(data)

    def stock_values(self, path):
        return zarr.open_group(path, mode="r")["train/layers/0/output/values"][:]


@pytest.fixture
def small_shards(monkeypatch):
    """Shards of 4 records and row chunks of 8, so that seals come often."""
    monkeypatch.setattr(grids, "LEAST_RECORDS", 4)
    monkeypatch.setattr(grids, "MOST_RECORDS", 4)
    monkeypatch.setattr(grids, "ROW_CHUNK", 8)


class TestZarrStoreWithSmallShards(TestZarrStore):
    """The same promises where every few records seal a shard."""

    @pytest.fixture(autouse=True)
    def _small(self, small_shards):
        pass

    @pytest.mark.parametrize("what", ["lose", "cut", "flip"])
    def test_damage_is_an_error_never_a_number(self, path, what):
        super().test_damage_is_an_error_never_a_number(path, what)


class TestZarrStoreWithSmallChunksOfRows(TestZarrStore):
    """The same promises where a shard holds several chunks of rows."""

    @pytest.fixture(autouse=True)
    def _small(self, monkeypatch):
        monkeypatch.setattr(grids, "LEAST_RECORDS", 16)
        monkeypatch.setattr(grids, "MOST_RECORDS", 16)
        monkeypatch.setattr(grids, "ROW_CHUNK", 4)


def record(path, steps, *, close=True):
    writing = Writing(path)
    writing.declare(row("step"), block(0, (4, 1, 3)))
    for step in range(steps):
        writing.append(step, {0: values(step)})
    if close:
        writing.close()
    return writing


@pytest.mark.parametrize("steps", [3, 4, 11])
def test_stock_libraries_read_a_closed_store(small_shards, tmp_path, steps):
    path = tmp_path / "run.zarr"
    record(path, steps)
    expected = np.array([values(step) for step in range(steps)])
    array = zarr.open_group(path, mode="r")["train/layers/0/output/values"]
    np.testing.assert_array_equal(array[:], expected)
    np.testing.assert_array_equal(array[steps - 1], expected[-1])
    with xr.open_datatree(path, engine="zarr") as tree:
        found = tree["train/layers/0/output"]
        np.testing.assert_array_equal(found["values"], expected)
        assert found["values"].dims == ("step", "example", "position", "feature")
        np.testing.assert_array_equal(found.sel(step=steps - 1)["values"], expected[-1])
    # Without the root's copy of the metadata it is the same.
    plain = zarr.open_group(path, mode="r", use_consolidated=False)
    np.testing.assert_array_equal(plain["train/layers/0/output/values"][:], expected)


def test_stock_libraries_see_what_is_sealed_and_nothing_else(small_shards, tmp_path):
    path = tmp_path / "run.zarr"
    writing = record(path, 11, close=False)
    array = zarr.open_group(path, mode="r")["train/layers/0/output/values"]
    np.testing.assert_array_equal(array[:], [values(step) for step in range(8)])
    assert open_store(path).length(STREAM) == 11
    writing.close()


def test_a_run_of_many_records_is_few_files(small_shards, tmp_path):
    path = tmp_path / "run.zarr"
    record(path, 30)
    files = list((path / "train/layers/0/output/values").iterdir())
    assert len(files) <= -(-30 // 4) + 1
    assert not list(path.rglob("*.open.*"))
    assert not list(path.rglob(".commit.log"))


def test_a_huge_tensor_is_split(monkeypatch, tmp_path):
    monkeypatch.setattr(grids, "INNER_BYTES", 64)
    path = tmp_path / "run.zarr"
    writing = Writing(path)
    writing.declare(row("step"), block(0, (3, 10, 2)))
    for step in range(5):
        writing.append(step, {0: values(step, (3, 10, 2))})
    live = read(open_store(path))
    writing.close()
    node = json.loads((path / "train/layers/0/output/values/zarr.json").read_text())
    assert node["codecs"][0]["configuration"]["chunk_shape"] == [1, 3, 3, 2]
    expected = [values(step, (3, 10, 2)) for step in range(5)]
    for found in (live, read(open_store(path))):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(
        zarr.open_group(path, mode="r")["train/layers/0/output/values"][:], expected
    )


class Killed(BaseException):
    """The process ends here."""


class Disk:
    """Every way of writing to the disk: raises `fault` at the `first` call and some more."""

    def __init__(self, monkeypatch, fault):
        self.fault = fault
        self.fails(first=0, times=0)
        for owner, name in (
            *[(Path, name) for name in ("open", "rename", "replace")],
            *[(os, name) for name in ("write", "writev")],
        ):
            monkeypatch.setattr(owner, name, self.breaking(getattr(owner, name)))

    def breaking(self, write):
        def wrapped(*arguments, **options):
            self.n += self.counts
            if self.counts and self.first <= self.n < self.first + self.times:
                raise self.fault
            return write(*arguments, **options)

        return wrapped

    def fails(self, first, times):
        self.n, self.first, self.times, self.counts = 0, first, times, True

    @contextmanager
    def rests(self):
        self.counts = False
        yield
        self.counts = True


N_STEPS, LATE, GROWN = 10, 5, 6
"""A run with whatever a run may have: a late array, and one that grows."""


def shape_of(step):
    return (5, 1, 3) if step == GROWN else (4, 1, 3)


def begin(path):
    writing = Writing(path, fsync="never")  # many stores: waiting for the disk adds nothing
    index = row("examples/index", ("step", "example"), (4,))
    writing.declare(row("step"), index, block(0, shape_of(0)))
    return writing


def append(writing, step):
    if step == LATE and "late" not in writing.rows:
        declare_late(writing)
    rows = {"examples/index": np.arange(shape_of(step)[0]) + step}
    blocks = {0: values(step, shape_of(step))}
    if step >= LATE:
        rows["late"] = step
        blocks[1] = values(step, (2,))
    writing.append(step, blocks, **rows)


def declare_late(writing):
    rows, arrays = list(writing.rows), list(writing.arrays)
    try:
        writing.declare(row("late"), block(1, (2,)))
    except OSError:
        writing.rows, writing.arrays = rows, arrays
        raise


def check(path, n_steps):
    """Assert that a run has so many steps, all of them right."""
    reader = open_store(path)
    assert reader.length(STREAM) == n_steps
    rows = reader.rows(STREAM)
    found = read(reader, extents=[shape_of(step) for step in range(n_steps)])
    np.testing.assert_array_equal(rows["step"], np.arange(n_steps))
    for step in range(n_steps):
        n = shape_of(step)[0]
        np.testing.assert_array_equal(found[step][:n], values(step, shape_of(step)))
        assert rows["examples/index"][step, :n].tolist() == [step + k for k in range(n)]
        if "late" in rows:
            assert rows["late"][step] == (step if step >= LATE else -1)
    if n_steps > LATE:
        late = read(reader, 1, start=LATE)
        np.testing.assert_array_equal(late, [values(s, (2,)) for s in range(LATE, n_steps)])


def test_a_kill_at_any_write_loses_nothing(small_shards, tmp_path, monkeypatch):
    disk = Disk(monkeypatch, Killed())
    for first in count(1):
        path = tmp_path / str(first) / "run.zarr"
        writing = begin(path)
        disk.fails(first, times=1)
        committed = 0
        with suppress(Killed):
            for step in range(N_STEPS):
                append(writing, step)
                committed = step + 1
        with disk.rests():
            # The record that was under way may have been committed just before the kill.
            n = open_store(path).length(STREAM)
            assert committed <= n <= committed + 1
            check(path, n)
            assert not strays(path)
        if disk.n < first:
            assert first > 60
            break


@pytest.mark.parametrize("times", [1, 3])
def test_a_disk_that_is_full_for_a_while_costs_nothing_that_was_committed(
    small_shards, tmp_path, monkeypatch, times
):
    """Any write may fail; the caller goes on with the step that a reader misses."""
    disk = Disk(monkeypatch, OSError(28, "No space left on device"))
    for first in count(1):
        path = tmp_path / str(first) / "run.zarr"
        writing = begin(path)
        disk.fails(first, times)
        step = 0
        while step < N_STEPS:
            try:
                append(writing, step)
                step += 1
            except OSError:
                with disk.rests():
                    n = open_store(path).length(STREAM)
                    assert step <= n <= step + 1
                    check(path, n)
                step = n
        with disk.rests():
            writing.close()
            check(path, N_STEPS)
            lengths = {node.shape[0] for name, node in members(path) if hasattr(node, "shape")}
            assert lengths == {N_STEPS}
        if disk.n < first:
            break


def strays(path):
    """Files beside groups, which stock zarr warns of."""
    groups = [
        node.parent
        for node in path.rglob("zarr.json")
        if json.loads(node.read_text())["node_type"] == "group"
    ]
    files = [file for group in groups for file in group.iterdir() if file.is_file()]
    return [file for file in files if file.name != "zarr.json"]


def members(path):
    """All nodes of the stream, as stock zarr finds them in the folders."""
    root = zarr.open_group(path, mode="r", use_consolidated=False)
    return [item for item in root.members(max_depth=None) if item[0].startswith(STREAM)]


@pytest.mark.parametrize("keep", range(1, 40))
def test_a_torn_last_entry_was_never_committed(tmp_path, keep):
    writing = record(tmp_path / "run.zarr", 3, close=False)
    log = tmp_path / "run.zarr/train/step/.commit.log"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:2]) + lines[2][: -keep - 1])
    assert open_store(tmp_path / "run.zarr").length(STREAM) == 2
    del writing


def test_a_flipped_bit_in_the_middle_of_the_log_is_an_error(tmp_path):
    record(tmp_path / "run.zarr", 5, close=False)
    log = tmp_path / "run.zarr/train/step/.commit.log"
    data = bytearray(log.read_bytes())
    data[30] ^= 1
    log.write_bytes(data)
    with pytest.raises(DamagedStore, match="entry 0 of the commit log"):
        open_store(tmp_path / "run.zarr")


def test_a_log_that_skips_a_record_is_an_error(tmp_path):
    record(tmp_path / "run.zarr", 5, close=False)
    log = tmp_path / "run.zarr/train/step/.commit.log"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:2] + lines[3:]))
    with pytest.raises(DamagedStore, match="does not go on"):
        open_store(tmp_path / "run.zarr")


def test_every_flipped_bit_of_a_shard_is_found(tmp_path):
    path = tmp_path / "run.zarr"
    record(path, 2)
    shard = path / "train/layers/0/output/values/c.0.0.0.0"
    whole = shard.read_bytes()
    expected = read(open_store(path))
    # The chunks, the two used entries of the index, and its checksum.
    random = np.random.default_rng(0)
    places = random.permutation(len(whole))[:200]
    for place in map(int, places):
        data = bytearray(whole)
        data[place] ^= 1 << int(random.integers(8))
        shard.write_bytes(data)
        with pytest.raises(DamagedStore):
            read(open_store(path))
    shard.write_bytes(whole)
    np.testing.assert_array_equal(read(open_store(path)), expected)


def test_a_lost_chunk_of_rows_is_an_error(tmp_path):
    record(tmp_path / "run.zarr", 5)
    (tmp_path / "run.zarr/train/step/c.0").unlink()
    with pytest.raises(DamagedStore, match=r"train/step/c\.0.*missing"):
        open_store(tmp_path / "run.zarr").rows(STREAM)["step"]


def test_a_root_that_is_not_json_is_an_error(tmp_path):
    record(tmp_path / "run.zarr", 1)
    (tmp_path / "run.zarr/zarr.json").write_text("{")
    with pytest.raises(FormatError, match=r"zarr\.json"):
        open_store(tmp_path / "run.zarr")


def test_a_full_disk_leaves_the_store_valid(small_shards, tmp_path, monkeypatch):
    path = tmp_path / "run.zarr"
    writing = record(path, 5, close=False)

    def half(file, pieces):
        return os.write(file, bytes(pieces[0])[:7])

    with monkeypatch.context() as patch:
        patch.setattr(os, "writev", half)
        with pytest.raises(OSError, match="disk full"):
            writing.append(5, {0: values(5)})
    assert open_store(path).length(STREAM) == 5
    writing.append(5, {0: values(50)})
    writing.close()
    found = read(open_store(path))
    np.testing.assert_array_equal(found, [*map(values, range(5)), values(50)])


def n_open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_few_files_are_open_at_a_time(tmp_path):
    path = tmp_path / "run.zarr"
    writing = Writing(path)
    writing.declare(row("step"), *[block(number, (2,)) for number in range(400)])
    before = n_open_files()
    for step in range(2):
        writing.append(step, {number: values(step, (2,)) for number in range(400)})
        assert n_open_files() <= before + 256
    writing.close()
    assert n_open_files() <= before
    np.testing.assert_array_equal(read(open_store(path), 399), [values(0, (2,)), values(1, (2,))])


def test_a_log_is_read_as_it_was_written(tmp_path):
    record(tmp_path / "run.zarr", 2, close=False)
    first, second = read_log(tmp_path / "run.zarr/train/step")
    assert isinstance(first, Entry)
    assert (first.record, second.record) == (0, 1)
    assert first.rows == [0]
    assert second.blocks[0][1] == first.blocks[0][1] + first.blocks[0][2]


@pytest.mark.parametrize("fsync", ["never", "seal", 0.0])
def test_the_disk_policy_changes_no_number(small_shards, tmp_path, fsync):
    path = tmp_path / "run.zarr"
    writing = Writing(path, fsync=fsync)
    writing.declare(row("step"), block(0, (4, 1, 3)))
    for step in range(6):
        writing.append(step, {0: values(step)})
    writing.close()
    np.testing.assert_array_equal(read(open_store(path)), [values(step) for step in range(6)])


def test_a_seal_that_comes_while_a_run_is_opened_is_no_damage(small_shards, tmp_path, monkeypatch):
    path = tmp_path / "run.zarr"
    writing = record(path, 3, close=False)
    steps = iter(range(3, 6))

    def read_later(folder):
        for step in steps:
            writing.append(step, {0: values(step)})
        return read_log(folder)

    monkeypatch.setattr(zarr_reader, "read_log", read_later)
    reader = open_store(path)
    assert reader.length(STREAM) == 6
    np.testing.assert_array_equal(read(reader), [values(step) for step in range(6)])
    writing.close()


def test_a_run_opened_before_a_seal_is_read_after_it(small_shards, tmp_path):
    path = tmp_path / "run.zarr"
    writing = record(path, 3, close=False)
    reader = open_store(path)
    for step in range(3, 11):
        writing.append(step, {0: values(step)})
    np.testing.assert_array_equal(read(reader), [values(step) for step in range(3)])
    np.testing.assert_array_equal(reader.rows(STREAM)["step"], range(3))
    writing.close()


def test_the_data_of_all_files_are_on_the_disk_before_the_log(tmp_path, monkeypatch):
    """Those of arrays whose file was closed, to keep few open, as well."""
    synced = []

    def note(file):
        synced.append(str(Path(f"/proc/self/fd/{file}").readlink()))

    writing = Writing(tmp_path / "run.zarr", fsync=0)
    writing.declare(row("step"), *[block(number, (2,)) for number in range(300)])
    monkeypatch.setattr(os, "fsync", note)
    writing.append(0, {number: values(0, (2,)) for number in range(300)})
    shards, log = synced[:-1], synced[-1]
    assert len({path for path in shards if ".open." in path}) == 300
    assert log.endswith(".commit.log")
    synced.clear()
    writing.append(1, {7: values(1, (2,))})
    assert len(synced) == 2


def test_a_file_that_the_system_gives_in_small_pieces_is_read_whole(tmp_path, monkeypatch):
    """As it does from 2 GiB on."""
    path = tmp_path / "run.zarr"
    record(path, 20)
    whole = os.pread
    monkeypatch.setattr(os, "pread", lambda file, n, offset: whole(file, min(n, 100), offset))
    monkeypatch.setattr(block_reader, "_READ_BYTES", 300)
    np.testing.assert_array_equal(read(open_store(path)), [values(step) for step in range(20)])


@pytest.mark.parametrize("what", ["lose", "cut", "flip"])
def test_a_damaged_metadata_document_is_an_error(tmp_path, what):
    path = tmp_path / "run.zarr"
    record(path, 2)
    chunk = max((path / "metadata").glob("c.*"), key=lambda file: int(file.name[2:]))
    data = bytearray(chunk.read_bytes())
    chunk.unlink()
    data[20] ^= 1
    if what != "lose":
        chunk.write_bytes(data if what == "flip" else data[:10])
    with pytest.raises(DamagedStore, match="metadata"):
        open_store(path)


def rewrite_root(path, change):
    node = json.loads((path / "zarr.json").read_text())
    change(node)
    (path / "zarr.json").write_text(json.dumps(node))


def test_what_is_not_a_run_of_this_version_is_refused_by_name(tmp_path):
    path = tmp_path / "run.zarr"
    with pytest.raises(FileNotFoundError, match=r"no run at .*run\.zarr"):
        open_store(path)
    path.mkdir()
    with pytest.raises(FormatError, match=r"has none: it is not a run"):
        open_store(path)
    path.rmdir()
    record(path, 2)
    rewrite_root(path, lambda node: node["attributes"].update(version="9.3"))
    with pytest.raises(FormatError, match=r"has version '9\.3'"):
        open_store(path)
    rewrite_root(path, lambda node: node["attributes"].update(format="thesis"))
    with pytest.raises(FormatError, match="is 'thesis', not 'outcrop'"):
        open_store(path)


def test_a_root_without_the_metadata_of_its_arrays_is_an_error(tmp_path):
    path = tmp_path / "run.zarr"
    record(path, 2)
    rewrite_root(path, lambda node: node.pop("consolidated_metadata"))
    with pytest.raises(DamagedStore, match="consolidated_metadata"):
        open_store(path)
