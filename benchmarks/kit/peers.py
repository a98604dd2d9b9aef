"""The neighbours' marks as cases.

Each peer is a function that imports it and yields its cases; what cannot be imported or started is said by
name and reason, and the others go on.

Every peer is set up as its documentation says for production, in its cheapest form that records: batches to
an exporter that drops them, no network, nothing printed.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from kit.measure import Case, loop, quiet_output
from kit.ours import plain

CALL = "call of a Python function"


def nvtx() -> Iterator[Case]:
    """NVIDIA's own annotations, without a tool attached: what they cost left in the code."""
    import nvtx

    domain = nvtx.get_domain("bench")
    attributes = domain.get_event_attributes(message="x")
    yield Case("nvtx.annotate, new", loop('with a("x"): pass', a=nvtx.annotate))
    yield Case("nvtx.annotate, kept object", loop("with a: pass", a=nvtx.annotate("x")))
    yield Case("nvtx.annotate, decorator, added", loop("f(1)", f=nvtx.annotate("x")(lambda x: x)), CALL)
    body = 'push("x")\npop()'
    yield Case("nvtx.push_range, pop_range", loop(body, push=nvtx.push_range, pop=nvtx.pop_range))
    body = "push(a)\npop()"
    yield Case(
        "nvtx Domain push_range, pop_range",
        loop(body, push=domain.push_range, pop=domain.pop_range, a=attributes),
    )


def torch() -> Iterator[Case]:
    """torch's ranges, with the profiler off and on."""
    import torch
    from torch._C._profiler import _RecordFunctionFast as Fast
    from torch.profiler import ProfilerActivity, profile, record_function

    @contextlib.contextmanager
    def profiled() -> Iterator[None]:
        with quiet_output():  # Kineto says when it starts
            profiler = profile(activities=[ProfilerActivity.CPU])
            profiler.__enter__()
        try:
            yield
        finally:
            with quiet_output():
                profiler.__exit__(None, None, None)

    torch.set_num_threads(1)

    def cases(state: str) -> Iterator[tuple[str, Callable[[int], int], str | None]]:
        yield f"torch record_function, {state}", loop('with f("x"): pass', f=record_function), "loop"
        decorated = record_function("x")(lambda x: x)
        yield f"torch record_function, decorator, {state}, added", loop("f(1)", f=decorated), CALL
        yield f"torch _RecordFunctionFast, new, {state}", loop('with f("x"): pass', f=Fast), "loop"
        yield f"torch _RecordFunctionFast, kept object, {state}", loop("with f: pass", f=Fast("x")), "loop"

    for name, run, base in cases("profiler off"):
        yield Case(name, run, base)
    for name, run, base in cases("profiler on"):
        yield Case(name, run, base, around=profiled)


def opentelemetry() -> Iterator[Case]:
    """OpenTelemetry without its SDK, sampled out, and recorded by the batch processor."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

    class Nowhere(SpanExporter):
        def export(self, spans: object) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    recorded = TracerProvider()
    recorded.add_span_processor(BatchSpanProcessor(Nowhere()))
    body, attributed = 'with start("x"): pass', 'with start("x", attributes={"a": 1, "b": 2.5}): pass'
    for name, tracer in (
        ("API only", trace.get_tracer("bench")),
        ("ALWAYS_OFF", TracerProvider(sampler=ALWAYS_OFF).get_tracer("bench")),
        ("batch", recorded.get_tracer("bench")),
    ):
        yield Case(f"OpenTelemetry, {name}", loop(body, start=tracer.start_as_current_span))
    start = recorded.get_tracer("bench").start_as_current_span
    yield Case("OpenTelemetry, batch, 2 attributes", loop(attributed, start=start))


def viztracer() -> Iterator[Case]:
    """viztracer's events and sparse functions; its full trace of every call is switched off."""
    import viztracer

    tracer = viztracer.VizTracer(verbose=0, log_sparse=True, max_stack_depth=0, register_global=True)

    @contextlib.contextmanager
    def tracing() -> Iterator[None]:
        tracer.start()
        try:
            yield
        finally:
            tracer.stop()
            tracer.clear()

    body = 'with event("x"): pass'
    yield Case("viztracer log_event, off", loop(body, event=tracer.log_event))
    yield Case("viztracer log_event, on", loop(body, event=tracer.log_event), around=tracing)
    sparse = viztracer.log_sparse(plain)
    yield Case("viztracer log_sparse, on, added", loop("f(1)", f=sparse), CALL, around=tracing)


