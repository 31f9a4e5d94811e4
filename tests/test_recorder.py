"""What the recorder stores is what autograd says, and training never notices."""

import copy
import gc
import pickle
import warnings
import weakref

import numpy as np
import pytest
import torch
from nets import BATCHES, NETS, batch, loss_of, mlp, truth
from outcrop.analyze import covariance, open_run, saturation, scalars
from outcrop.capture import At, Every, First, Recorder
from outcrop.capture.errors import MissingRecord
from outcrop.capture.format import Status
from outcrop.capture.layout import take_rows
from torch import nn
from torch.utils.checkpoint import checkpoint

ALL = ("input", "output", "backprop", "gradient")


def rows(tensor, *, channels_first=False):
    """(example, position, feature) of a layer's tensor, by the rule of the format."""
    array = tensor.numpy()
    if channels_first:
        array = np.moveaxis(array, 1, -1)
    return array.reshape(len(array), -1, array.shape[-1])


def train(model, x, recorder, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(steps):
        with recorder.step(step) as record:
            loss = loss_of(model(x))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            record.log(loss=loss)


def recorder_of(model, tmp_path, **options):
    options = {"keep": ALL, "when": 1, "on_error": "raise"} | options
    return Recorder(model, tmp_path / "run.zarr", **options)


@pytest.mark.parametrize("inplace", [False, True], ids=["out-of-place", "in-place"])
@pytest.mark.parametrize("kind", NETS)
def test_every_quantity_is_what_autograd_says(kind, inplace, tmp_path):
    torch.manual_seed(0)
    model = NETS[kind](inplace=inplace)
    twin = NETS[kind](inplace=False)
    twin.load_state_dict(model.state_dict())
    x = batch(kind, 9, seed=1)
    with recorder_of(model, tmp_path, examples=None) as recorder, recorder.step(0):
        loss_of(model(x)).backward()
    run = open_run(tmp_path / "run.zarr")
    for (name, quantity), expected in truth(twin, x).items():
        if quantity == "gradient":
            found = run.gradient(name)[0].values
            np.testing.assert_array_equal(found, expected.flatten().numpy())
        else:
            array = run.quantity(quantity, name)
            channels_first = kind == "cnn" and expected.dim() > 2
            np.testing.assert_array_equal(
                array[0].values, rows(expected, channels_first=channels_first), err_msg=name
            )
            assert int(array["n_examples"][0]) == 9


def test_a_view_that_is_changed_in_place_is_recorded_through_its_base(tmp_path):
    model = NETS["tokens"](inplace=True)
    with recorder_of(model, tmp_path) as recorder, recorder.step(0):
        loss_of(model(batch("tokens", 4, seed=0))).backward()
    status = open_run(tmp_path / "run.zarr").backprop("0")["status"]
    assert int(status[0]) == Status.RECORDED_BASE


def test_the_same_examples_are_drawn_for_every_quantity(tmp_path):
    torch.manual_seed(0)
    model = NETS["cnn"]()
    x = batch("cnn", 40, seed=1)
    with recorder_of(model, tmp_path, examples=8) as recorder, recorder.step(3):
        loss_of(model(x)).backward()
    run = open_run(tmp_path / "run.zarr")
    index = run.input("0")["index"][0].values
    assert len(set(index)) == 8
    assert index.max() < 40
    expected = truth(model, x)
    for name in ("0", "2", "4"):
        for quantity in ("input", "output", "backprop"):
            tensor = expected[name, quantity][index]
            np.testing.assert_array_equal(
                run.quantity(quantity, name)[0].values,
                rows(tensor, channels_first=tensor.dim() > 2),
            )
            np.testing.assert_array_equal(run.quantity(quantity, name)["index"][0], index)


def test_positions_are_sampled_alike_but_a_convolutions_input_is_whole(tmp_path):
    torch.manual_seed(0)
    model = NETS["cnn"]()
    x = batch("cnn", 5, seed=1)
    with recorder_of(model, tmp_path, positions=10) as recorder, recorder.step(0):
        loss_of(model(x)).backward()
    run = open_run(tmp_path / "run.zarr")
    assert run.input("0").sizes["position"] == 36
    expected = truth(model, x)["0", "output"]
    output = run.output("0")
    assert output.attrs["positions_recorded"] == 10
    assert output.attrs["positions_total"] == 36
    chosen = run.tree["/train/layers/0/output/position_index"][0].values
    np.testing.assert_array_equal(output[0].values, rows(expected, channels_first=True)[:, chosen])
    other = run.tree["/train/layers/0/backprop/position_index"][0].values
    np.testing.assert_array_equal(chosen, other)


@pytest.mark.parametrize("kind", NETS)
def test_training_is_bitwise_the_same_with_a_recorder(kind, tmp_path):
    weights = []
    for path in (None, tmp_path):
        torch.manual_seed(0)
        model = NETS[kind](inplace=True)
        x = batch(kind, 32, seed=1)
        when = At([]) if path is None else 1
        with recorder_of(model, path or tmp_path / "other", when=when, examples=8) as recorder:
            train(model, x, recorder, 20)
        weights.append([*model.state_dict().values(), torch.get_rng_state()])
    assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))


