"""Reading: the same numbers as stock tools, live and closed, and clear words for what is wrong."""

import json
import shutil

import dask
import numpy as np
import pytest
import xarray as xr
from nets import NETS
from outcrop.analyze import open_run
from outcrop.capture.errors import DamagedStore, FormatError, MissingRecord
from outcrop.capture.format import Status
from outcrop.capture.store import STORES
from runs import record_run

SUFFIXES = sorted(STORES)


@pytest.fixture(params=SUFFIXES)
def path(request, tmp_path):
    return tmp_path / f"run{request.param}"


@pytest.mark.parametrize("kind", NETS)
def test_stock_xarray_shows_the_same_names_dims_and_numbers(kind, tmp_path):
    path = tmp_path / "run.zarr"
    record_run(path, kind=kind)
    tree = open_run(path).tree
    with xr.open_datatree(path, engine="zarr") as stock:
        groups = {group for group in stock.groups if not group.endswith("metadata")}
        assert groups >= set(tree.groups)
        for group in tree.groups:
            # The metadata document, in bytes, is the root's only array.
            found = tree[group].to_dataset()
            expected = stock[group].to_dataset().drop_vars("metadata", errors="ignore")
            xr.testing.assert_equal(found, expected)
            assert {n: v.dims for n, v in found.variables.items()} == {
                n: v.dims for n, v in expected.variables.items()
            }


def test_values_are_read_only_when_they_are_computed(path):
    record_run(path)
    output = open_run(path).output("0")
    assert dask.is_dask_collection(output.data)
    assert not dask.is_dask_collection(output["n_examples"].data)


def test_a_live_run_is_read_up_to_the_last_commit(path):
    recorder = record_run(path, steps=3, close=False)
    live = open_run(path)
    assert live.state == "recording"
    assert live.steps.tolist() == [0, 1, 2]
    before = live.output("4").values
    recorder.close()
    closed = open_run(path)
    assert closed.state == "closed"
    np.testing.assert_array_equal(closed.output("4").values, before)
    # What was opened while it was live goes on to read right after the run was closed.
    np.testing.assert_array_equal(live.output("4").values, before)


def test_selecting_steps_reads_the_same_as_reading_all(path):
    record_run(path, steps=7)
    output = open_run(path).output("2")
    np.testing.assert_array_equal(output.sel(step=[1, 5]).values, output.values[[1, 5]])
    np.testing.assert_array_equal(output.isel(step=slice(2, 4)).values, output.values[2:4])


def test_other_schedulers_read_the_same(path):
    record_run(path)
    output = open_run(path).output("0")
    with dask.config.set(scheduler="processes", num_workers=2):
        np.testing.assert_array_equal(output.values, output.compute(scheduler="sync").values)


def test_the_run_says_what_is_in_it(path):
    record_run(path, attrs={"width": 3})
    run = open_run(path)
    assert run.layers == ("0", "1", "2", "3", "4")
    assert run.parameters == ("0.weight", "0.bias", "4.weight", "4.bias")
    assert run.streams == ("train",)
    assert run.document["attrs"] == {"width": 3}
    assert "5 layers" in repr(run)
    assert run.document["layers"][0]["kernel_size"] == [3, 3]
    assert run.tree["/train/learning_rate"].values.tolist() == [[0.05]] * 5


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (lambda run: run.output("conv"), ValueError, "no layer 'conv'"),
        (lambda run: run.gradient("0.weights"), ValueError, "did you mean '0.weight'"),
        (lambda run: run.output("0", stream="test"), ValueError, "no stream 'test'"),
        (lambda run: run.output("0", call=2), MissingRecord, "no output at path '', call 2"),
        (lambda run: run.backprop("0"), MissingRecord, r"keep=\('backprop',\)"),
    ],
    ids=["layer", "parameter", "stream", "call", "quantity"],
)
def test_asking_for_what_is_not_there_says_what_is(ask, error, message, path):
    record_run(path, keep=("output", "gradient"))
    with pytest.raises(error, match=message):
        ask(open_run(path))


def test_a_run_without_records_opens(path):
    record_run(path, steps=0)
    run = open_run(path)
    assert run.steps.size == 0
    with pytest.raises(ValueError, match="no stream 'train'"):
        run.output("0")


def test_nothing_at_the_path_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no run at"):
        open_run(tmp_path / "none.zarr")


def test_an_unknown_suffix_names_the_ones_that_are_known(tmp_path):
    with pytest.raises(ValueError, match=r"'\.hdf'.*use one of .*\.zarr"):
        open_run(tmp_path / "run.hdf")


