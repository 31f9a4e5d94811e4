"""The recorder: what a training script sees of outcrop."""

import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from . import format as names
from .assembly import Assembler, ScalarRow
from .faults import Faults
from .hooks import StepCapture
from .layout import BatchAxis
from .options import (
    OnError,
    Quantity,
    Reduction,
    checked_batch_axis,
    checked_count,
    checked_keep,
    checked_word,
    named_models,
)
from .plan import expected_arrays, make_document, make_plan
from .record import Record
from .sampling import example_index, position_index
from .schedule import Every, When, schedule
from .selection import Layers
from .step import StepData
from .store import Compression, Fsync, Mode, create_store
from .writer import WriterThread

_SCALAR_SECONDS = 1.0


class Recorder:
    """Record what flows through a model on some steps of its training.

    Parameters
    ----------
    model : Module or dict of str to Module
        The model, or several by name.
    path : path
        Where the store goes; the suffix names its form.
    keep : iterable of str
        The quantities: ``"input"``, ``"output"`` and ``"backprop"`` (dL/d output) of layers,
        ``"gradient"`` of parameters.
    layers : None, glob, class, sequence of these, or predicate
        None for every leaf layer with a documented meaning.
    when : int, schedule or callable
        The steps to record: an interval, `Every`, `At`, `First`, joined with ``|``, or a
        function ``(step, epoch) -> bool``.
    examples : int or None
        How many examples of each forward pass to keep; None for all.
    positions : int or None
        How many positions to keep of images and sequences; None for all. The input of a
        convolution keeps all of its positions.
    batch_axis : mapping of str to int, "flat" or None
        Axis of the examples, by glob of layers, where it is not axis 0. ``"flat"`` where axis 0
        holds examples x positions, None where no axis counts the examples.
    loss_reduction : {"mean", "sum"}
        How the loss joins the examples; says what backprops must be multiplied by.
    optimizer : Optimizer or None
        Its class, settings and learning rates are recorded.
    seed : int
        Seed of the draw of examples and positions; the draw never touches torch's or numpy's
        random state.
    compression : {"zstd", "none"} or None
        Codec of the large arrays; None takes ``"zstd"`` for Zarr and ``"none"`` for HDF5, where
        other programs need a plugin to read it.
    max_queue_bytes : int
        How much may wait to be written before the training loop waits.
    attrs : mapping
        Facts of your own, such as hyperparameters, as JSON values.
    include : iterable of str or None
        Which facts of the environment go into the store: some of ``"git"``, ``"command"``,
        ``"versions"``, ``"platform"``; None for all.
    mode : {"x", "w"}
        ``"x"`` refuses a path that exists, ``"w"`` replaces a store of ours.
    on_error : {"disable", "raise"}
        What a fault in the recorder does: that step is lost, with a warning, and after three
        the recorder rests; or the exception is raised.
    fsync : {"never", "seal"} or float
        When data are forced to the disk.

    Raises
    ------
    FileExistsError
        If `path` exists.
    ValueError, TypeError
        If an option has no meaning; nothing has been created then.

    Examples
    --------
    >>> import tempfile
    >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> path = Path(tempfile.mkdtemp()) / "run.zarr"
    >>> with Recorder(model, path, keep=("output", "backprop"), when=Every(10)) as recorder:
    ...     for step in range(20):
    ...         with recorder.step(step) as record:
    ...             loss = model(torch.randn(8, 4)).square().mean()
    ...             loss.backward()
    ...             record.log(loss=loss)
    >>> recorder.n_records
    2
    """

    def __init__(
        self,
        model: nn.Module | Mapping[str, nn.Module],
        path: str | Path,
        *,
        keep: Iterable[Quantity] = ("output",),
        layers: Layers = None,
        when: When = Every(100),
        examples: int | None = 64,
        positions: int | None = None,
        batch_axis: Mapping[str, BatchAxis] | BatchAxis | Literal["auto"] = "auto",
        loss_reduction: Reduction = "mean",
        optimizer: Optimizer | None = None,
        seed: int = 0,
        compression: Compression | None = None,
        max_queue_bytes: int = 256 * 2**20,
        attrs: Mapping[str, Any] | None = None,
        include: Iterable[str] | None = None,
        mode: Mode = "x",
        on_error: OnError = "disable",
        fsync: Fsync = "seal",
    ) -> None:
        self._when = schedule(when)
        self._examples = checked_count(examples, name="examples")
        self._positions = checked_count(positions, name="positions")
        self._reduction = checked_word(loss_reduction, get_args(Reduction), name="loss_reduction")
        checked_word(on_error, get_args(OnError), name="on_error")
        if compression is not None:
            checked_word(compression, get_args(Compression), name="compression")
        checked_word(mode, get_args(Mode), name="mode")
        self._optimizer = optimizer
        self._seed = seed
        models = named_models(model)
        self._plan = make_plan(
            models, layers, keep=checked_keep(keep), batch_axis=checked_batch_axis(batch_axis)
        )
        settings = {
            "when": repr(self._when),
            "examples": examples,
            "positions": positions,
            "loss_reduction": loss_reduction,
            "seed": seed,
        }
        document = make_document(
            self._plan, models, settings=settings, optimizer=optimizer, attrs=attrs, include=include
        )
        self.path = Path(path)
        self._faults = Faults(self.path, on_error)
        store = create_store(self.path, mode=mode, compression=compression, fsync=fsync)
        self._assembler = Assembler(store, document, expected_arrays(self._plan))
        self._writer = WriterThread(self._assembler.write, max_bytes=max_queue_bytes)
        self._idle = Record(self)
        self._active: Record | None = None
        self._capture: StepCapture | None = None
        self._stance: AbstractContextManager[Any] = nullcontext()
        self._scalars: list[tuple[int, str, float | Tensor]] = []
        self._scalars_since = time.monotonic()
        self._recorded: set[int] = set()
        self._closed = False

    @property
    def n_records(self) -> int:
        """Number of steps recorded so far."""
        return len(self._recorded)

    # One step.
    def step(
        self,
        step: int,
        *,
        epoch: int | None = None,
        batch_size: int | None = None,
        divisor: float | None = None,
    ) -> "Record":
        """Open the block of one training step: forward, backward, update.

        Parameters
        ----------
        step : int
            Number of the step; each is recorded once.
        epoch : int or None
            Number of the epoch.
        batch_size : int or None
            Number of examples in a forward pass; None takes it from the model's first input.
        divisor : float or None
            What each pass's loss was divided by; None for the number of examples of the pass
            (``loss_reduction="mean"``) or 1 (``"sum"``).

        Returns
        -------
        Record
            A context manager. On steps that the schedule leaves out it does nothing but take
            scalars.
        """
        if self._faults.resting or not self._when(step, epoch):
            self._idle.number = step
            return self._idle
        return Record(self, step, epoch=epoch, batch_size=batch_size, divisor=divisor)

    def begin(
        self,
        step: int,
        *,
        epoch: int | None = None,
        batch_size: int | None = None,
        divisor: float | None = None,
    ) -> "Record":
        """Begin a step, for training loops that call back; `end` or `abort` must follow."""
        record = self.step(step, epoch=epoch, batch_size=batch_size, divisor=divisor)
        record.__enter__()
        self._active = record
        return record

    def end(self) -> None:
        """End the step that `begin` began, and hand it to the writer."""
        if self._active is not None:
            record, self._active = self._active, None
            record.__exit__(None, None, None)

    def abort(self) -> None:
        """Drop the step that `begin` began; nothing of it is kept."""
        self._active = None
        self._drop()

    def _open(self, record: "Record") -> None:
        if self._closed:
            raise RuntimeError(f"the recorder of {str(self.path)!r} is closed; make a new one")
        if self._capture is not None:
            raise RuntimeError("a step is open already; end() or abort() it first")
        self._tell_writer_error()
        if self._faults.resting or not self._is_new(record.number):
            return
        self._stance = _eager()
        self._stance.__enter__()
        draw: dict[str, Any] = {"seed": self._seed, "stream": names.TRAIN, "step": record.number}
        self._capture = StepCapture(
            self._plan,
            draw=lambda n, number: example_index(n, self._examples, **draw, microbatch=number),
            choose=partial(_choose, limit=self._positions, draw=draw),
            batch_size=record.batch_size,
            fail=self._faults.note,
        )

    def _is_new(self, step: int) -> bool:
        if step >= 0 and step not in self._recorded:
            return True
        self._faults.note(
            ValueError(
                f"steps are numbered from 0 and each is recorded once; got {step} again or below "
                "0: give step() a number that goes on over epochs"
            )
        )
        self._faults.end_step()
        return False

    def _finish(self, record: "Record") -> None:
        capture = self._release()
        if capture is None:
            return
        try:
            data = StepData(self._step_table(record, capture), failed=True)
            if capture.only_evaluated:
                self._faults.note(
                    RuntimeError(
                        "a step records forward passes in train mode, and the model ran in eval "
                        "mode alone: call model.train(), if need be with single layers in eval()"
                    )
                )
            if not self._faults.step_failed:
                data = capture.finish(data.table)
            self._writer.put(data, data.nbytes)
            self._recorded.add(record.number)
        except Exception as error:  # noqa: BLE001 - by the recorder's rule
            self._faults.note(error)
        capture.release()
        self._faults.end_step()
        self._flush_scalars()

    def _drop(self) -> None:
        capture = self._release()
        if capture is not None:
            capture.release()

    def _release(self) -> StepCapture | None:
        capture, self._capture = self._capture, None
        if capture is not None:
            capture.remove()
            self._stance.__exit__(None, None, None)
        return capture

    def _step_table(self, record: "Record", capture: StepCapture) -> dict[str, Any]:
        table: dict[str, Any] = {
            "step": record.number,
            "wall_time": time.time(),
            "n_microbatches": len(capture.pass_sizes),
            "n_passes": capture.n_backward,
            "divisor": self._divisor(record, capture),
        }
        optional = {
            "epoch": record.epoch,
            "batch_size": capture.batch_size,
        }
        table |= {name: value for name, value in optional.items() if value is not None}
        if "loss" in record.logged:
            table["loss"] = float(record.logged["loss"])
        if self._optimizer is not None:
            table["learning_rate"] = [float(g["lr"]) for g in self._optimizer.param_groups]
        return table

    def _divisor(self, record: "Record", capture: StepCapture) -> float:
        if record.pass_divisor is not None:
            return float(record.pass_divisor)
        if self._reduction == "sum":
            return 1.0
        sizes = set(capture.pass_sizes)
        # Passes of unlike sizes have no common divisor.
        return float(sizes.pop()) if len(sizes) == 1 else np.nan

    # Scalars.
    def _log(self, step: int, values: Mapping[str, Any]) -> None:
        self._scalars += [(step, name, value) for name, value in values.items()]
        if time.monotonic() - self._scalars_since > _SCALAR_SECONDS:
            self._flush_scalars()

    def _flush_scalars(self) -> None:
        scalars, self._scalars = self._scalars, []
        self._scalars_since = time.monotonic()
        if scalars and not self._faults.resting:
            rows = [ScalarRow(step, name, float(value)) for step, name, value in scalars]
            self._writer.put(rows, 0)

    # Writing and closing.
    def _tell_writer_error(self) -> None:
        if self._writer.error is not None:
            self._faults.rest(self._writer.error)

    def flush(self) -> None:
        """Wait until everything recorded so far is committed."""
        self._flush_scalars()
        self._writer.flush()
        self._tell_writer_error()

    def close(self) -> None:
        """Commit what waits and seal the store. Closing twice does no harm."""
        if self._closed:
            return
        self._drop()
        self._flush_scalars()
        self._closed = True
        self._writer.close()
        try:
            self._assembler.close()
        except Exception as error:  # noqa: BLE001 - by the recorder's rule
            self._faults.rest(error)
        self._tell_writer_error()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _choose(n: int, *, limit: int | None, draw: Mapping[str, Any]) -> Tensor | None:
    if limit is None:
        return None
    return torch.from_numpy(position_index(n, limit, **draw))


def _eager() -> AbstractContextManager[Any]:
    """Run compiled models eagerly on this step: hooks in a compiled graph see nothing."""
    if "torch._dynamo" not in sys.modules:  # nothing has been compiled
        return nullcontext()
    stance: AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return stance