def test_only_sampled_steps_have_hooks(tmp_path):
    model = mlp()
    with recorder_of(model, tmp_path, when=Every(2)) as recorder:
        with recorder.step(1):
            assert not model[0]._forward_hooks
        with recorder.step(2):
            assert model[0]._forward_hooks
            loss_of(model(batch("mlp", 4, seed=0))).backward()
        assert not model[0]._forward_hooks
        assert not model[0]._forward_pre_hooks
        assert not model[0].weight._backward_hooks
    assert open_run(tmp_path / "run.zarr").steps.tolist() == [2]


def test_schedules_join(tmp_path):
    model = mlp()
    with recorder_of(model, tmp_path, when=First(2) | At([7])) as recorder:
        train(model, batch("mlp", 4, seed=0), recorder, 10)
    assert open_run(tmp_path / "run.zarr").steps.tolist() == [0, 1, 7]


def test_scalars_are_kept_at_every_step(tmp_path):
    model = mlp()
    with recorder_of(model, tmp_path, when=Every(5)) as recorder:
        train(model, batch("mlp", 4, seed=0), recorder, 12)
    run = open_run(tmp_path / "run.zarr")
    losses = scalars(run, "loss")
    assert losses["step"].values.tolist() == list(range(12))
    assert float(losses[-1]) < float(losses[0])
    np.testing.assert_array_equal(losses.sel(step=[0, 5, 10]), run.tree["/train/loss"])


class Branches(nn.Module):
    """A layer that never runs, a frozen one, one outside of the loss."""

    def __init__(self):
        super().__init__()
        self.used = nn.Linear(6, 3)
        self.outside = nn.Linear(6, 3)
        self.idle = nn.Linear(6, 3)
        self.frozen = nn.Linear(6, 6)
        self.frozen.requires_grad_(requires_grad=False)

    def forward(self, x):
        x = self.frozen(x)
        self.outside(x)
        return self.used(x)


def test_what_could_not_be_recorded_has_a_status(tmp_path):
    model = Branches()
    with recorder_of(model, tmp_path) as recorder:
        train(model, batch("mlp", 4, seed=0), recorder, 2)
    run = open_run(tmp_path / "run.zarr")
    status = {
        str(name): {Status(int(one)) for one in run.statuses().sel(array=name)}
        for name in run.statuses()["array"].values
    }
    assert status["used backprop"] == {Status.RECORDED}
    assert status["outside backprop"] == {Status.UNUSED}
    assert status["outside output"] == {Status.RECORDED}
    assert status["outside.weight gradient"] == {Status.UNUSED}
    assert status["frozen backprop"] == {Status.NO_GRAD}
    assert status["frozen.weight gradient"] == {Status.FROZEN}
    assert status["idle output"] == {Status.NEVER_CALLED}
    with pytest.raises(MissingRecord, match="never_called"):
        run.output("idle")


def test_a_layer_that_runs_late_is_recorded_from_then_on(tmp_path):
    model = Branches()
    x = batch("mlp", 4, seed=0)
    with recorder_of(model, tmp_path) as recorder:
        train(model, x, recorder, 2)
        with recorder.step(2):
            expected = model.idle(model(x)[:, :1].expand(4, 6))
            loss_of(expected).backward()
    output = open_run(tmp_path / "run.zarr").output("idle")
    assert output["status"].values.tolist() == [Status.NEVER_CALLED] * 2 + [Status.RECORDED]
    np.testing.assert_array_equal(output[2, :, 0].values, expected.detach().numpy())
    assert np.isnan(output[:2].values).all()


