"""Our own annotations as cases, and the yardsticks that they are held against."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from types import ModuleType

import instrument
from instrument.recorder import _core
from kit.measure import Case, Run, cold, loop, timed


def drop_records() -> None:
    """Take the recorder's chunks back outside the timed windows: the drain's work is not the mark's."""
    _core.take()


@contextlib.contextmanager
def recording() -> Iterator[None]:
    """The recorder on, with totals and paths, as any session has it."""
    _core.start()
    try:
        yield
    finally:
        _core.stop()
        drop_records()


def plain(x: int) -> int:
    """What `kernel` below does, without it."""
    return x


@instrument.kernel
def kernel(x: int) -> int:
    """Recorded as a kernel."""
    return x


@instrument.kernel(flops=2.0)
def measured(x: int) -> int:
    """Recorded as a kernel with a constant number of operations."""
    return x


@instrument.kernel(flops=lambda x: 2 * x)
def evaluated(x: int) -> int:
    """Recorded as a kernel with a function that counts operations."""
    return x


@instrument.region("function")
def decorated(x: int) -> int:
    """Recorded as a region."""
    return x


class Holder:
    """Methods with and without."""

    def plain(self, x: int) -> int:
        """What `kernel` does, without it."""
        return x

    @instrument.kernel
    def kernel(self, x: int) -> int:
        """Recorded as a kernel."""
        return x


def kernel_cases() -> list[Case]:
    """A kernel and what it is held against, by themselves."""
    call = "call of a Python function"
    return [
        Case("loop", loop("pass", _=0), base=None),
        Case(call, loop("f(1)", f=plain)),
        Case("kernel, added", loop("f(1)", f=kernel), call),
    ]


def yardsticks(limits: ModuleType) -> list[Case]:
    """What nothing of ours can be cheaper than, and what people write without us."""

    @contextlib.contextmanager
    def managed() -> Iterator[None]:
        yield

    @functools.wraps(plain)
    def wrapped(*args: int, **kwargs: int) -> int:
        return plain(*args, **kwargs)

    raising = "try:\n  with e: raise error\nexcept ValueError: pass"
    return [
        Case("loop", loop("pass", _=0), base=None),
        Case("C limit", timed(limits.c_limit), base=None),
        Case("clock, read twice in C", timed(limits.c_clock), base=None),
        Case("call of a C function", loop("f()", f=limits.nothing)),
        Case("call of a Python function", loop("f(1)", f=plain)),
        Case("call of a method", loop("h.plain(1)", h=Holder())),
        Case("call through an empty functools wrapper", loop("f(1)", f=wrapped)),
        Case("with, empty C type", loop("with e: pass", e=limits.Empty())),
        Case("with, unbound builtins", loop("with e: pass", e=limits.unbound())),
        Case("with, exception through it", loop(raising, e=limits.Empty(), error=ValueError())),
        Case("with, contextlib.contextmanager", loop("with m(): pass", m=managed)),
        Case("cold: nothing", cold("pass", limits.evict, _=0), base=None, count=5),
        Case(
            "cold: call of a Python function", cold("f(1)", limits.evict, f=plain), "cold: nothing", count=5
        ),
    ]


def marks(limits: ModuleType) -> list[Case]:
    """Everything that a user writes, warm; and the two main things cold."""
    region, step = instrument.region, instrument.step
    raising = 'try:\n  with region("x"): raise error\nexcept ValueError: pass'
    entered, evict = 'with region("x"): pass', limits.evict
    method = "call of a method"
    call = "call of a Python function"
    return [
        Case("region", loop('with region("x"): pass', region=region)),
        Case("region, written instrument.region", loop('with i.region("x"): pass', i=instrument)),
        Case("region, kept object", loop("with r: pass", r=region("x"))),
        Case("region, 1 attribute", loop('with region("x", a=1): pass', region=region)),
        Case("region, 2 attributes", loop('with region("x", a=1, b=2.5): pass', region=region)),
        Case("region, 3 attributes", loop('with region("x", a=1, b=2.5, c=True): pass', region=region)),
        Case("region, text attribute", loop('with region("x", a="text"): pass', region=region)),
        Case("region, set() inside", loop('with region("x") as r: r.set(a=1)', region=region)),
        Case("two regions, nested", loop('with region("x"):\n  with region("y"): pass', region=region)),
        Case("region, exception through it", loop(raising, region=region, error=ValueError())),
        Case("region, as decorator, added", loop("f(1)", f=decorated), call),
        Case("step", loop("with step(1): pass", step=step)),
        Case("kernel, added", loop("f(1)", f=kernel), call),
        Case("kernel on a method, added", loop("h.kernel(1)", h=Holder()), method),
        Case("kernel, flops=number, added", loop("f(1)", f=measured), call),
        Case("kernel, flops=function, added", loop("f(1)", f=evaluated), call),
        Case("mark", loop('mark("x")', mark=instrument.mark)),
        Case("mark, 1 attribute", loop('mark("x", a=1)', mark=instrument.mark)),
        Case("annotate", inside("annotate(a=1)", annotate=instrument.annotate), count=48),
        Case("count", loop('count("x")', count=instrument.count)),
        Case("count, 1 label", loop('count("x", 2, a="b")', count=instrument.count)),
        Case("gauge", loop('gauge("x", 1.5)', gauge=instrument.gauge)),
        Case("observe", loop('observe("x", 1.5)', observe=instrument.observe)),
        Case("cold: region", cold(entered, evict, region=region), "cold: nothing", count=5),
        Case("cold: kernel, added", cold("f(1)", evict, f=kernel), f"cold: {call}", count=5),
    ]


def inside(body: str, **names: object) -> Run:
    """As `loop`, within one open span; a span holds 64 attributes, so windows are short."""
    run = loop(body, **names)

    def within(n: int) -> int:
        with instrument.region("around"):
            return run(n)

    return within
