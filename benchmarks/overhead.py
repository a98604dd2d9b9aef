"""What a mark costs, beside its peers: `python benchmarks/overhead.py [--json FILE]`.

All cases run round-robin in one process pinned to one CPU, in windows of about 0.4 ms with the loop's own
cost subtracted; a window that an involuntary context switch hit is repeated. The figure is the median over
the rounds; bars are ratios of two figures of the same run.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import instrument
from instrument.recorder import _core

WINDOW_NS = 400_000
TRIES = 6


def build_limits() -> ModuleType:
    """The yardsticks in C, compiled for this interpreter."""
    folder = tempfile.mkdtemp(prefix="instrument-bench-")
    target = Path(folder) / ("limits" + sysconfig.get_config_var("EXT_SUFFIX"))
    source = Path(__file__).with_name("limits.c")
    include = sysconfig.get_paths()["include"]
    subprocess.run(
        ["gcc", "-O3", "-fPIC", "-shared", f"-I{include}", str(source), "-o", str(target)], check=True
    )
    sys.path.insert(0, folder)
    import limits

    return limits


# ---------------------------------------------------------------- measuring


def loop(body: str, names: dict[str, object]) -> Callable[[int], int]:
    """A function that runs `body` n times and answers the ns it took."""
    lines = "\n".join("        " + line for line in body.splitlines())
    source = (
        f"def run(n, clock, {', '.join(names)}):\n"
        f"    span = range(n)\n    start = clock()\n    for _ in span:\n{lines}\n    return clock() - start\n"
    )
    space: dict[str, Callable[..., int]] = {}
    exec(source, space)
    run, values = space["run"], tuple(names.values())
    return lambda n: run(n, time.perf_counter_ns, *values)


def involuntary() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw


class Case:
    def __init__(self, name: str, run: Callable[[int], int]) -> None:
        self.name, self.run, self.samples = name, run, list[float]()
        run(100)
        n = 64
        while (took := run(n)) < WINDOW_NS / 2:
            n *= 2
        self.n = max(1, int(n * WINDOW_NS / took))

    def sample(self) -> None:
        for _ in range(TRIES):
            before = involuntary()
            took = self.run(self.n)
            if involuntary() == before:
                break
        self.samples.append(took / self.n)

    @property
    def median(self) -> float:
        return statistics.median(self.samples)


def drop_records() -> None:
    """Take the recorder's chunks back outside the timed windows: the drain's work is not the mark's."""
    _core.take()


# ---------------------------------------------------------------- cases


def cases(limits: ModuleType) -> tuple[list[Case], list[str]]:
    def plain(x: int) -> int:
        return x

    @instrument.kernel
    def kernel(x: int) -> int:
        return x

    class Holder:
        @instrument.kernel
        def method(self, x: int) -> int:
            return x

        def plain(self, x: int) -> int:
            return x

    empty, unbound, holder = limits.Empty(), limits.unbound(), Holder()
    region, step = instrument.region, instrument.step
    found = [
        Case("loop", loop("pass", {"_x": 0})),
        Case("empty with, C type", loop("with e: pass", {"e": empty})),
        Case("empty with, unbound", loop("with e: pass", {"e": unbound})),
        Case("C limit", lambda n: c_limit(limits, n)),
        Case("call", loop("f(1)", {"f": plain})),
        Case("region", loop('with region("x"): pass', {"region": region})),
        Case("region, hoisted", loop("with r: pass", {"r": region("x")})),
        Case("region, 1 attribute", loop('with region("x", a=1): pass', {"region": region})),
        Case("region, 2 attributes", loop('with region("x", a=1, b=2.5): pass', {"region": region})),
        Case("region, 2 attributes, text", loop('with region("x", a=1, b="two"): pass', {"region": region})),
        Case(
            "region nested in region", loop('with region("x"):\n  with region("y"): pass', {"region": region})
        ),
        Case("step", loop("with step(1): pass", {"step": step})),
        Case("kernel call", loop("f(1)", {"f": kernel})),
        Case("method call", loop("h.plain(1)", {"h": holder})),
        Case("kernel method call", loop("h.method(1)", {"h": holder})),
    ]
    missing = []
    try:
        import nvtx

        found.append(Case("nvtx annotate, new", loop('with a("x"): pass', {"a": nvtx.annotate})))
        found.append(Case("nvtx annotate, reused", loop("with a: pass", {"a": nvtx.annotate("x")})))
    except ImportError:
        missing.append("nvtx")
    try:
        import torch

        rf = torch.profiler.record_function
        found.append(Case("torch record_function, off", loop('with rf("x"): pass', {"rf": rf})))
    except ImportError:
        missing.append("torch")
    try:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

        class Nowhere(SpanExporter):
            def export(self, spans: object) -> SpanExportResult:
                return SpanExportResult.SUCCESS

        provider = TracerProvider()
        provider.add_span_processor(BatchSpanProcessor(Nowhere()))
        tracer = provider.get_tracer("bench")
        body = 'with start("x"): pass'
        found.append(Case("OpenTelemetry, batch", loop(body, {"start": tracer.start_as_current_span})))
    except ImportError:
        missing.append("opentelemetry-sdk")
    return found, missing