def test_micro_batches_follow_one_another_along_example(tmp_path):
    torch.manual_seed(0)
    model = mlp()
    parts = [batch("mlp", n, seed=n) for n in (8, 8, 3)]
    with recorder_of(model, tmp_path, examples=4) as recorder, recorder.step(0):
        for part in parts:
            (loss_of(model(part)) / 3).backward()
    run = open_run(tmp_path / "run.zarr")
    output = run.output("2")
    assert output["microbatch"][0].values.tolist() == [0] * 4 + [1] * 4 + [2] * 3
    for row, number, index in zip(
        output[0, :, 0].values,
        output["microbatch"][0].values,
        output["index"][0].values,
        strict=True,
    ):
        expected = model(parts[number])[index].detach().numpy()
        np.testing.assert_allclose(row, expected, rtol=1e-6)
    np.testing.assert_array_equal(run.gradient("0.weight")[0], model[0].weight.grad.flatten())
    assert np.isnan(run.tree["/train/divisor"][0])


def test_a_short_batch_is_padded_and_counted(tmp_path):
    model = mlp()
    with recorder_of(model, tmp_path) as recorder:
        for step, n in enumerate((6, 2, 0, 6)):
            with recorder.step(step):
                loss_of(model(batch("mlp", n, seed=step))).backward()
    output = open_run(tmp_path / "run.zarr").output("0")
    assert output["n_examples"].values.tolist() == [6, 2, 0, 6]
    assert np.isnan(output[1, 2:].values).all()
    assert np.isfinite(output[3].values).all()


def test_a_larger_batch_makes_the_arrays_grow(tmp_path):
    model = mlp()
    batches = [batch("mlp", n, seed=n) for n in (3, 7, 5)]
    with recorder_of(model, tmp_path, examples=None) as recorder:
        for step, x in enumerate(batches):
            with recorder.step(step):
                loss_of(model(x)).backward()
    inputs = open_run(tmp_path / "run.zarr").input("0")
    assert inputs.shape == (3, 7, 1, 6)
    for found, x in zip(inputs.values, batches, strict=True):
        np.testing.assert_array_equal(found[: len(x), 0], x.numpy())
        assert np.isnan(found[len(x) :]).all()


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_channels_come_last_whatever_the_convolution(dimensions, tmp_path):
    conv = getattr(nn, f"Conv{dimensions}d")(2, 3, 2)
    model = nn.Sequential(conv, nn.GELU())
    x = torch.randn(4, 2, *(5, 4, 3)[:dimensions])
    with recorder_of(model, tmp_path) as recorder, recorder.step(0):
        model(x).square().sum().backward()
    run = open_run(tmp_path / "run.zarr")
    expected = model[0](x).detach()
    np.testing.assert_array_equal(run.output("0")[0].values, rows(expected, channels_first=True))
    # The activation has its features where the convolution has them, for every number of axes.
    activated = model(x).detach()
    np.testing.assert_array_equal(run.output("1")[0].values, rows(activated, channels_first=True))
    assert run.output("1").attrs["spatial_shape"] == list(expected.shape[2:])


def test_the_axis_of_the_examples_can_be_named(tmp_path):
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh())
    x = torch.randn(7, 4, 6)  # time first
    options = {"keep": ("output",), "batch_axis": {"*": 1}}
    with recorder_of(model, tmp_path, **options) as recorder, recorder.step(0, batch_size=4):
        model(x)
    output = open_run(tmp_path / "run.zarr").output("0")
    np.testing.assert_array_equal(output[0], model[0](x).detach().transpose(0, 1).numpy())


def test_examples_by_positions_on_one_axis_are_taken_apart(tmp_path):
    model = nn.Linear(6, 5)
    x = torch.randn(4 * 7, 6)
    options = {"keep": ("output",), "batch_axis": "flat", "examples": 2}
    with recorder_of(model, tmp_path, **options) as recorder, recorder.step(0, batch_size=4):
        model(x)
    output = open_run(tmp_path / "run.zarr").output("")
    index = output["index"][0].values
    np.testing.assert_array_equal(output[0], model(x).detach().reshape(4, 7, 5)[index])


