"""Every entry point of the extension over and over, on a debug build of CPython: no reference is left over.

`make refcounts` runs it. It needs nothing but the package, so that an interpreter without pytest will do.
"""

import contextlib
import gc
import os
import sys
import tempfile
import threading
from functools import partial

import instrument
from instrument.recorder import _core

WARM_UP, ROUNDS, TRIES = 40, 60, 4
ROOM = 0.5  # references that a round may add on average: caches of the interpreter's own still grow a little


class Wrong:
    """No number, no text, and raises whatever it is asked."""

    def __repr__(self):
        raise ValueError

    __str__ = __float__ = __index__ = __hash__ = __repr__

    def __eq__(self, other):
        raise ValueError


ODD = (
    None,
    True,
    -1,
    2**70,
    1.5,
    float("nan"),
    "é" * 3000,
    "\ud800",
    b"bytes",
    [1, "x" * 300, 2**70],
    (),
    {},
    Wrong(),
)


def refused(function, *arguments, **named):
    """Call it with something that it refuses or ignores."""
    with contextlib.suppress(TypeError, ValueError, RuntimeError, OSError, IndexError, AttributeError):
        function(*arguments, **named)


# ------------------------------------------------------------------ one function per entry point


def region():
    with _core.region("r"), _core.region("with", number=1, text="x", items=[1, 2]) as inner:
        inner.set(late=1.5)
        inner.set()
        _ = inner.recording, inner.seconds, inner.name, repr(inner)
    for value in ODD:
        with _core.region("odd", value=value) as odd:
            odd.set(value=value)
        refused(_core.region, value)
    refused(_core.region)
    refused(_core.region, "a", "b")


def region_exits():
    for error in (ValueError, KeyboardInterrupt, GeneratorExit):
        with contextlib.suppress(error), _core.region("fails"):
            raise error
    both = _core.region("by hand", a=1)
    both.__exit__(None, None, None)
    refused(both.__exit__)
    refused(both.__exit__, 1, 2, 3)
    with contextlib.ExitStack() as stack:
        stack.enter_context(both)
        stack.enter_context(both)
    type(both).__enter__(both)
    type(both).__exit__(both, None, None, None)


def region_decorator():
    @_core.region("decorated", a=1)
    def function(x):
        return x

    function(1)
    refused(function)
    refused(_core.region("decorated"), 3)


def step():
    for number in (None, 0, -5, 2**62, 2**70, "no", 1.5):
        with _core.step(number, a=1):
            pass
    with _core.step(1, "other", name=2):
        pass
    refused(_core.step, 1, 2, 3)


def mark():
    _core.mark("m")
    for value in ODD:
        _core.mark("m", value=value)
        refused(_core.mark, value)
    refused(_core.mark)


def annotate():
    _core.annotate(a=1)
    with _core.region("r"):
        for value in ODD:
            _core.annotate(a=value, **{f"key{n}": n for n in range(12)})
    refused(_core.annotate, 1)


def series():
    for verb in (_core.count, _core.gauge, _core.observe):
        for value in ODD:
            refused(verb, "s", value)
            refused(verb, "s", 1, label=value)
            refused(verb, value, 1)
        refused(verb)


def kernels():
    for evaluate in (
        {},
        {"flops": lambda x: x, "bytes": lambda x: {"fp16": x}, "attrs": lambda x: {"x": x}},
        {"flops": lambda x: 1 / 0, "attrs": lambda x: 3},
        {"flops": 5, "bytes": {"fp32": 2}},
    ):

        @instrument.kernel(**evaluate)
        def kernel(x, depth=0):
            if depth:
                return kernel(x, depth - 1)
            return x / x

        kernel(1)
        kernel(x=1.5, depth=80)
        for wrong in ((0,), (), ("a",)):
            with contextlib.suppress(TypeError, ZeroDivisionError):
                kernel(*wrong)


def kernels_of_all_kinds():
    class Thing:
        @instrument.kernel
        def method(self, *args, **named):
            return args, named

        @instrument.kernel
        @classmethod
        def of_class(cls):
            return cls

        @staticmethod
        @instrument.kernel
        def static():
            return 1

    thing = Thing()
    thing.method(1, 2, a=3)
    thing.of_class()
    thing.static()
    refused(instrument.kernel, thing.method)
    refused(instrument.kernel, partial(max, 1))
    refused(instrument.kernel, len)


def hooks():
    site = _core.kernel_site("hooked", "file", 1)
    _ = site.index, site.name, site.kind, site.scope, site.file, site.line, repr(site)
    if _core.HOOKS_IN_PLACE:

        def function(x):
            return x

        _core.hook(function, site, None)
        function(1)
        refused(_core.hook, function, site, 3)
    for wrong in ((), (len, site, None), (hooks, 3, None)):
        refused(_core.hook, *wrong)
    refused(_core.kernel_site, 1, 2, 3)
    refused(_core.kernel_site)


