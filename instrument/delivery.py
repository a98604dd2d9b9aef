"""One exporter, its bounded queue and its thread: a slow, hanging or failing exporter delays nobody.

What
    :class:`Delivery` takes batches from the drain and gives them to one exporter, one at a time.
Why
    The queue holds recorder memory (chunks), so it is bounded in chunks: what does not fit is counted, and
    the recorder stays usable for the other exporters.
How
    Everything an exporter raises ends here, as a count by reason. Waiting for an exporter has a deadline
    always. The thread is a daemon: an exporter that hangs cannot keep the process alive.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from instrument.plugins import NamedExporter
from instrument.records import Batch, ExportError, Loss, Resource

__all__ = ["Delivery"]

MAX_BATCHES: Final = 4096
"""Bound for queued batches, most of which hold no chunk when the exporter hangs."""


class Delivery:
    """Queue and thread of one exporter."""

    def __init__(self, named: NamedExporter, max_chunks: int) -> None:
        self.name = named.name
        self.named = named
        self._exporter = named.exporter
        self._max_chunks = max_chunks
        self._losses: Counter[str] = Counter()
        # Re-entrant: a signal handler that stops the session may interrupt the thread that holds it.
        self._changed = threading.Condition(threading.RLock())
        self._queue: deque[Batch] = deque()
        self._queued_chunks = 0
        self._working_on: Batch | None = None
        self._offered = 0  # batches ever queued
        self._exported = 0  # batches ever given to the exporter
        self._flush_requests = 0
        self._flush_served = 0
        self._flush_target = 0  # flush when so many batches are exported
        self._flush_deadline = 0.0
        self._flush_answer = True
        self._closing = False
        self._close_deadline = 0.0
        self._close_answer: bool | None = None
        self._thread: threading.Thread | None = None

    # -------------------------------------------------------------- the session's side

    def open(self, resource: Resource) -> None:
        """Open the exporter; raises what it raises."""
        self._exporter.open(resource)

    def start(self) -> None:
        """Start the thread. Without it, as at interpreter exit, :meth:`close` does the work itself."""
        thread = threading.Thread(target=self._work, name=f"instrument-{self.name}", daemon=True)
        thread.start()
        self._thread = thread

    def offer(self, batch: Batch) -> None:
        """Queue a batch; never waits. What has no room is counted: all of the batch's spans and marks."""
        with self._changed:
            if self._closing:  # a cycle that did not end before the deadline of stop()
                self._losses["late"] += batch.count
                return
            if batch.chunks and self._queued_chunks + len(batch.chunks) > self._max_chunks:
                self._losses["queue_full"] += batch.count
                batch = replace(batch, chunks=())
            if len(self._queue) >= MAX_BATCHES and not batch.final:
                self._losses["queue_full"] += batch.count
                return
            self._queue.append(batch)
            self._queued_chunks += len(batch.chunks)
            self._offered += 1
            self._changed.notify_all()

    def begin_flush(self, deadline: float) -> int:
        """Ask for a flush after what is queued now; gives the ticket to wait for."""
        with self._changed:
            self._flush_requests += 1
            self._flush_target = self._offered
            self._flush_deadline = deadline
            self._changed.notify_all()
            return self._flush_requests

    def flush(self, deadline: float, ticket: int | None = None) -> bool:
        """Wait until the exporter got and flushed all that was offered; False if not by the deadline.

        Nothing is lost by a False: a later flush waits for the same.
        """
        ticket = ticket or self.begin_flush(deadline)
        if self._thread is None:
            self._work(until_idle=True)
        with self._changed:
            if not self._wait(lambda: self._flush_served >= ticket or self.ended, deadline):
                return False
            return self._flush_answer if self._flush_served >= ticket else bool(self._close_answer)

    def begin_close(self, deadline: float) -> None:
        """Take no more batches, and close the exporter when those queued are exported."""
        with self._changed:
            self._closing = True
            self._close_deadline = deadline
            self._changed.notify_all()

    def close(self, deadline: float) -> bool:
        """Have what is queued exported and the exporter closed; False if that did not succeed in time.

        It goes on by itself after the deadline, while the process lives; call again to wait again.
        """
        self.begin_close(deadline)
        if self._thread is None:
            self._work(until_idle=True)
        with self._changed:
            return self._wait(lambda: self.ended, deadline) and bool(self._close_answer)

    def inherit(self) -> None:
        """In a fork's child: forget the parent's batches.

        The parent's thread is not here, but what its frames held stays for ever, this object too. Attributes
        only: the lock may be held for ever.
        """
        self._queue = deque()
        self._working_on = None

    @property
    def ended(self) -> bool:
        """Whether the exporter was closed, well or not."""
        return self._close_answer is not None

    def pending(self) -> int:
        """Spans and marks that the exporter did not take yet."""
        with self._changed:
            waiting = sum(batch.count for batch in self._queue)
            return waiting + (self._working_on.count if self._working_on else 0)

    def losses(self) -> list[Loss]:
        """What this exporter did not get or did not deliver, by reason."""
        with self._changed:
            return [Loss(self.name, reason, count) for reason, count in sorted(self._losses.items()) if count]

    def _wait(self, condition: Callable[[], bool], deadline: float) -> bool:
        return self._changed.wait_for(condition, max(deadline - time.monotonic(), 0.0))

    # -------------------------------------------------------------- the thread's side

    def _work(self, *, until_idle: bool = False) -> None:
        while True:
            with self._changed:
                job = self._next_job()
                while job is None and not until_idle and not self.ended:
                    self._changed.wait()
                    job = self._next_job()
            if job is None:
                return
            job()

    def _next_job(self) -> Callable[[], None] | None:
        if self.ended:
            return None
        if self._flush_served < self._flush_requests and self._exported >= self._flush_target:
            return self._flush_once
        if self._queue:
            return self._export_one
        return self._close_once if self._closing else None

    def _export_one(self) -> None:
        with self._changed:
            batch = self._working_on = self._queue.popleft()
            self._queued_chunks -= len(batch.chunks)
            if batch.final:  # what was lost since it was made belongs into it
                others = [loss for loss in batch.losses if loss.where != self.name]
                batch = replace(batch, losses=(*others, *self.losses()))
        lost: tuple[str, int] | None = None
        try:
            self._exporter.export(batch)
        except ExportError as error:
            lost = error.reason, error.count
        except BaseException:  # nobody else would see it
            lost = "error", batch.count
        with self._changed:
            if lost:
                self._losses[lost[0]] += lost[1]
            self._working_on = None
            self._exported += 1
            self._changed.notify_all()

    def _flush_once(self) -> None:
        with self._changed:
            ticket, deadline = self._flush_requests, self._flush_deadline
        try:
            answer = bool(self._exporter.flush(deadline))
        except BaseException:
            answer = False
        with self._changed:
            self._flush_served, self._flush_answer = ticket, answer
            self._changed.notify_all()

    def _close_once(self) -> None:
        try:
            answer = bool(self._exporter.close(self._close_deadline))
        except BaseException:
            answer = False
        with self._changed:
            self._close_answer = answer
            self._changed.notify_all()