class Position(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(7, 6)
        self.linear = nn.Linear(6, 5)

    def forward(self, x):
        return self.linear(x + self.table(torch.arange(7)))


def test_a_tensor_without_examples_is_stored_whole_and_says_so(tmp_path):
    model = Position()
    with recorder_of(model, tmp_path, examples=2) as recorder, recorder.step(0):
        loss_of(model(torch.randn(4, 7, 6))).backward()
    run = open_run(tmp_path / "run.zarr")
    output = run.output("table")
    assert int(output["status"][0]) == Status.NO_EXAMPLE_AXIS
    np.testing.assert_array_equal(output[0, 0], model.table.weight.detach())
    assert run.input("table").dtype == np.int64
    assert run.output("linear").sizes["example"] == 2


def test_a_differentiation_aside_is_not_a_training_pass(tmp_path):
    model = mlp()
    x = batch("mlp", 4, seed=0)
    with recorder_of(model, tmp_path) as recorder, recorder.step(0):
        loss = loss_of(model(x))
        torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
        loss.backward()
    run = open_run(tmp_path / "run.zarr")
    np.testing.assert_array_equal(run.gradient("0.weight")[0], model[0].weight.grad.flatten())
    model.zero_grad()
    np.testing.assert_array_equal(run.backprop("0")[0, :, 0], truth(model, x)["0", "backprop"])
    assert int(run.tree["/train/n_passes"][0]) == 1


def test_two_backward_passes_of_one_forward_add_up(tmp_path):
    model = mlp()
    x = batch("mlp", 4, seed=0)
    with recorder_of(model, tmp_path) as recorder, recorder.step(0):
        loss = loss_of(model(x))
        loss.backward(retain_graph=True)
        loss.backward()
    run = open_run(tmp_path / "run.zarr")
    model.zero_grad()
    expected = truth(model, x)
    np.testing.assert_array_equal(run.backprop("0")[0, :, 0], 2 * expected["0", "backprop"])
    np.testing.assert_array_equal(
        run.gradient("0.weight")[0], 2 * expected["0.weight", "gradient"].flatten()
    )


def test_a_layer_used_twice_has_two_calls(tmp_path):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(6, 6)

        def forward(self, x):
            return self.linear(self.linear(x).tanh())

    model = Twice()
    x = batch("mlp", 4, seed=0)
    with recorder_of(model, tmp_path) as recorder, recorder.step(0):
        loss_of(model(x)).backward()
    run = open_run(tmp_path / "run.zarr")
    first = model.linear(x)
    second = model.linear(first.tanh())
    first.retain_grad()
    second.retain_grad()
    loss_of(second).backward()
    for call, expected in enumerate((first, second)):
        np.testing.assert_array_equal(
            run.output("linear", call=call)[0, :, 0], expected.detach().numpy()
        )
        np.testing.assert_allclose(
            run.backprop("linear", call=call)[0, :, 0], expected.grad.numpy(), rtol=1e-6
        )


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_gives_one_record_of_each_layer(reentrant, tmp_path):
    torch.manual_seed(0)
    model = mlp(inplace=True)

    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, x):
            return checkpoint(self.inner, x, use_reentrant=reentrant)

    x = batch("mlp", 6, seed=0).requires_grad_()
    with recorder_of(Checkpointed(), tmp_path) as recorder, recorder.step(0):
        loss_of(recorder_model(recorder)(x)).backward()
    run = open_run(tmp_path / "run.zarr")
    twin = mlp()
    twin.load_state_dict(model.state_dict())
    expected = truth(twin, x.detach().requires_grad_())
    for name in ("0", "1", "2"):
        for quantity in ("output", "backprop"):
            np.testing.assert_array_equal(
                run.quantity(quantity, f"inner.{name}")[0, :, 0], expected[name, quantity]
            )


def recorder_model(recorder):
    return recorder._plan.models[0]


