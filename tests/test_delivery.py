import threading
import time

import pytest

from instrument.delivery import MAX_BATCHES, Delivery
from instrument.plugins import NamedExporter
from instrument.records import Batch, ExportError, Loss

LONG = 20.0  # seconds that nothing here takes, unless it is broken


class Chunk:
    thread, tid, marks = 1, 1, 0

    def __init__(self, count):
        self.count = count


class Recording:
    """An exporter that waits for `gate` before it takes a batch, and keeps the sequence numbers."""

    def __init__(self, *, gated=False):
        self.gate = threading.Event()
        self.seen = []
        self.flushed_after = []
        self.error = None
        self.answer = True
        self.last = None
        if not gated:
            self.gate.set()

    def open(self, resource, /):
        pass

    def export(self, batch, /):
        assert self.gate.wait(LONG)
        if self.error:
            raise self.error
        self.seen.append((batch.sequence, batch.count))
        self.last = batch

    def flush(self, deadline, /):
        self.flushed_after.append(len(self.seen))
        return self.answer

    def close(self, deadline, /):
        return self.answer


def soon(seconds=LONG):
    return time.monotonic() + seconds


def batch(sequence, *counts, final=False, **content):
    return Batch(sequence=sequence, chunks=tuple(Chunk(count) for count in counts), final=final, **content)


@pytest.fixture
def make():
    made = []

    def start(exporter, *, max_chunks=100, threads=True):
        delivery = Delivery(NamedExporter("fake", "fake:", exporter, None), max_chunks)
        if threads:
            delivery.start()
            made.append((delivery, exporter))
        return delivery

    yield start
    for delivery, exporter in made:
        exporter.gate.set()
        delivery.close(soon())


def test_batches_arrive_in_order(make):
    exporter = Recording()
    delivery = make(exporter)
    for sequence in range(1, 51):
        delivery.offer(batch(sequence, sequence))
    assert delivery.flush(soon())
    assert exporter.seen == [(n, n) for n in range(1, 51)]


def test_flush_reaches_the_exporter_after_all_that_was_offered(make):
    exporter = Recording(gated=True)
    delivery = make(exporter)
    delivery.offer(batch(1, 1))
    delivery.offer(batch(2, 1))
    ticket = delivery.begin_flush(soon())
    exporter.gate.set()
    assert delivery.flush(soon(), ticket)
    assert exporter.flushed_after[0] == 2


def test_a_flush_that_times_out_loses_nothing_and_the_next_one_succeeds(make):
    exporter = Recording(gated=True)
    delivery = make(exporter)
    delivery.offer(batch(1, 3, 4))
    assert not delivery.flush(soon(0.01))
    assert delivery.pending() == 7
    exporter.gate.set()
    assert delivery.flush(soon())
    assert exporter.seen == [(1, 7)]
    assert delivery.losses() == []


def test_a_flush_is_served_while_batches_keep_coming(make):
    exporter = Recording()
    delivery = make(exporter)
    ending = threading.Event()

    def keep_offering():
        while not ending.is_set():
            delivery.offer(batch(1, 1))

    producer = threading.Thread(target=keep_offering)
    producer.start()
    try:
        assert delivery.flush(soon())
    finally:
        ending.set()
        producer.join()


def test_the_exporters_own_answer_is_passed_on(make):
    exporter = Recording()
    exporter.answer = False
    delivery = make(exporter)
    assert not delivery.flush(soon())
    assert not delivery.close(soon())
    assert delivery.ended


def test_what_does_not_fit_the_queue_is_counted_and_its_tables_still_arrive(make):
    exporter = Recording(gated=True)
    delivery = make(exporter, max_chunks=3)
    delivery.offer(batch(1, 1))
    wait_until(lambda: delivery.pending() == 1 and not delivery._queue)  # the exporter holds it
    delivery.offer(batch(2, 1, 1, 1))
    delivery.offer(batch(3, 100, 10, losses=(Loss("recorder", "paths", 1),)))
    assert delivery.losses() == [Loss("fake", "queue_full", 110)]
    exporter.gate.set()
    assert delivery.flush(soon())
    assert exporter.seen == [(1, 1), (2, 3), (3, 0)]
    assert exporter.last.losses == (Loss("recorder", "paths", 1),)