def test_an_empty_folder_is_not_a_run(tmp_path):
    (tmp_path / "run.zarr").mkdir()
    with pytest.raises(FormatError):
        open_run(tmp_path / "run.zarr")


def test_another_programs_store_is_not_a_run(tmp_path):
    xr.Dataset({"a": ("x", [1, 2])}).to_zarr(tmp_path / "run.zarr", consolidated=False)
    with pytest.raises(FormatError):
        open_run(tmp_path / "run.zarr")


def test_another_version_is_refused_by_name(tmp_path):
    path = tmp_path / "run.zarr"
    record_run(path, steps=1)
    root = path / "zarr.json"
    text = root.read_text()
    assert '"0.1"' in text
    root.write_text(text.replace('"0.1"', '"7.3"'))
    with pytest.raises(FormatError, match=r"7\.3"):
        open_run(path)


def test_a_store_cut_short_is_an_error_that_names_the_place(tmp_path):
    path = tmp_path / "run.zarr"
    record_run(path)
    shard = path / "train/layers/0/output/values/c.0.0.0.0"
    shard.write_bytes(shard.read_bytes()[:100])
    with pytest.raises(DamagedStore) as told:
        open_run(path).output("0").compute()
    text = "\n".join([str(told.value), *told.value.__notes__])
    assert "0 output" in text
    assert "records 0 to 4" in text


def test_a_lost_shard_is_an_error_not_a_hole(tmp_path):
    path = tmp_path / "run.zarr"
    record_run(path)
    (path / "train/layers/0/output/values/c.0.0.0.0").unlink()
    with pytest.raises(DamagedStore):
        open_run(path).output("0").compute()
    assert np.isfinite(open_run(path).output("4").values).all()


def test_a_garbled_metadata_document_is_an_error(tmp_path):
    path = tmp_path / "run.zarr"
    record_run(path)
    for chunk in (path / "metadata").glob("c.*"):
        data = bytearray(chunk.read_bytes())
        data[len(data) // 2] ^= 1
        chunk.write_bytes(data)
    with pytest.raises(DamagedStore):
        open_run(path)


def test_a_copied_store_opens_where_it_lies(tmp_path):
    record_run(tmp_path / "run.zarr")
    shutil.copytree(tmp_path / "run.zarr", tmp_path / "elsewhere" / "copy.zarr")
    first, second = (open_run(tmp_path / p) for p in ("run.zarr", "elsewhere/copy.zarr"))
    np.testing.assert_array_equal(first.output("0").values, second.output("0").values)


def test_names_of_any_kind_come_back(path):
    import torch
    from outcrop.capture import Recorder
    from torch import nn

    model = nn.Module()
    for name in ("a/b", "CD4+/CD8-", "层", "norm", "Norm", "con", "x" * 300, "zarr", "c"):
        model.add_module(name, nn.Linear(3, 2))
    with Recorder(model, path, keep=("output", "gradient"), when=1) as recorder, recorder.step(0):
        sum(layer(torch.ones(2, 3)).sum() for layer in model.children()).backward()
    run = open_run(path)
    assert set(run.layers) == set(dict(model.named_children()))
    for name, layer in model.named_children():
        expected = layer(torch.ones(2, 3)).detach()
        np.testing.assert_array_equal(run.output(name)[0, :, 0], expected)
        assert run.gradient(f"{name}.weight").attrs["shape"] == [2, 3]
    json.dumps(run.document)


def test_an_array_that_was_declared_and_never_recorded_is_absent(tmp_path, monkeypatch):
    """As a kill leaves it that comes between the two."""
    path = tmp_path / "run.zarr"
    recorder = record_run(path, kind="mlp", steps=2, layers=["0"], close=False)
    entries = recorder._assembler._table.entries
    entries.append(dict(entries[0], number=len(entries), name="0", call=1))
    recorder._assembler._store.describe(recorder._assembler._current_document())
    run = open_run(path)
    status = run.statuses().sel(array="0 input@1")
    assert status.values.tolist() == [Status.ABSENT] * 2
    recorder.close()


def test_the_working_directory_may_change(tmp_path, monkeypatch):
    record_run(tmp_path / "run.zarr", kind="mlp", steps=1)
    monkeypatch.chdir(tmp_path)
    output = open_run("run.zarr").output("0")
    monkeypatch.chdir("/")
    assert np.isfinite(output.values).all()