def test_bfloat16_comes_back_as_the_same_numbers(tmp_path):
    model = mlp().to(torch.bfloat16)
    x = batch("mlp", 4, seed=0).to(torch.bfloat16)
    with recorder_of(model, tmp_path) as recorder, recorder.step(0):
        loss_of(model(x)).backward()
    output = open_run(tmp_path / "run.zarr").output("0")
    assert output.dtype == np.float32
    np.testing.assert_array_equal(output[0, :, 0], model[0](x).detach().float())


def test_double_precision_stays(tmp_path):
    model = mlp().double()
    with recorder_of(model, tmp_path) as recorder, recorder.step(0):
        loss_of(model(batch("mlp", 4, seed=0).double())).backward()
    run = open_run(tmp_path / "run.zarr")
    assert run.output("0").dtype == np.float64
    assert run.gradient("0.weight").dtype == np.float64


def test_not_a_number_is_stored_as_it_is(tmp_path):
    model = mlp()
    x = batch("mlp", 4, seed=0)
    x[1] = float("nan")
    x[2] = float("inf")
    with recorder_of(model, tmp_path) as recorder, recorder.step(0):
        loss_of(model(x)).backward()
    np.testing.assert_array_equal(open_run(tmp_path / "run.zarr").input("0")[0, :, 0], x)


def test_validation_inside_a_step_is_not_recorded(tmp_path):
    model = mlp()
    x = batch("mlp", 4, seed=0)
    with recorder_of(model, tmp_path) as recorder, recorder.step(0):
        loss = loss_of(model(x))
        model.eval()
        with torch.no_grad():
            model(2 * x)
        model.train()
        loss.backward()
    run = open_run(tmp_path / "run.zarr")
    np.testing.assert_array_equal(run.input("0")[0, :, 0], x)
    assert run.tree["/train/n_microbatches"].values.tolist() == [1]


def test_an_exception_in_the_step_leaves_no_record_and_no_hook(tmp_path):
    model = mlp()
    with recorder_of(model, tmp_path) as recorder:
        with pytest.raises(RuntimeError, match="shapes"), recorder.step(0):
            model(model(batch("mlp", 4, seed=0)))
        assert not model[0]._forward_hooks
        with recorder.step(0):
            loss_of(model(batch("mlp", 4, seed=0))).backward()
    assert open_run(tmp_path / "run.zarr").steps.tolist() == [0]


