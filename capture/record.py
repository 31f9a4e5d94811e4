"""One step, as the training script sees it."""

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from torch import Tensor

if TYPE_CHECKING:
    from .recorder import Recorder


class Record:
    """One step being recorded, or left out: what ``with recorder.step(i) as record`` gives."""

    __slots__ = ("batch_size", "epoch", "logged", "number", "pass_divisor", "recorder")

    def __init__(
        self,
        recorder: "Recorder",
        number: int | None = None,
        *,
        epoch: int | None = None,
        batch_size: int | None = None,
        divisor: float | None = None,
    ) -> None:
        self.recorder = recorder
        self.number = -1 if number is None else number
        self.epoch = epoch
        self.batch_size = batch_size
        self.pass_divisor = divisor
        self.logged: dict[str, float | Tensor] = {}

    def __enter__(self) -> Self:
        if self is not self.recorder._idle:
            self.recorder._open(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self is self.recorder._idle:
            return
        if kind is None:
            self.recorder._finish(self)
        else:
            self.recorder._drop()

    def log(self, **values: float | Tensor) -> None:
        """Keep scalars of this step, whether it is sampled or not.

        Raises
        ------
        ValueError
            If a value is not a single number.
        """
        numbers = {name: _number(name, value) for name, value in values.items()}
        self.logged.update(numbers)
        self.recorder._log(self.number, numbers)


def _number(name: str, value: Any) -> float | Tensor:
    """Take a scalar; one on a device is copied there and read later, without waiting for it."""
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise ValueError(f"log() takes single numbers; {name!r} has shape {list(value.shape)}")
        value = value.detach()
        return float(value) if value.device.type == "cpu" else value.clone()
    return float(value)
