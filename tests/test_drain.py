import logging
import threading
import time
from collections import Counter

import pytest

import instrument
from instrument.recorder import _core
from instrument.records import Batch
from instrument.testing import InMemoryExporter, capture

LONG = 60.0


class Batches(InMemoryExporter):
    """Keeps the batches too, without their chunks."""

    def __init__(self):
        super().__init__()
        self.batches = []

    def export(self, batch, /):
        super().export(batch)
        self.batches.append(
            Batch(
                sequence=batch.sequence,
                threads=batch.threads,
                sites=batch.sites,
                metrics=batch.metrics,
                totals=batch.totals,
                losses=batch.losses,
                final=batch.final,
            )
        )


def test_every_span_of_eight_threads_arrives_once_with_its_nesting():
    def work(number):
        for i in range(500):
            with instrument.region("outer", thread=number, i=i), instrument.region("inner", i=i):
                pass

    with capture(interval=0.01) as got:
        threads = [threading.Thread(target=work, args=(n,), name=f"w{n}") for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len({span.id for span in got.spans}) == len(got.spans) == 8 * 500 * 2
    outer = {span.id: span for span in got.spans if span.name == "outer"}
    inner = [span for span in got.spans if span.name == "inner"]
    assert Counter((s.attrs["thread"], s.attrs["i"]) for s in outer.values()) == Counter(
        (n, i) for n in range(8) for i in range(500)
    )
    for span in inner:
        parent = outer[span.parent]
        assert (parent.attrs["i"], parent.tid, span.root) == (span.attrs["i"], span.tid, parent.id)
        assert parent.start <= span.start <= span.start + span.dur <= parent.start + parent.dur
    assert {total.path: total.count for total in got.totals} == {"outer": 4000, "outer/inner": 4000}
    for total in got.totals:
        assert total.sum_ns == sum(span.dur for span in got.spans if span.path == total.path)


def test_spans_arrive_without_a_flush_within_some_intervals():
    with capture(interval=0.01) as got:
        with instrument.region("a"):
            pass
        deadline = time.monotonic() + LONG
        while not got.spans:
            assert time.monotonic() < deadline
            time.sleep(0.005)


def test_start_times_are_unix_time():
    before = time.time_ns()
    with capture() as got, instrument.region("a"):
        time.sleep(0.01)
    after = time.time_ns()
    (span,) = got.spans
    assert before - 5_000_000 <= span.start <= span.start + span.dur <= after + 5_000_000
    assert span.dur >= 10_000_000


def test_batches_are_numbered_and_only_the_last_has_totals():
    exporter = Batches()
    with instrument.session(export=exporter, interval=0.01):
        for _ in range(5):
            with instrument.region("a"):
                pass
            instrument.flush()
    batches = exporter.batches
    assert [batch.sequence for batch in batches] == list(range(1, len(batches) + 1))
    assert [batch.final for batch in batches] == [False] * (len(batches) - 1) + [True]
    assert [bool(batch.totals) for batch in batches] == [batch.final for batch in batches]


def test_nothing_new_makes_no_batch():
    exporter = Batches()
    with instrument.session(export=exporter, interval=0.005) as session:
        session.flush()
        before = len(exporter.batches)
        time.sleep(0.05)
        session.flush()
        assert len(exporter.batches) == before


def test_each_thread_and_site_is_told_once():
    exporter = Batches()
    with instrument.session(export=exporter, interval=0.01) as session:
        for _ in range(3):
            with instrument.region("told_once"):
                pass
            session.flush()
        worker = threading.Thread(
            target=lambda: instrument.region("told_once").__enter__().__exit__(None, None, None)
        )
        worker.name = "second"
        worker.start()
        worker.join()
    threads = [thread for batch in exporter.batches for thread in batch.threads]
    assert [thread.name for thread in threads] == ["MainThread", "second"]
    sites = [site for batch in exporter.batches for site in batch.sites if site.name == "told_once"]
    assert [(site.kind, site.file) for site in sites] == [("region", __file__)]


def test_metrics_are_cumulative_and_told_when_they_change():
    exporter = Batches()
    with instrument.session(export=exporter, interval=0.01) as session:
        instrument.count("tokens", 3, kind="in")
        session.flush()
        session.flush()
        instrument.count("tokens", 4, kind="in")
        instrument.gauge("depth", 2)
        instrument.observe("size", 1)
        instrument.observe("size", 5)
    told = [metric.sum for batch in exporter.batches[:-1] for metric in batch.metrics]
    assert told == [3]
    final = {(m.kind, m.name): m for m in exporter.batches[-1].metrics}
    tokens, depth, size = final["count", "tokens"], final["gauge", "depth"], final["observe", "size"]
    assert (tokens.labels, tokens.sum, tokens.count) == ({"kind": "in"}, 7, 2)
    assert depth.last == 2
    assert (size.count, size.sum, size.min, size.max, size.last) == (2, 6, 1, 5, 5)


def test_marks_are_counted_apart_from_spans():
    with instrument.session(export=InMemoryExporter()) as session:
        for i in range(10):
            with instrument.region("a"):
                instrument.mark("seen", i=i)
                instrument.mark("seen_too")
    summary = session.stop()
    assert (summary.spans, summary.marks) == (10, 20)


class Gated(InMemoryExporter):
    """Takes nothing until it is let."""

    def __init__(self):
        super().__init__()
        self.gate = threading.Event()

    def export(self, batch, /):
        assert self.gate.wait(LONG)
        super().export(batch)


@pytest.mark.parametrize("overflow", ["newest", "oldest"])
def test_what_a_hanging_exporter_does_not_take_is_counted_to_the_last_span(overflow, caplog):
    exporter = Gated()
    made = 200_000
    with instrument.session(export=exporter, buffer_mib=2, overflow=overflow, interval=0.01) as session:
        for _ in range(made):
            with instrument.region("many"):
                pass
        used, bound = _core.memory()
        assert used <= bound == 2 << 20
        exporter.gate.set()
        summary = session.stop(timeout=LONG)
    lost = sum(loss.count for loss in summary.losses)
    assert summary.delivered
    assert lost > 0
    assert len(exporter.spans) + lost == made
    assert exporter.totals[0].count == made
    assert list(exporter.losses) == list(summary.losses)


def test_a_slow_exporter_delays_no_other():
    slow, quick = Gated(), InMemoryExporter()
    with instrument.session(export=[slow, quick], interval=0.01) as session:
        with instrument.region("a"):
            pass
        assert not session.flush(0.05)
        assert [span.name for span in quick.spans] == ["a"]
        slow.gate.set()
        assert session.flush(LONG)
        assert [span.name for span in slow.spans] == ["a"]


def test_each_kind_of_loss_is_logged_once(caplog):
    caplog.set_level(logging.WARNING, logger="instrument")

    class Failing(InMemoryExporter):
        def export(self, batch, /):
            raise OSError("gone")

    with instrument.session(export=Failing(), interval=0.01) as session:
        for _ in range(5):
            with instrument.region("a"):
                pass
            session.flush()
    said = [record.getMessage() for record in caplog.records if record.name == "instrument"]
    assert len(said) == 1
    assert said[0].startswith("instrument: lost ")
    assert "(Failing: error)" in said[0]
    assert session.stop().losses[0].count == 5


def test_harmless_counts_are_reported_and_not_logged(caplog):
    with capture() as got:
        instrument.annotate(a=1)
        instrument.flush()
    assert [(loss.where, loss.reason, loss.count) for loss in got.losses] == [
        ("recorder", "set_without_span", 1)
    ]
    assert not [record for record in caplog.records if record.name == "instrument"]


def test_a_filter_of_the_programs_that_raises_does_not_stop_the_drain():
    def broken(record):
        raise ValueError

    logger = logging.getLogger("instrument")
    logger.addFilter(broken)

    class FailingOnce(InMemoryExporter):
        failed = False

        def export(self, batch, /):
            if not self.failed:
                self.failed = True
                raise OSError
            super().export(batch)

    exporter = FailingOnce()
    try:
        with instrument.session(export=exporter, interval=0.01) as session:
            for _ in range(2):
                with instrument.region("a"):
                    pass
                session.flush()
        assert session.stop().spans == 2
        assert len(exporter.spans) == 1
    finally:
        logger.removeFilter(broken)


def test_a_recorder_that_fails_is_counted_and_the_drain_goes_on(monkeypatch):
    with instrument.session(export=InMemoryExporter(), interval=60) as session:
        with monkeypatch.context() as patch:
            patch.setattr(_core, "threads", lambda first: 1 / 0)
            session.flush()
        assert ("drain", "error") in {(loss.where, loss.reason) for loss in session.losses()}
        with instrument.region("a"):
            pass
    assert session.stop().spans == 1


@pytest.mark.slow
def test_a_million_spans_leave_memory_flat():
    class Counting(InMemoryExporter):
        seen = 0

        def export(self, batch, /):
            self.seen += batch.count

    exporter = Counting()
    with instrument.session(export=exporter, interval=0.02) as session:
        for _ in range(1_000_000):
            with instrument.region("a"):
                pass
        summary = session.stop(timeout=LONG)
    assert exporter.seen + sum(loss.count for loss in summary.losses) == 1_000_000
    assert _core.memory()[0] <= 64 << 20