def test_begin_end_and_abort_are_the_same_for_callbacks(tmp_path):
    model = mlp()
    recorder = recorder_of(model, tmp_path)
    for step in range(3):
        record = recorder.begin(step, epoch=step // 2)
        loss = loss_of(model(batch("mlp", 4, seed=step)))
        loss.backward()
        record.log(loss=loss)
        recorder.abort() if step == 1 else recorder.end()
    recorder.close()
    recorder.close()
    run = open_run(tmp_path / "run.zarr")
    assert run.steps.tolist() == [0, 2]
    assert run.output("0")["epoch"].values.tolist() == [0, 1]


def test_a_fault_in_a_hook_costs_the_step_not_the_training(tmp_path, monkeypatch):
    model = mlp()
    x = batch("mlp", 4, seed=0)
    with recorder_of(model, tmp_path, on_error="disable") as recorder:
        train(model, x, recorder, 1)
        with monkeypatch.context() as patch:
            patch.setattr("outcrop.capture.hooks.take_rows", None)
            with pytest.warns(RuntimeWarning, match="could not be recorded"), recorder.step(1):
                loss_of(model(x)).backward()
        with recorder.step(2):
            loss_of(model(x)).backward()
    run = open_run(tmp_path / "run.zarr")
    assert run.output("0")["status"].values.tolist() == [
        Status.RECORDED,
        Status.ERROR,
        Status.RECORDED,
    ]


def test_after_three_faults_the_recorder_rests(tmp_path, monkeypatch):
    model = mlp()
    monkeypatch.setattr("outcrop.capture.hooks.take_rows", None)
    with recorder_of(model, tmp_path, on_error="disable") as recorder:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            train(model, batch("mlp", 4, seed=0), recorder, 6)
        assert len(told) == 3
        assert "has stopped" in str(told[-1].message)
    assert open_run(tmp_path / "run.zarr").steps.tolist() == [0, 1, 2]


def test_an_error_of_the_writer_is_told_at_the_next_step(tmp_path, monkeypatch):
    model = mlp()
    x = batch("mlp", 4, seed=0)
    with recorder_of(model, tmp_path, on_error="disable") as recorder:
        train(model, x, recorder, 2)
        recorder.flush()
        monkeypatch.setattr(recorder._assembler._store, "append", full_disk)
        with recorder.step(2):
            loss_of(model(x)).backward()
        recorder._writer.flush()
        with pytest.warns(RuntimeWarning, match="No space left"), recorder.step(3):
            loss_of(model(x)).backward()
    assert open_run(tmp_path / "run.zarr").steps.tolist() == [0, 1]


def full_disk(*_):
    raise OSError(28, "No space left on device")


def test_a_recorded_model_can_be_copied_and_pickled(tmp_path):
    model = mlp()
    with recorder_of(model, tmp_path) as recorder:
        train(model, batch("mlp", 4, seed=0), recorder, 1)
        twin = copy.deepcopy(model)
        pickle.loads(pickle.dumps(model))
        assert not twin[0]._forward_hooks


def test_several_models_keep_their_names_apart(tmp_path):
    models = {"generator": mlp(), "critic": nn.Linear(3, 1)}
    with recorder_of(models, tmp_path) as recorder, recorder.step(0):
        models["critic"](models["generator"](batch("mlp", 4, seed=0))).mean().backward()
    run = open_run(tmp_path / "run.zarr")
    assert run.layers == ("generator.0", "generator.1", "generator.2", "critic")
    assert run.gradient("critic.weight").shape == (1, 3)


def test_tied_parameters_have_one_name_and_aliases(tmp_path):
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))
    model[2].weight = model[0].weight
    with recorder_of(model, tmp_path) as recorder, recorder.step(0):
        loss_of(model(batch("mlp", 4, seed=0))).backward()
    run = open_run(tmp_path / "run.zarr")
    assert run.parameters == ("0.weight", "0.bias", "2.bias")
    np.testing.assert_array_equal(run.gradient("2.weight"), run.gradient("0.weight"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": ("outputs",)}, "did you mean 'output'"),
        ({"keep": ()}, "got nothing"),
        ({"layers": "con*"}, "matches no layer"),
        ({"layers": ["O", 0]}, "matches no layer"),
        ({"layers": nn.Conv2d}, "Conv2d"),
        ({"layers": lambda name, module: False}, "selects no layer"),
        ({"examples": 0}, "at least 1"),
        ({"positions": -1}, "at least 1"),
        ({"when": 0}, "at least 1 step"),
        ({"mode": "r"}, "mode= is one of"),
        ({"loss_reduction": "none"}, "loss_reduction= is one of"),
        ({"batch_axis": {"*": "first"}}, "'flat' or None"),
        ({"include": ("gut",)}, "provenance has the facts"),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_a_mistake_in_an_option_is_told_and_nothing_is_created(options, message, tmp_path):
    with pytest.raises((ValueError, TypeError), match=message):
        recorder_of(mlp(), tmp_path, **options)
    assert not list(tmp_path.iterdir())


def test_a_step_is_recorded_once(tmp_path):
    model = mlp()
    with recorder_of(model, tmp_path) as recorder:
        train(model, batch("mlp", 4, seed=0), recorder, 2)
        with pytest.raises(ValueError, match="each is recorded once"), recorder.step(1):
            pass


def test_a_step_that_comes_again_does_not_stop_the_training(tmp_path):
    model = mlp()
    x = batch("mlp", 4, seed=0)
    with recorder_of(model, tmp_path, on_error="disable") as recorder:
        train(model, x, recorder, 2)
        expected = model[0].weight.clone()
        with pytest.warns(RuntimeWarning, match="goes on over epochs"):
            train(model, x, recorder, 1)
        assert not torch.equal(model[0].weight, expected)
    assert open_run(tmp_path / "run.zarr").steps.tolist() == [0, 1]


@pytest.mark.parametrize("kind", BATCHES)
def test_layers_stand_in_forward_order(kind, tmp_path):
    layers = list(NETS[kind]())
    order = nn.ModuleDict({f"layer{len(layers) - i}": layer for i, layer in enumerate(layers)})

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            # Registered in another order than they run.
            self.parts = nn.ModuleDict(dict(reversed(order.items())))

        def forward(self, x):
            for name in order:
                x = self.parts[name](x)
            return x

    with recorder_of(Net(), tmp_path, keep=("output",)) as recorder, recorder.step(0):
        recorder_model(recorder)(batch(kind, 3, seed=0))
    assert open_run(tmp_path / "run.zarr").layers == tuple(f"parts.{name}" for name in order)


def test_what_was_recorded_is_let_go_without_the_help_of_garbage_collection(tmp_path, monkeypatch):
    taken = []

    def spy(*arguments):
        rows = take_rows(*arguments)
        taken.append(weakref.ref(rows.values))
        return rows

    for module in ("hooks", "backprops"):
        monkeypatch.setattr(f"outcrop.capture.{module}.take_rows", spy)
    model = NETS["tokens"](inplace=True)
    losses = []  # keeps the graphs, and the hooks in them, alive
    gc.disable()
    try:
        with recorder_of(model, tmp_path) as recorder:
            for step in range(5):
                with recorder.step(step):
                    losses.append(loss_of(model(batch("tokens", 4, seed=0))))
                    losses[-1].backward()
            recorder.flush()
            assert len(taken) == 5 * 9
            assert not [one for one in taken if one() is not None]
    finally:
        gc.enable()


def test_positions_of_growing_sequences_are_never_taken_for_all(tmp_path):
    model = nn.Linear(6, 5)
    with recorder_of(model, tmp_path, keep=("output",), positions=8) as recorder:
        for step, length in enumerate((5, 8, 20)):
            with recorder.step(step):
                model(torch.randn(4, length, 6))
    run = open_run(tmp_path / "run.zarr")
    output = run.output("")
    assert output["n_positions"].values[:, 0].tolist() == [5, 8, 8]
    assert run.tree["/train/layers/~root/output/n_positions_total"].values.tolist() == [5, 8, 20]
    with pytest.raises(ValueError, match="8 of 20 were recorded"):
        saturation(run, pooling="mean")
    early = output.isel(step=slice(0, 2)).assign_attrs(positions_total=8)
    assert np.isfinite(saturation(early, pooling="mean")).all()


@pytest.mark.parametrize(
    "second",
    [torch.randn(4, 7, 6), torch.randn(4, 6).double(), torch.randn(3, 6).to(torch.bfloat16)],
    ids=["axes", "double", "bfloat16"],
)
def test_what_an_array_cannot_hold_has_a_status_and_spoils_nothing(second, tmp_path):
    model = nn.Identity()
    first = torch.randn(4, 6)
    with recorder_of(model, tmp_path, keep=("output",)) as recorder:
        for step, x in enumerate((first, second, first)):
            with recorder.step(step):
                model(x)
    output = open_run(tmp_path / "run.zarr").output("")
    assert output["status"].values.tolist() == [
        Status.RECORDED,
        Status.UNSUPPORTED,
        Status.RECORDED,
    ]
    np.testing.assert_array_equal(output[2, :, 0], first)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=["float", "integer"])
def test_padding_of_a_pass_that_a_layer_left_out_does_not_count(dtype, tmp_path):
    class Sometimes(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Identity()

        def forward(self, x, *, use):
            return self.layer(x) if use else x

    model = Sometimes()
    parts = [torch.randint(100, (4, 3)).to(dtype) for _ in range(3)]
    with recorder_of(model, tmp_path, keep=("output",)) as recorder:
        for step, uses in enumerate([(True,), (False, True, True), (True, False, False)]):
            with recorder.step(step):
                for part, use in zip(parts, uses, strict=False):
                    model(part, use=use)
    run = open_run(tmp_path / "run.zarr")
    used = [parts[:1], parts[1:], parts[:1]]
    for over in ("step", "run"):
        for pooling in ("each", "mean"):
            found = covariance(run, layer="layer", over=over, pooling=pooling).values
            rows = [torch.cat(one).double().numpy() for one in used]
            rows = [np.concatenate(rows)] if over == "run" else rows
            expected = [np.cov(one.T, ddof=0) for one in rows]
            np.testing.assert_allclose(found.reshape(-1, 3, 3), expected, rtol=1e-12)
    counts = saturation(run)
    assert counts["n_samples"].values.ravel().tolist() == [4, 8, 4]
    assert not counts["n_nonfinite"].any()


def test_passes_of_unlike_kinds_have_a_status(tmp_path):
    model = nn.Identity()
    with recorder_of(model, tmp_path, keep=("output",)) as recorder:
        for step, widths in enumerate([(6, 5), (6, 6)]):
            with recorder.step(step):
                for width in widths:
                    model(torch.randn(4, width))
    output = open_run(tmp_path / "run.zarr").output("")
    assert output["status"].values.tolist() == [Status.UNSUPPORTED, Status.RECORDED]


def test_a_model_that_only_ran_in_eval_mode_is_told(tmp_path):
    model = mlp().eval()
    told = pytest.warns(RuntimeWarning, match="eval mode alone")
    with recorder_of(model, tmp_path, on_error="disable") as recorder, told, recorder.step(0):
        loss_of(model(batch("mlp", 4, seed=0))).backward()
    assert set(open_run(tmp_path / "run.zarr").statuses().values.ravel()) == {Status.ERROR}


def test_the_seed_alone_decides_the_sample(tmp_path):
    index = []
    for number, seed in enumerate((0, 0, 1)):
        model = mlp()
        torch.manual_seed(number)
        recorder = Recorder(model, tmp_path / f"{number}.zarr", when=1, examples=8, seed=seed)
        with recorder, recorder.step(0):
            model(batch("mlp", 64, seed=0))
        index.append(open_run(tmp_path / f"{number}.zarr").output("0")["index"].values.tolist())
    assert index[0] == index[1] != index[2]


@pytest.mark.parametrize(
    ("reduction", "given", "expected"), [("mean", None, 4), ("sum", None, 1), ("mean", 12, 12)]
)
def test_the_divisor_is_stored(reduction, given, expected, tmp_path):
    model = mlp()
    recorder = recorder_of(model, tmp_path, loss_reduction=reduction)
    with recorder, recorder.step(0, divisor=given):
        loss_of(model(batch("mlp", 4, seed=0))).backward()
    assert open_run(tmp_path / "run.zarr").backprop("0")["divisor"].values.tolist() == [expected]


def test_a_short_queue_makes_the_loop_wait_and_loses_nothing(tmp_path):
    model = mlp()
    with recorder_of(model, tmp_path, max_queue_bytes=1) as recorder:
        train(model, batch("mlp", 4, seed=0), recorder, 20)
    assert open_run(tmp_path / "run.zarr").steps.tolist() == list(range(20))


def test_facts_of_the_environment_can_be_left_out(tmp_path):
    recorder_of(mlp(), tmp_path, include=("versions",)).close()
    environment = open_run(tmp_path / "run.zarr").document["environment"]
    assert list(environment) == ["versions"]


@pytest.mark.parametrize(
    ("layers", "found"),
    [
        ("[02]", ("0", "2")),
        (nn.ReLU, ("1",)),
        (["0", nn.ReLU], ("0", "1")),
        (lambda name, module: name == "2", ("2",)),
        (None, ("0", "1", "2")),
    ],
    ids=["glob", "class", "both", "predicate", "all"],
)
def test_layers_are_chosen_by_glob_class_or_predicate(layers, found, tmp_path):
    model = mlp()
    with recorder_of(model, tmp_path, layers=layers) as recorder, recorder.step(0):
        loss_of(model(batch("mlp", 4, seed=0))).backward()
    assert open_run(tmp_path / "run.zarr").layers == found


@pytest.mark.parametrize(
    ("schedule", "steps"),
    [
        (Every(4, start=2), [2, 6, 10]),
        (Every(4, burst=2, stop=8), [0, 1, 4, 5]),
        (lambda step, epoch: step == 3, [3]),
        (5, [0, 5, 10]),
    ],
    ids=["start", "burst", "function", "number"],
)
def test_schedules_say_which_steps(schedule, steps, tmp_path):
    model = mlp()
    with recorder_of(model, tmp_path, when=schedule) as recorder:
        train(model, batch("mlp", 4, seed=0), recorder, 12)
    assert open_run(tmp_path / "run.zarr").steps.tolist() == steps
