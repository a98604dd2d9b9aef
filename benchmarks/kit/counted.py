"""The pieces whose instructions are counted: `python counted.py CASE TIMES`, run under callgrind or perf."""

from __future__ import annotations

import sys
from collections.abc import Callable

import instrument
from instrument.recorder import _core

region, mark, a_step, a_count = instrument.region, instrument.mark, instrument.step, instrument.count


@instrument.kernel
def recorded(x: int) -> int:
    return x


@instrument.kernel(flops=2.0)
def constant(x: int) -> int:
    return x


def plain(x: int) -> int:
    return x


def empty(times: int) -> None:
    for _ in range(times):
        pass


def call(times: int) -> None:
    for _ in range(times):
        plain(1)


def one_region(times: int) -> None:
    for _ in range(times):
        with region("x"):
            pass


def region_of_module(times: int) -> None:
    for _ in range(times):
        with instrument.region("x"):
            pass


def kept_region(times: int) -> None:
    kept = region("x")
    for _ in range(times):
        with kept:
            pass


def attribute(times: int) -> None:
    for _ in range(times):
        with region("x", a=1):
            pass


def two_attributes(times: int) -> None:
    for _ in range(times):
        with region("x", a=1, b=2.5):
            pass


def kernel(times: int) -> None:
    for _ in range(times):
        recorded(1)


def instant(times: int) -> None:
    for _ in range(times):
        mark("x")


def kernel_constant(times: int) -> None:
    for _ in range(times):
        constant(1)


def step(times: int) -> None:
    for _ in range(times):
        with a_step(1):
            pass


def count(times: int) -> None:
    for _ in range(times):
        a_count("x")


def count_labelled(times: int) -> None:
    for _ in range(times):
        a_count("x", 2, a="b")


CASES: dict[str, Callable[[int], None]] = {
    "loop": empty,
    "call": call,
    "region": one_region,
    "instrument.region": region_of_module,
    "region, kept object": kept_region,
    "region, 1 attribute": attribute,
    "region, 2 attributes": two_attributes,
    "kernel": kernel,
    "kernel, flops=number": kernel_constant,
    "step": step,
    "mark": instant,
    "count": count,
    "count, 1 label": count_labelled,
}
BASES = {"kernel": "call", "kernel, flops=number": "call"}
"""What a case is held against; all others against the empty loop."""

WARM = 10_000

if __name__ == "__main__":
    name, times = sys.argv[1], int(sys.argv[2])
    off = name.endswith(", off")
    if not off:
        _core.start()
        # As beside a drain: what is written next lies in memory that has been used before.
        one_region(WARM)
        two_attributes(WARM)
        _core.take()
    CASES[name.removesuffix(", off")](times)
    if not off:
        _core.stop()
