"""The drain: takes what was recorded, and hands it to the exporters.

What
    One thread that every ``interval`` seconds steers the recorder's clock, takes its chunks, looks for new
    threads, sites, paths, metrics and losses, makes :class:`~instrument.records.Batch` of it and offers that
    to every :class:`~instrument.delivery.Delivery`.
Why
    The program's threads only write into memory; everything else happens here or further away.
How
    A cycle waits for nobody: it takes milliseconds, and runs in the caller's thread for ``flush`` and
    ``stop``. Nothing raises; what fails is counted under ``drain``. Each loss is logged once, by the logger
    ``instrument``.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, cast

from instrument.delivery import Delivery
from instrument.recorder import _core
from instrument.records import (
    Batch,
    Loss,
    Metric,
    PathInfo,
    RecordedChunk,
    Resource,
    SiteInfo,
    Thread,
    Total,
)

__all__ = ["Drain", "read_metrics", "read_totals"]

CHUNKS_PER_BATCH: Final = 64
METRICS_EVERY: Final = 1.0
"""Seconds between two looks at the metrics, whatever the interval: a changed series is a line each time."""

ADVICE: Final = {
    "buffer_full": "raise buffer_mib, or annotate less finely",
    "overwritten": "raise buffer_mib, or annotate less finely",
    "queue_full": "the exporter is slower than the program; raise buffer_mib, or annotate less finely",
    "file_closed": "the program closed all its descriptors, as daemons do: start the session after that",
    "disk_full": "free some space; recording goes on, and writing is tried again",
    "recursion": "kernels that recursed deeper than 64 calls were not recorded below that",
    "paths": "names should be constant, what varies an attribute",
    "sites": "names should be constant, what varies an attribute",
}
UNSAID: Final = frozenset({"inherited", "unmatched_exit", "set_without_span", "threads"})
"""Losses that cost no data the user counts on: reported, not logged."""

logger = logging.getLogger("instrument")


def _is_alone() -> bool:
    """Whether the main thread has ended, and no other that Python would wait for is left."""
    return not threading.main_thread().is_alive() and all(thread.daemon for thread in threading.enumerate())


class Drain:
    """What runs while a session is on: the thread, the tables read so far, and the deliveries."""

    def __init__(
        self, resource: Resource, deliveries: Sequence[Delivery], interval: float, max_chunks: int
    ) -> None:
        self.resource = resource
        self.deliveries = tuple(deliveries)
        self.spans = 0
        self.marks = 0
        self.threads: list[Thread] = []
        """All that recorded; the recorder bounds their number."""
        self.metrics: tuple[Metric, ...] = ()
        """All series, once finished."""
        self._interval = interval
        self._chunks_per_batch = max(1, min(CHUNKS_PER_BATCH, max_chunks // 4))
        self._wake = threading.Event()
        self._ending = False
        self._one_cycle = threading.Lock()  # held for a cycle
        self._sequence = 0
        self._paths: list[PathInfo | None] = [None]
        self._sites_seen = 0
        self._metrics_seen: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self._metrics_due = 0.0
        self._losses_seen: tuple[Loss, ...] = ()
        self._own_losses: Counter[str] = Counter()
        self._anchor: dict[str, int] = {}
        self._said: set[tuple[str, str]] = set()
        self.when_alone: Callable[[], None] | None = None
        """Ends the session when no thread of the program is left; for a process that nothing else ends."""

    # -------------------------------------------------------------- the session's side

    def start(self) -> None:
        """Start the deliveries' threads and the drain's own.

        If the system or a process that is ending has no thread for us, what the buffer holds is delivered by
        ``flush`` and ``stop``, in the caller's thread.
        """
        with suppress(RuntimeError):
            for delivery in self.deliveries:
                delivery.start()
            threading.Thread(target=self._run, name="instrument-drain", daemon=True).start()

    def flush(self, deadline: float) -> bool:
        """Hand over what was recorded until now, and wait until every exporter has delivered it."""
        done = self._cycle(deadline, metrics=True)
        tickets = [
            delivery.begin_flush(deadline) for delivery in self.deliveries
        ]  # all work before any is waited for
        waits = zip(self.deliveries, tickets, strict=True)
        answers = [delivery.flush(deadline, ticket) for delivery, ticket in waits]
        return done and all(answers)

    def finish(self, deadline: float) -> tuple[Total, ...]:
        """After the recorder's stop: the last batch, with the totals. Does not wait for the exporters."""
        self._ending = True
        self._wake.set()
        totals: tuple[Total, ...] = ()
        try:
            totals = read_totals()
        except Exception:  # no memory for them
            self._own_losses["error"] += 1
        if not self._cycle(deadline, totals=totals, final=True):
            self._own_losses["unfinished"] += 1
        return totals

    def close(self, deadline: float) -> bool:
        """Wait until every exporter has delivered and closed; False if one did not in time."""
        for delivery in self.deliveries:  # all begin before any is waited for
            if not delivery.ended:
                delivery.begin_close(deadline)
        answers = [delivery.close(deadline) for delivery in self.deliveries]
        return all(answers)

    def inherit(self) -> None:
        """In a fork's child: let go of what the parent delivers, whose memory counts here too."""
        for delivery in self.deliveries:
            delivery.inherit()

    def pending(self) -> int:
        """Spans and marks that still wait for an exporter."""
        return sum(delivery.pending() for delivery in self.deliveries)

    def losses(self) -> tuple[Loss, ...]:
        """Everything lost up to now, cumulative."""
        found = [Loss("recorder", reason, count) for reason, count in sorted(_core.losses().items())]
        found += [Loss("drain", reason, count) for reason, count in sorted(self._own_losses.items())]
        for delivery in self.deliveries:
            found += delivery.losses()
        return tuple(loss for loss in found if loss.count)

    def say_losses(self, losses: Iterable[Loss]) -> None:
        """Log each kind of loss the first time it is seen."""
        for loss in losses:
            kind = loss.where, loss.reason
            if kind in self._said or loss.reason in UNSAID:
                continue
            self._said.add(kind)
            advice = ADVICE.get(loss.reason)
            logger.warning(
                "instrument: lost %d so far (%s: %s)%s; said once, counted in the report",
                loss.count,
                loss.where,
                loss.reason,
                f"; {advice}" if advice else "",
            )

    # -------------------------------------------------------------- the cycle

    def _run(self) -> None:
        while not self._wake.wait(self._interval) and not self._ending:
            self._cycle(time.monotonic() + 60.0)
            if self.when_alone is not None and _is_alone():
                self.when_alone()

    def _cycle(
        self, deadline: float, *, metrics: bool = False, totals: tuple[Total, ...] = (), final: bool = False
    ) -> bool:
        """Take and hand over everything there is; False if another cycle did not end by the deadline."""
        if not self._one_cycle.acquire(timeout=max(deadline - time.monotonic(), 0.0)):
            return False
        try:
            self._hand_over(metrics=metrics or final, totals=totals, final=final)
        except Exception:
            self._own_losses["error"] += 1
        finally:
            self._one_cycle.release()
        try:
            self.say_losses(self._losses_seen)
        except Exception:  # a logging filter of the program's may raise
            self._own_losses["error"] += 1
        return True

    def _hand_over(self, *, metrics: bool, totals: tuple[Total, ...], final: bool) -> None:
        _, monotonic_ns, wall_ns = _core.tick()
        self._anchor = {"monotonic_ns": monotonic_ns, "wall_ns": wall_ns}
        chunks: Sequence[RecordedChunk] = _core.take()
        threads, sites = self._new_threads(), self._new_sites()
        self._read_paths()
        changed = self._changed_metrics(forced=metrics, every=final)
        self._count(chunks)
        losses = self.losses()
        if not (chunks or threads or sites or changed or final or losses != self._losses_seen):
            return
        self._losses_seen = losses
        size = self._chunks_per_batch
        groups = [chunks[at : at + size] for at in range(0, len(chunks), size)] or [()]
        for number, group in enumerate(groups, 1):
            first, last = number == 1, number == len(groups)
            self._offer(
                chunks=tuple(group),
                threads=threads if first else (),
                sites=sites if first else (),
                metrics=changed if last else (),
                totals=totals if last else (),
                losses=losses,
                final=final and last,
            )

    def _offer(self, **content: Any) -> None:
        self._sequence += 1
        batch = Batch(
            sequence=self._sequence,
            time=time.time_ns(),
            pid=self.resource.pid,
            wall_offset=self.resource.wall_offset,
            clock=self._anchor,
            paths=self._paths,
            flag_names=_core.FLAG_NAMES,
            **content,
        )
        for delivery in self.deliveries:
            delivery.offer(batch)

    def _count(self, chunks: Iterable[RecordedChunk]) -> None:
        for chunk in chunks:
            self.marks += chunk.marks
            self.spans += chunk.count - chunk.marks

    # -------------------------------------------------------------- tables

    def _new_threads(self) -> tuple[Thread, ...]:
        pid = self.resource.pid
        rows = _core.threads(len(self.threads))
        found = tuple(Thread(pid=pid, tid=tid, serial=serial, name=name) for serial, tid, name in rows)
        self.threads += found
        return found

    def _new_sites(self) -> tuple[SiteInfo, ...]:
        rows = _core.sites(self._sites_seen)
        self._sites_seen += len(rows)
        known = [s for s in rows if s.file]  # those without one stand for what did not fit the table
        return tuple(SiteInfo(s.index, s.name, s.kind, s.scope, s.file, s.line) for s in known)

    def _read_paths(self) -> None:
        for index in range(len(self._paths), _core.path_count()):
            self._paths.append(PathInfo(*_core.path(index)))

    def _changed_metrics(self, *, forced: bool, every: bool) -> tuple[Metric, ...]:
        now = time.monotonic()
        if not forced and now < self._metrics_due:
            return ()
        self._metrics_due = now + METRICS_EVERY
        changed: list[Metric] = []
        for metric in read_metrics():
            state = metric.count, metric.sum, metric.last
            if every or self._metrics_seen.get(metric.series) != state:
                self._metrics_seen[metric.series] = state
                changed.append(metric)
        if every:
            self.metrics = tuple(changed)
        return tuple(changed)


def read_totals() -> tuple[Total, ...]:
    """The recorder's totals as they are now, about 20 us a path."""
    totals = []
    for index, count, errors, still_open, sum_ns, self_ns, min_ns, max_ns, histogram, *work in _core.totals():
        name, kind, path, _, _ = _core.path(index)
        measured, flops, size = work
        totals.append(
            Total(
                path=path,
                name=name,
                kind=kind,
                by={},
                count=count,
                errors=errors,
                open=still_open,
                sum_ns=sum_ns,
                self_ns=self_ns,
                min_ns=min_ns,
                max_ns=max_ns,
                histogram=tuple(histogram),
                measures={key: value for key, value in (("flops", flops), ("bytes", size)) if value},
                measured=int(measured),
            )
        )
    return tuple(totals)


def read_metrics() -> tuple[Metric, ...]:
    """The recorder's metrics as they are now."""
    now = time.time_ns()
    return tuple(
        Metric(cast(Any, kind), name, labels, now, count, total, least, most, last)
        for kind, name, labels, count, total, least, most, last in _core.metrics()
    )
