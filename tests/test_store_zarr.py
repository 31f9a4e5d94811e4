"""The Zarr form keeps the contract, and stock zarr and xarray read it."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr
from outcrop.capture.errors import DamagedStore, FormatError
from outcrop.capture.store import nodes, open_store, zarr_writer
from outcrop.capture.store.commit_log import Entry, read_log
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
    monkeypatch.setattr(nodes, "LEAST_RECORDS", 4)
    monkeypatch.setattr(nodes, "MOST_RECORDS", 4)
    monkeypatch.setattr(nodes, "ROW_CHUNK", 8)


class TestZarrStoreWithSmallShards(TestZarrStore):
    """The same promises where every few records seal a shard."""

    @pytest.fixture(autouse=True)
    def _small(self, small_shards):
        pass

    @pytest.mark.parametrize("what", ["lose", "cut", "flip"])
    def test_damage_is_an_error_never_a_number(self, path, what):
        super().test_damage_is_an_error_never_a_number(path, what)


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
    monkeypatch.setattr(nodes, "INNER_BYTES", 64)
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


def test_a_kill_between_any_two_steps_of_a_seal_loses_nothing(small_shards, tmp_path, monkeypatch):
    """Each way of writing to the disk is made to fail, at every time it is used."""

    class Killed(BaseException):
        pass

    calls = {"n": 0, "stop": -1}

    def fatal(function):
        def wrapped(*arguments, **options):
            calls["n"] += 1
            if calls["n"] == calls["stop"]:
                raise Killed
            return function(*arguments, **options)

        return wrapped

    monkeypatch.setattr(zarr_writer, "replace_file", fatal(zarr_writer.replace_file))
    for module in ("block_array", "row_array", "commit_log"):
        where = f"outcrop.capture.store.{module}"
        name = "append_whole" if module == "block_array" else "replace_file"
        original = getattr(__import__(where, fromlist=[name]), name)
        monkeypatch.setattr(f"{where}.{name}", fatal(original))
    for stop in range(1, 60):
        path = tmp_path / str(stop) / "run.zarr"
        writing = Writing(path)
        writing.declare(row("step"), block(0, (4, 1, 3)))
        calls.update(n=0, stop=stop)
        committed = 0
        try:
            for step in range(10):
                writing.append(step, {0: values(step)})
                committed = step + 1
        except Killed:
            pass
        calls["stop"] = -1
        reader = open_store(path)
        n = reader.length(STREAM)
        # The record that was under way may have been committed just before the kill.
        assert committed <= n <= committed + 1
        for step, found in enumerate(read(reader)):
            np.testing.assert_array_equal(found, values(step))
        np.testing.assert_array_equal(reader.rows(STREAM)["step"], np.arange(n))


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
        open_store(tmp_path / "run.zarr").rows(STREAM)


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