def c_limit(limits: ModuleType, n: int) -> int:
    start = time.perf_counter_ns()
    limits.c_limit(n)
    return time.perf_counter_ns() - start


def measure(found: list[Case], rounds: int) -> dict[str, float]:
    for round_ in range(rounds):
        for case in found if round_ % 2 else reversed(found):
            case.sample()
            drop_records()
    overhead = next(case.median for case in found if case.name == "loop")
    return {case.name: case.median - (0 if case.name in ("loop", "C limit") else overhead) for case in found}


# ---------------------------------------------------------------- bars


def bars(off: dict[str, float], on: dict[str, float]) -> list[tuple[str, float, str, float, float]]:
    """(what, value, relation, bar, stretch) for each bar that this run could measure."""
    region, with_c, limit = on["region"], on["empty with, C type"], on["C limit"]
    added = on["kernel call"] - on["call"]
    rows = [
        ("recording region / empty with on a C type", region / with_c, "<=", 1.1, 0.85),
        ("region off / empty with on a C type", off["region"] / off["empty with, C type"], "<=", 0.7, 0.5),
    ]
    if _core.HOOKS_IN_PLACE:
        rows.append(("kernel recording, added / C limit", added / limit, "<=", 2.6, 1.6))
    else:
        torch_loaded = "torch" in sys.modules
        rows.append(("kernel recording, added, ns", added, "<=", 200.0 if torch_loaded else 110.0, 60.0))
    for name, label, bar, stretch in (
        ("nvtx annotate, new", "nvtx annotate, new, no tool / recording region", 6.0, 8.0),
        ("torch record_function, off", "torch record_function, off / recording region", 80.0, 120.0),
        ("OpenTelemetry, batch", "OpenTelemetry span, batch / recording region", 150.0, 250.0),
    ):
        if name in on:
            rows.append((label, on[name] / region, ">=", bar, stretch))
    return rows


def event_sizes() -> dict[str, float]:
    """Bytes a span takes in a chunk, from how many fit into one."""
    sizes = {}
    for name, attrs in (("plain", {}), ("2 attributes", {"a": 1, "b": 2.5})):
        _core.start(chunk_bytes=1 << 16)
        for _ in range(5000):
            with instrument.region("size", **attrs):
                pass
        first = _core.take()[0]
        sizes[name] = (1 << 16) / first.count
        _core.stop()
    return sizes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--json", metavar="FILE", help="write all figures there as well")
    arguments = parser.parse_args()

    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    limits = build_limits()
    gc.disable()
    found, missing = cases(limits)
    off = measure(found, max(5, arguments.rounds // 3))
    for case in found:
        case.samples.clear()
    _core.start()
    on = measure(found, arguments.rounds)
    _core.stop()
    sizes = event_sizes()

    print(
        f"Python {platform.python_version()}, {platform.machine()}, clock {_core.clock_source()}, ns per call"
    )
    print(f"{'':32}{'off':>10}{'on':>10}")
    for name in on:
        print(f"{name:32}{off[name]:10.1f}{on[name]:10.1f}")
    print(
        f"kernel added: off {off['kernel call'] - off['call']:.1f}, on {on['kernel call'] - on['call']:.1f} ns"
    )
    print("bytes per span: " + ", ".join(f"{name} {size:.1f}" for name, size in sizes.items()))
    rows = bars(off, on)
    for what, value, relation, bar, stretch in rows:
        met = value <= bar if relation == "<=" else value >= bar
        reached = value <= stretch if relation == "<=" else value >= stretch
        print(
            f"{'met   ' if met else 'MISSED'} {what}: {value:.2f} {relation} {bar:g}"
            + (f" (stretch {stretch:g} reached)" if reached else f" (stretch {stretch:g})")
        )
    for peer in missing:
        print(f"not measured: {peer} is not installed")
    if arguments.json:
        Path(arguments.json).write_text(
            json.dumps(
                {
                    "python": platform.python_version(),
                    "off": off,
                    "on": on,
                    "bytes": sizes,
                    "missing": missing,
                    "bars": [
                        dict(zip(("what", "value", "relation", "bar", "stretch"), row, strict=True))
                        for row in rows
                    ],
                },
                indent=1,
            )
        )


if __name__ == "__main__":
    main()
