"""Measuring short pieces of code against each other, on a machine that others use too.

All cases run round-robin, in alternating direction, in one process pinned to one CPU, in windows of about
0.4 ms. A window that an involuntary context switch hit is repeated. The figure is the median over the rounds,
less the cost of the loop itself. Figures of one run compare; figures of two runs do so only roughly.
"""

from __future__ import annotations

import contextlib
import os
import resource
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

WINDOW_NS = 400_000
TRIES = 6
WARM_UP = 64  # calls: enough for the interpreter to specialise the loop

Run = Callable[[int], int]
"""Does something n times and answers the ns it took."""
Around = Callable[[], AbstractContextManager[object]]
"""Entered around each window, outside the timed part."""


def pin() -> int:
    """Stay on one CPU, the last that we may use: interrupts prefer the first."""
    cpu = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpu})
    return cpu


def loop(body: str, **names: object) -> Run:
    """A function that runs `body` n times, with `names` as locals."""
    lines = "\n".join("        " + line for line in body.splitlines())
    source = (
        f"def run(n, clock, {', '.join(names)}):\n"
        "    times = range(n)\n    _begin = clock()\n"
        f"    for _ in times:\n{lines}\n    return clock() - _begin\n"
    )
    space: dict[str, Callable[..., int]] = {}
    exec(source, space)
    run, values = space["run"], tuple(names.values())
    return lambda n: run(n, time.perf_counter_ns, *values)


def cold(body: str, evict: Callable[[], object], **names: object) -> Run:
    """As `loop`, but the caches are overwritten before every execution, and only the body is timed."""
    lines = "\n".join("        " + line for line in body.splitlines())
    source = (
        f"def run(n, clock, evict, {', '.join(names)}):\n"
        "    times = []\n    for _ in range(n):\n        evict()\n        _begin = clock()\n"
        f"{lines}\n        times.append(clock() - _begin)\n    return sorted(times)[n // 2] * n\n"
    )
    space: dict[str, Callable[..., int]] = {}
    exec(source, space)
    run, values = space["run"], tuple(names.values())
    return lambda n: run(n, time.perf_counter_ns, evict, *values)


def timed(function: Callable[[int], object]) -> Run:
    """A loop in C, timed from outside."""

    def run(n: int) -> int:
        start = time.perf_counter_ns()
        function(n)
        return time.perf_counter_ns() - start

    return run


def _involuntary() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw


@dataclass
class Case:
    """One thing to measure. Its cost is `value()`: per call, less what `base` costs in the same run."""

    name: str
    run: Run
    base: str | None = "loop"
    around: Around = nullcontext
    count: int | None = None
    """Calls in a window; by default as many as fill it."""
    least: int = 8
    samples: list[float] = field(default_factory=list)
    disturbed: int = 0
    """Windows that stayed disturbed by other processes after all tries."""
    failed: str | None = None
    """What it raised; it is not sampled again."""

    def prepare(self) -> None:
        """Warm up, and find how many calls fill a window."""
        with self.around():
            self.run(WARM_UP if self.count is None else self.count)
            if self.count is not None:
                return
            n = self.least
            # The quickest of a few: one that was interrupted would make all windows too short, and thus cold.
            while (took := min(self.run(n) for _ in range(3))) < WINDOW_NS / 2:
                n *= 2
            self.count = max(self.least, int(n * WINDOW_NS / took))

    def sample(self, keep: bool = True) -> None:
        """Measure one window."""
        count, took = self.count or 1, 0
        with self.around():
            for _ in range(TRIES):
                before = _involuntary()
                took = self.run(count)
                if _involuntary() == before:
                    break
            else:
                self.disturbed += 1
        if keep:
            self.samples.append(took / count)


def sample_rounds(cases: list[Case], rounds: int, between: Callable[[], object] = lambda: None) -> None:
    """Add a window per round to every case; the first round only warms up. `between` runs after each.

    A case that raises has failed, and the others go on.
    """
    for number in range(rounds + 1):
        for case in cases if number % 2 else reversed(cases):
            if case.failed is None:
                try:
                    case.sample(keep=number > 0)
                except Exception as error:
                    case.failed = f"{type(error).__name__}: {error}"
                between()


@dataclass(frozen=True)
class Figure:
    """What one case cost: ns per call, median and quartiles over the rounds."""

    median: float
    low: float
    high: float
    costs: tuple[float, ...] = ()
    """Round by round."""

    def over(self, other: Figure) -> float:
        """How many times the other's cost: the median over the rounds of the ratio within one round.

        A machine that is slow for a while is slow for both.
        """
        return statistics.median(
            mine / yours for mine, yours in zip(self.costs, other.costs, strict=True) if yours > 0
        )

    def as_dict(self) -> dict[str, float]:
        """For JSON, to a hundredth of a nanosecond."""
        return {"median": round(self.median, 2), "low": round(self.low, 2), "high": round(self.high, 2)}


def figures(cases: Iterable[Case]) -> dict[str, Figure]:
    """The cost of every case that did not fail, less that of its base, subtracted round by round."""
    by_name = {case.name: case for case in cases if case.failed is None}
    found = {}
    for case in by_name.values():
        base = by_name[case.base].samples if case.base else [0.0] * len(case.samples)
        costs = [sample - under for sample, under in zip(case.samples, base, strict=True)]
        # The median of each is steadier than the median of the differences; the spread is theirs.
        middle = statistics.median(case.samples) - statistics.median(base)
        low, _, high = statistics.quantiles(costs, n=4) if len(costs) > 1 else (middle,) * 3
        found[case.name] = Figure(middle, low, high, tuple(costs))
    return found


@contextlib.contextmanager
def quiet_output() -> Iterator[None]:
    """Send what a library prints to file descriptor 1 or 2 nowhere, also from C."""
    kept = [os.dup(1), os.dup(2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        yield
    finally:
        for number, copy in zip((1, 2), kept, strict=True):
            os.dup2(copy, number)
            os.close(copy)
        os.close(nowhere)