def logfire() -> Iterator[Case]:
    """Pydantic's logfire, sending nothing."""
    import logfire
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

    class Nowhere(SpanExporter):
        def export(self, spans: object) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    ours = logfire.configure(
        local=True,
        send_to_logfire=False,
        console=False,
        inspect_arguments=False,
        metrics=False,
        additional_span_processors=[BatchSpanProcessor(Nowhere())],
    )
    with ours.span("check") as span:
        if not span.is_recording():
            raise RuntimeError("its span does not record")
    yield Case("logfire span", loop('with span("x"): pass', span=ours.span), least=2)
    yield Case(
        "logfire span, 2 attributes", loop('with span("x", a=1, b=2.5): pass', span=ours.span), least=2
    )


def sentry() -> Iterator[Case]:
    """Sentry without a DSN: nothing is sent."""
    import sentry_sdk

    client = sentry_sdk.Client(
        dsn=None, traces_sample_rate=1.0, default_integrations=False, auto_enabling_integrations=False
    )

    @contextlib.contextmanager
    def transaction() -> Iterator[None]:
        scope = sentry_sdk.get_global_scope()
        before = scope.client
        scope.set_client(client)
        try:
            # One for each window: a transaction keeps 1,000 spans and drops the others.
            with sentry_sdk.start_transaction(name="bench") as open_transaction:
                if not open_transaction.sampled:
                    raise RuntimeError("its transaction is not sampled")
                yield
        finally:
            scope.set_client(before)

    body = 'with span(op="o", name="x"): pass'
    yield Case("sentry start_span, not initialised", loop(body, span=sentry_sdk.start_span), least=2)
    yield Case(
        "sentry start_span, in a transaction", loop(body, span=sentry_sdk.start_span), around=transaction
    )


def prometheus() -> Iterator[Case]:
    """A Prometheus histogram around a block."""
    from prometheus_client import CollectorRegistry, Histogram

    registry = CollectorRegistry()
    timed = Histogram("bench", "a block", registry=registry)
    labelled = Histogram("bench_labelled", "a block", ["a"], registry=registry)
    yield Case("prometheus Histogram.time", loop("with time(): pass", time=timed.time))
    yield Case("prometheus Histogram.time, 1 label", loop('with h.labels("b").time(): pass', h=labelled))


def proton() -> Iterator[Case]:
    """Triton's profiler, not started: it starts only with a GPU."""
    import triton.profiler as proton

    yield Case("Triton Proton scope, off", loop('with s("x"): pass', s=proton.scope))
    yield Case("Triton Proton scope, decorator, off, added", loop("f(1)", f=proton.scope("x")(plain)), CALL)


PEERS: dict[str, Callable[[], Iterator[Case]]] = {
    "nvtx": nvtx,
    "torch": torch,
    "opentelemetry-sdk": opentelemetry,
    "viztracer": viztracer,
    "logfire": logfire,
    "sentry-sdk": sentry,
    "prometheus-client": prometheus,
    "triton": proton,
}


def collect(wanted: list[str] | None = None) -> tuple[list[Case], dict[str, str]]:
    """The cases of all peers that are here, ready to be sampled; and why the others are not."""
    found, missing = [], {}
    for name, make in PEERS.items():
        if wanted is not None and name not in wanted:
            missing[name] = "left out on request"
            continue
        try:
            cases = []
            for case in make():
                case.prepare()
                cases.append(case)
        except ImportError as error:
            missing[name] = f"not installed ({error})"
        except Exception as error:  # whatever a peer raises: the other peers are still measured
            missing[name] = f"failed: {type(error).__name__}: {error}"
            print(f"benchmark: {name} {missing[name]}", file=sys.stderr)
        else:
            found += cases
    return found, missing