def test_the_number_of_queued_batches_is_bounded_but_the_last_one_gets_in(make):
    exporter = Recording(gated=True)
    delivery = make(exporter)
    for sequence in range(MAX_BATCHES + 100):
        delivery.offer(batch(sequence))
    delivery.offer(batch(10_000, final=True))
    exporter.gate.set()
    assert delivery.close(soon())
    assert len(exporter.seen) <= MAX_BATCHES + 2
    assert exporter.seen[-1] == (10_000, 0)


@pytest.mark.parametrize(
    ("error", "reason", "count"),
    [
        (OSError("no"), "error", 5),
        (SystemExit(1), "error", 5),
        (KeyboardInterrupt(), "error", 5),
        (ExportError("disk_full", 2), "disk_full", 2),
    ],
)
def test_a_failing_exporter_is_counted_by_reason_and_tried_again(make, error, reason, count):
    exporter = Recording()
    exporter.error = error
    delivery = make(exporter)
    delivery.offer(batch(1, 2, 3))
    assert delivery.flush(soon())
    assert delivery.losses() == [Loss("fake", reason, count)]
    exporter.error = None
    delivery.offer(batch(2, 1))
    assert delivery.flush(soon())
    assert exporter.seen == [(2, 1)]


def test_an_exporter_that_raises_in_flush_and_close_answers_false(make):
    class Raising(Recording):
        def flush(self, deadline, /):
            raise ValueError

        close = flush

    delivery = make(Raising())
    assert not delivery.flush(soon())
    assert not delivery.close(soon())


def test_close_keeps_its_deadline_and_the_exporter_goes_on(make):
    exporter = Recording(gated=True)
    delivery = make(exporter)
    delivery.offer(batch(1, 8, final=True))
    before = time.monotonic()
    assert not delivery.close(soon(0.05))
    assert time.monotonic() - before < LONG / 2
    assert delivery.pending() == 8
    assert not delivery.ended
    exporter.gate.set()
    assert delivery.close(soon())
    assert exporter.seen == [(1, 8)]
    assert delivery.pending() == 0


def test_the_last_batch_tells_what_its_own_exporter_lost_meanwhile(make):
    exporter = Recording(gated=True)
    delivery = make(exporter, max_chunks=1)
    delivery.offer(batch(1, 1))
    wait_until(lambda: not delivery._queue)
    delivery.offer(batch(2, 1))
    delivery.offer(batch(3, 50))
    others = (Loss("recorder", "paths", 2), Loss("fake", "queue_full", 1))
    delivery.offer(batch(4, final=True, losses=others))
    exporter.gate.set()
    assert delivery.close(soon())
    assert exporter.last.losses == (Loss("recorder", "paths", 2), Loss("fake", "queue_full", 50))


def test_what_comes_once_it_is_closing_is_counted(make):
    exporter = Recording()
    delivery = make(exporter)
    assert delivery.close(soon())
    delivery.offer(batch(1, 3))
    assert delivery.pending() == 0
    assert delivery.losses() == [Loss("fake", "late", 3)]
    assert delivery.flush(soon())
    assert exporter.seen == []


def test_without_a_thread_close_does_the_work_itself(make):
    exporter = Recording()
    delivery = make(exporter, threads=False)
    delivery.offer(batch(1, 1))
    assert delivery.flush(soon())
    delivery.offer(batch(2, 1, final=True))
    assert delivery.close(soon())
    assert exporter.seen == [(1, 1), (2, 1)]
    assert threading.active_count() == 1 or not any(
        t.name == "instrument-fake" for t in threading.enumerate()
    )


def wait_until(condition):
    deadline = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)
