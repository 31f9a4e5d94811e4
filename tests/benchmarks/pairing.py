"""Paired timing: what is compared runs in turn in one process, and only ratios are quoted."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter


@dataclass(frozen=True)
class Ratio:
    """Median and quartiles of the ratios of the rounds."""

    median: float
    low: float
    high: float
    rounds: int

    def __str__(self) -> str:
        return f"{self.median:.3f} ({self.low:.3f}-{self.high:.3f}, {self.rounds} pairs)"


def paired(
    one: Callable[[], object],
    other: Callable[[], object],
    *,
    seconds: float,
    least: int = 5,
    after: Callable[[], object] = lambda: None,
) -> Ratio:
    """Time `one` against `other` in turn until the seconds are spent.

    The order turns round after each pair, so that a drift of the machine's speed cancels. What
    `after` does between the calls is not timed.
    """
    for warm_up in (one, other):
        warm_up(), after()
    ratios: list[float] = []
    end = perf_counter() + seconds
    while len(ratios) < least or perf_counter() < end:
        order = (one, other) if len(ratios) % 2 else (other, one)
        times = {}
        for call in order:
            times[call] = timed(call)
            after()
        ratios.append(times[one] / times[other])
    low, median, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return Ratio(median, low, high, len(ratios))


def timed(call: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    start = perf_counter()
    call()
    return perf_counter() - start
