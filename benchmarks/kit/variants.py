"""The same annotated program under us, without us, and under the neighbours.

A neighbour is a stand-in for the module `instrument` that makes the same marks with its own means: kernels by
its decorator, regions by its context manager, steps as regions. What it has no counterpart for (flops,
metrics) costs it nothing. Adapters are as thin as can be; where one adds a Python call, that is some 0.1 us.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from kit import strip
from kit.measure import quiet_output


def nothing(*_: object, **__: object) -> None:
    """For what a neighbour has no counterpart for."""


@dataclass
class Hooks:
    """What happens around a block of work. Only `finish` is part of the measured time."""

    begin: Callable[[], object] = nothing
    finish: Callable[[], object] = nothing
    end: Callable[[], object] = nothing


class Handle:
    """What our regions also offer."""

    seconds = 0.0
    recording = False

    def set(self, **attrs: object) -> None:
        """Attributes are left out unless the neighbour has them."""


def stand_in(kernel: Callable[[Any], Any], region: Callable[..., Any], **others: Callable[..., Any]) -> None:
    """Put a module of that behaviour where `import instrument` finds it."""
    module = ModuleType("instrument")

    def decorator(function: Any = None, /, **_options: object) -> Any:
        return kernel if function is None else kernel(function)

    names: dict[str, object] = dict.fromkeys(("mark", "annotate", "count", "gauge", "observe"), nothing)
    names |= {"kernel": decorator, "region": region, **others}
    names["step"] = lambda _number=None, name="step", /, **attrs: region(name, **attrs)
    vars(module).update(names)
    sys.modules["instrument"] = module


def name_of(function: Any) -> str:
    """As our kernels are named."""
    name: str = function.__qualname__
    return name.replace(".<locals>", "")


# ---------------------------------------------------------------- us


def removed() -> Hooks:
    """The program as if no annotation had been written: what all others are compared with."""
    strip.strip("transformer", "programs")
    return Hooks()


def disabled() -> Hooks:
    """INSTRUMENT_DISABLED=1."""
    os.environ["INSTRUMENT_DISABLED"] = "1"
    import instrument  # noqa: F401

    return Hooks()


def off() -> Hooks:
    """Annotated, and no session: the program as it is shipped."""
    import instrument  # noqa: F401

    return Hooks()


def recording() -> Hooks:
    """A session that writes the run file; the block's time includes writing all of it."""
    import instrument

    folder = tempfile.mkdtemp(prefix="instrument-bench-")
    target = Path(folder) / "run.jsonl"
    session = instrument.start(export=[f"json:{target}"])

    def check() -> None:
        if lost := sum(loss.count for loss in session.losses()):
            print(f"recording lost {lost} events", file=sys.stderr)

    return Hooks(finish=lambda: session.flush(30), end=check)


def recording_bare() -> Hooks:
    """As `recording`, without what kernels say about their work: what the neighbours record, too."""
    import instrument

    real = instrument.kernel
    vars(instrument)["kernel"] = lambda function=None, /, **_: real if function is None else real(function)
    return recording()


# ---------------------------------------------------------------- neighbours


def nvtx() -> Hooks:
    """nvtx without a tool attached."""
    import nvtx

    class Region(Handle, nvtx.annotate):  # type: ignore[misc]
        def __init__(self, name: str, /, **_: object) -> None:
            super().__init__(name)

    stand_in(
        lambda function: nvtx.annotate(name_of(function))(function), Region, mark=lambda n, **_: nvtx.mark(n)
    )
    return Hooks()


def torch_profiler() -> Hooks:
    """record_function under a running torch profiler, CPU activity only; its start and stop are not timed."""
    from torch.profiler import ProfilerActivity, profile, record_function

    class Region(Handle, record_function):
        def __init__(self, name: str, /, **_: object) -> None:
            super().__init__(name)

    stand_in(lambda function: record_function(name_of(function))(function), Region)
    running: list[Any] = []

    def begin() -> None:
        with quiet_output():
            running.append(profile(activities=[ProfilerActivity.CPU]))
            running[-1].__enter__()

    def end() -> None:
        with quiet_output():
            running.pop().__exit__(None, None, None)

    return Hooks(begin=begin, end=end)


def opentelemetry() -> Hooks:
    """OpenTelemetry's SDK with the batch processor, and an exporter that drops what it gets."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

    class Nowhere(SpanExporter):
        def export(self, spans: object) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Nowhere()))
    start = provider.get_tracer("bench").start_as_current_span

    class Region(Handle):
        def __init__(self, name: str, /, **attrs: Any) -> None:
            self.name, self.attrs = name, attrs

        def __enter__(self) -> Region:
            self.manager = start(self.name, attributes=self.attrs)
            self.span = self.manager.__enter__()
            return self

        def __exit__(self, *error: Any) -> None:
            self.manager.__exit__(*error)

        def __call__(self, function: Any) -> Any:
            return start(self.name)(function)

        def set(self, **attrs: Any) -> None:
            self.span.set_attributes(attrs)

    stand_in(
        lambda function: start(name_of(function))(function),
        Region,
        mark=lambda name, **attrs: trace.get_current_span().add_event(name, attrs),
        annotate=lambda **attrs: trace.get_current_span().set_attributes(attrs),
    )
    return Hooks(finish=provider.force_flush)


def viztracer() -> Hooks:
    """viztracer with sparse functions and events only; what it recorded is dropped uncounted."""
    from viztracer import VizTracer, log_sparse

    tracer = VizTracer(verbose=0, log_sparse=True, max_stack_depth=0, register_global=True)

    class Region(Handle):
        def __init__(self, name: str, /, **_: object) -> None:
            self.event = tracer.log_event(name)

        def __enter__(self) -> Region:
            self.event.__enter__()
            return self

        def __exit__(self, *error: Any) -> None:
            self.event.__exit__(*error)

        def __call__(self, function: Any) -> Any:
            return log_sparse(function)

    stand_in(log_sparse, Region, mark=lambda name, **attrs: tracer.log_instant(name, args=attrs or None))

    def end() -> None:
        tracer.stop()
        tracer.clear()

    return Hooks(begin=tracer.start, end=end)


VARIANTS: dict[str, Callable[[], Hooks]] = {
    "annotations removed": removed,
    "the same once more": removed,  # what is left of the machine's own unevenness
    "INSTRUMENT_DISABLED=1": disabled,
    "annotated, no session": off,
    "recording, run file": recording,
    "recording, run file, no flops or bytes": recording_bare,
    "nvtx, no tool": nvtx,
    "torch record_function, profiler on": torch_profiler,
    "OpenTelemetry, batch": opentelemetry,
    "viztracer, log_sparse and log_event": viztracer,
}
BASE = "annotations removed"
