"""When to record: schedules of steps."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias


class Schedule:
    """Says of each step whether it is recorded. Schedules join with ``|``."""

    def __call__(self, step: int, epoch: int | None = None) -> bool:
        """Whether `step` is recorded."""
        raise TypeError(f"{type(self).__name__} does not say when to record")

    def __or__(self, other: "When") -> "Schedule":
        return Either(self, schedule(other))

    def __ror__(self, other: "When") -> "Schedule":
        return Either(schedule(other), self)


When: TypeAlias = int | Schedule | Callable[[int, int | None], bool]
"""What can be said for a schedule: `n` (every n-th step), a schedule, or a function."""


@dataclass(frozen=True)
class Every(Schedule):
    """Record every `n`-th step, counted from `start`, which is recorded itself.

    Parameters
    ----------
    n : int
        The interval in steps.
    burst : int
        How many neighbouring steps to record each time.
    start : int
        The first recorded step.
    stop : int or None
        Steps from here on are not recorded.

    Raises
    ------
    ValueError
        If the interval is not positive, the burst is not within it, or `stop` is not after `start`.

    Examples
    --------
    >>> [step for step in range(12) if Every(5, burst=2)(step)]
    [0, 1, 5, 6, 10, 11]
    """

    n: int
    burst: int = 1
    start: int = 0
    stop: int | None = None

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError(f"an interval is at least 1 step; got {self.n}")
        if not 1 <= self.burst <= self.n:
            raise ValueError(
                f"a burst has 1 to {self.n} steps, as the interval has; got {self.burst}"
            )
        if self.stop is not None and self.stop <= self.start:
            raise ValueError(f"stop comes after start; got start {self.start}, stop {self.stop}")

    def __call__(self, step: int, epoch: int | None = None) -> bool:
        """Whether `step` is recorded."""
        if step < self.start or (self.stop is not None and step >= self.stop):
            return False
        return (step - self.start) % self.n < self.burst


@dataclass(frozen=True, init=False)
class At(Schedule):
    """Record the given steps.

    Examples
    --------
    >>> [step for step in range(100) if At([0, 10, 99])(step)]
    [0, 10, 99]
    """

    steps: frozenset[int]

    def __init__(self, steps: Iterable[int]) -> None:
        object.__setattr__(self, "steps", frozenset(map(int, steps)))

    def __call__(self, step: int, epoch: int | None = None) -> bool:
        """Whether `step` is recorded."""
        return step in self.steps

    def __repr__(self) -> str:
        return f"At({sorted(self.steps)})"


@dataclass(frozen=True)
class First(Schedule):
    """Record the steps 0 to `n` - 1.

    Examples
    --------
    >>> [step for step in range(12) if (First(3) | Every(5))(step)]
    [0, 1, 2, 5, 10]
    """

    n: int

    def __call__(self, step: int, epoch: int | None = None) -> bool:
        """Whether `step` is recorded."""
        return 0 <= step < self.n


@dataclass(frozen=True)
class Either(Schedule):
    """Record a step that either of two schedules records."""

    one: Schedule
    other: Schedule

    def __call__(self, step: int, epoch: int | None = None) -> bool:
        """Whether `step` is recorded."""
        return self.one(step, epoch) or self.other(step, epoch)

    def __repr__(self) -> str:
        return f"{self.one!r} | {self.other!r}"


@dataclass(frozen=True)
class Custom(Schedule):
    """Ask a function `(step, epoch) -> bool`."""

    function: Callable[[int, int | None], bool]

    def __call__(self, step: int, epoch: int | None = None) -> bool:
        """Whether `step` is recorded."""
        return bool(self.function(step, epoch))


def schedule(when: When) -> Schedule:
    """Make a schedule of what a user may say for one.

    Raises
    ------
    TypeError
        If it is none of an int, a schedule and a function.

    Examples
    --------
    >>> schedule(100)
    Every(n=100, burst=1, start=0, stop=None)
    """
    if isinstance(when, Schedule):
        return when
    if isinstance(when, int) and not isinstance(when, bool):
        return Every(when)
    if callable(when):
        return Custom(when)
    raise TypeError(
        f"when is an int, Every, At, First or a function (step, epoch) -> bool; got {when!r}"
    )