def sinks():
    site = _core.kernel_site("with a sink", "file", 1)
    marker = _core.Marker(site)
    for enter, leave in ((lambda number: number, None), (lambda number: 1 / 0, lambda number: 1 / 0)):
        site.set_sink(enter, leave)
        for _ in range(5):
            marker.enter()
            marker.leave()
    site.set_sink(None, None)
    refused(site.set_sink, 3, 4)
    refused(site.set_sink)


def markers():
    site = _core.kernel_site("marked", "file", 1)
    for target in (site, _core.region("marked", a=1)):
        for evaluate in (None, lambda x: (1, {"fp16": 2}, {"a": x}), lambda x: 1 / 0, (1, None, {"a": 1})):
            marker = _core.Marker(target, evaluate)
            for arguments in ((1,), (), (1, 2)):
                marker.enter(marker.measure(*arguments))
                marker.leave()
            marker.enter()
            marker.fail(ValueError())
            try:
                raise ValueError
            except ValueError as error:
                marker.enter(None)
                marker.fail(error)
    for wrong in ((), (3,), (site, 3), (site, None, None)):
        refused(_core.Marker, *wrong)
    marker.leave()


def threads():
    def work():
        with _core.region("in a thread", a=1):
            _core.mark("in a thread")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    _core.stop()  # the names of a session's threads are kept until the next one begins
    _core.start(chunk_bytes=4096)


def reading():
    chunks = _core.take()
    for chunk in chunks:
        _ = chunk.thread, chunk.tid, chunk.count, chunk.marks, len(chunk), repr(chunk)
        chunk.decode()
        chunk.jsonl(0)
        chunk.jsonl(0, [chunk, chunk])
        memoryview(chunk)[:5].tolist()
        refused(chunk.jsonl)
        refused(chunk.jsonl, "a")
        refused(chunk.jsonl, 0, [1])
        refused(chunk.jsonl, 0, 3)
    for read in (
        _core.totals,
        _core.metrics,
        _core.losses,
        _core.threads,
        _core.sites,
        _core.tick,
        _core.memory,
    ):
        read()
    for read in (_core.now, _core.clock_source, _core.active, _core.path_count):
        read()
    for number in (1, 0, -1, 10**6, "a"):
        refused(_core.path, number)
        refused(_core.sites, number)
        refused(_core.threads, number)


def starting():
    """Leaves it on, as it found it."""
    refused(_core.start)
    _core.stop()
    _core.stop()
    region()
    kernels()
    for wrong in (
        {"overflow": "x"},
        {"chunk_bytes": 3},
        {"buffer_bytes": 1},
        {"directory": "/nowhere"},
        {"directory": 3},
        {"max_paths": -1},
        {"more": 1},
    ):
        refused(_core.start, **wrong)
        _core.stop()
    with tempfile.TemporaryDirectory() as folder:
        _core.start(directory=folder, overflow="oldest")
        region()
        _core.take()
        _core.stop()
    _core.start(chunk_bytes=4096)


def first_record():
    _core.on_first_record(lambda: None)
    _core.on_first_record(None)
    _core.on_first_record(lambda: 1 / 0)
    refused(_core.on_first_record, 3)
    region()
    _core.on_first_record(None)
    refused(_core.set_region_decorator, 3)


def after_fork():
    with _core.region("open across"):
        _core.after_fork()


ENTRIES = (
    *(
        region,
        region_exits,
        region_decorator,
        step,
        mark,
        annotate,
        series,
        kernels,
        kernels_of_all_kinds,
        hooks,
    ),
    *(sinks, markers, threads, reading, starting, first_record, after_fork),
)


# ------------------------------------------------------------------ the count


def growth(entry):
    """References that one round leaves behind; the least of a few tries, since caches fill up at first."""
    least = float("inf")
    for _ in range(WARM_UP):
        entry()
        _core.take()
    for _ in range(TRIES):
        gc.collect()
        before = sys.gettotalrefcount()
        for _ in range(ROUNDS):
            entry()
            _core.take()
        gc.collect()
        least = min(least, (sys.gettotalrefcount() - before) / ROUNDS)
        if least <= ROOM:
            break
    return least


def main():
    if not hasattr(sys, "gettotalrefcount"):
        sys.exit("this needs a debug build of CPython, as python3-dbg is on Debian")
    untested = {name for name in dir(_core) if callable(getattr(_core, name)) and not name.startswith("_")}
    with open(os.path.abspath(__file__), encoding="utf-8") as own:
        text = own.read()
    untested = {name for name in untested if f"_core.{name}" not in text} - {"Chunk", "Region", "Site"}
    if untested:
        sys.exit(f"nothing here calls {', '.join(sorted(untested))}")
    leaks = 0
    _core.start(chunk_bytes=4096)
    for entry in ENTRIES:
        grown = growth(entry)
        leaks += grown > ROOM
        sys.stdout.write(f"{entry.__name__:22} {grown:+8.2f} references a round{'  LEAK' * (grown > ROOM)}\n")
    _core.stop()
    sys.exit(1 if leaks else 0)


if __name__ == "__main__":
    main()
