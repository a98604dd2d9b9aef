"""Sessions: from ``start`` to ``stop``, one at a time per process.

What
    :func:`start` turns the recorder on and begins to drain it into exporters; :func:`flush` and :func:`stop`
    wait for them with a deadline; :func:`session` is a context manager around both.
Why
    The recorder is one per process, so a second session beside the first is an error, not a merger.
How
    A :class:`Session` owns one :class:`~instrument.drain.Drain`. In a fork's child it is the same object with
    another drain, made at the child's first record (:mod:`instrument.lifecycle`). Only ``start`` raises.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Never, Self, TypedDict, Unpack

from instrument import _switch, lifecycle
from instrument.config import Options, resolve
from instrument.delivery import Delivery
from instrument.drain import Drain, logger, read_metrics, read_totals
from instrument.environment import describe_process
from instrument.errors import ConfigError
from instrument.plugins import NamedExporter, make_exporters
from instrument.recorder import _core
from instrument.records import AsLine, Exporter, Loss, Total

if TYPE_CHECKING:
    from instrument.runs.report import Report

__all__ = ["Session", "Summary", "flush", "session", "start", "stop"]

_MIB: Final = 1 << 20
_NOT_A_CALLER: Final = frozenset({"instrument", "contextlib", "importlib"})


@dataclass(frozen=True, slots=True)
class Summary:
    """What a session leaves behind, from this process."""

    run_id: str
    duration: float
    """Seconds from start to stop."""
    spans: int
    """Spans that reached the drain; exporters may have lost some of them (``losses``)."""
    marks: int
    losses: tuple[Loss, ...]
    delivered: bool
    """Whether every exporter closed in time and said that nothing is left."""
    outputs: tuple[str, ...]
    """Where the exporters wrote, as far as they say."""
    pending: int = 0
    """Spans and marks that still waited for an exporter at the deadline."""
    totals: tuple[Total, ...] = ()

    def __str__(self) -> str:
        lost = ", ".join(f"{loss.count} {loss.where}: {loss.reason}" for loss in self.losses) or "nothing"
        text = f"{self.spans} spans and {self.marks} marks in {self.duration:.3f} s; lost: {lost}"
        text += "" if self.delivered else f"; {self.pending} not delivered in time"
        return text + (f"; written to {', '.join(self.outputs)}" if self.outputs else "")


_NOTHING: Final = Summary("", 0.0, 0, 0, (), True, ())


class Session:
    """A running session; made by :func:`start`. Also a context manager that stops it."""

    def __init__(self, options: Options, where: str, *, off: bool = False) -> None:
        self.options = options
        self.run_id = options.run_id or os.urandom(8).hex()
        self.where = where
        """``file:line`` of the call that started it."""
        self._off = off
        self._exporters: tuple[NamedExporter, ...] = ()
        self._drain: Drain | None = None
        self._summary: Summary | None = None
        self._pid = os.getpid()
        self._parent_pid: int | None = None
        self._names_run = False  # in the environment, for child processes
        self._started = time.monotonic()
        # Re-entrant: a signal handler may stop the session while this thread is in one of its methods.
        self._lock = threading.RLock()

    def flush(self, timeout: float = 5.0) -> bool:
        """Deliver everything recorded until now; False if that took longer than ``timeout`` seconds.

        A False loses nothing: the exporters go on, and a later flush waits for the same records.
        """
        deadline = time.monotonic() + _seconds(timeout)
        if not self._is_mine():
            return True
        self.resume()
        drain = self._drain
        return drain.flush(deadline) if drain is not None and self._summary is None else True

    def stop(self, timeout: float = 2.0) -> Summary:
        """Stop recording, deliver what is left and close the exporters, within ``timeout`` seconds.

        An exporter that needs longer goes on in its thread, and gets another chance when the process ends;
        ``delivered`` says so. Stopping twice gives the same summary again.
        """
        deadline = time.monotonic() + _seconds(timeout)
        if not self._is_mine():
            return _NOTHING
        self.resume()
        if not self._lock.acquire(timeout=_seconds(timeout)):
            return self._summary or self._summarise((), delivered=False)
        try:
            if self._summary is None:
                self._stop(deadline)
            return self._summary or _NOTHING
        finally:
            self._lock.release()

    def report(self) -> "Report":
        """A table of where the time went until now; it prints, and shows as HTML in a notebook."""
        from instrument.runs.report import Report
        from instrument.runs.run import run_from_records

        if self._is_mine():
            self.resume()
        return Report(run_from_records(self._lines()))

    def _lines(self) -> Iterator[dict[str, Any]]:
        """What the run file says besides spans, marks and sites."""
        drain, summary = self._drain, self._summary
        yield (drain.resource if drain else describe_process(self.options, self.run_id)).as_line()
        if drain is None:
            return
        now = summary or self._summarise(read_totals(), delivered=False)
        metrics = drain.metrics if summary else read_metrics()
        items: tuple[AsLine, ...] = (*drain.threads, *now.totals, *metrics, *now.losses)
        for item in items:
            yield item.as_line()
        yield {
            "type": "end",
            "time": time.time_ns(),
            "duration_ns": int(now.duration * 1e9),
            "spans": now.spans,
            "marks": now.marks,
            "lost": sum(loss.count for loss in now.losses),
        }

    def losses(self) -> tuple[Loss, ...]:
        """What was not recorded or not delivered, up to now."""
        if self._summary is not None:
            return self._summary.losses
        if not self._is_mine():
            return ()
        return self._drain.losses() if self._drain is not None else ()

    @property
    def active(self) -> bool:
        """Whether it records."""
        return not self._off and self._summary is None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "off" if self._off else "on" if self._summary is None else "stopped"
        return f"<instrument.Session {self.run_id} {state}, started at {self.where}>"

    # -------------------------------------------------------------- start and stop

    def _begin(self, exporters: tuple[NamedExporter, ...]) -> None:
        self._exporters = exporters
        drain = self._open(exporters)
        options = self.options
        buffer_bytes = int(options.buffer_mib * _MIB)
        try:
            _core.start(
                buffer_bytes=buffer_bytes, chunk_bytes=_chunk_bytes(buffer_bytes), overflow=options.overflow
            )
            self._started = time.monotonic()
            self._drain = drain
            drain.start()
        except BaseException as error:  # an interrupt too: nobody would drain what is recorded
            _core.stop()
            drain.finish(time.monotonic())
            _close_all(drain.deliveries)
            if not isinstance(error, ValueError | RuntimeError | OSError):
                raise
            option = "option 'buffer_mib': " if isinstance(error, ValueError) else ""
            raise ConfigError(f"{option}the recorder does not start: {error}") from error
        # Programs that this one starts inherit the variable that started this session, and begin their own
        # with it: they are part of the same run.
        if self.options.run_id is None and self.options.sources.get("export") == "INSTRUMENT_EXPORT":
            self._names_run = True
            os.environ["INSTRUMENT_RUN_ID"] = self.run_id

    def _open(self, exporters: Sequence[NamedExporter]) -> Drain:
        resource = describe_process(self.options, self.run_id, self._parent_pid)
        buffer_bytes = int(self.options.buffer_mib * _MIB)
        # Queued chunks count against the recorder's bound; a quarter of it always stays for recording.
        max_chunks = buffer_bytes * 3 // 4 // _chunk_bytes(buffer_bytes) // max(len(exporters), 1)
        deliveries: list[Delivery] = []
        for named in exporters:
            delivery = Delivery(named, max(max_chunks, 1))
            try:
                delivery.open(resource)
            except Exception as error:
                _close_all(deliveries)
                text = str(error) or type(error).__name__
                raise ConfigError(f"option 'export': {named.spec!r} cannot be opened: {text}") from error
            deliveries.append(delivery)
        drain = Drain(resource, deliveries, self.options.interval, max_chunks)
        if lifecycle.forked_by_a_thread():
            drain.when_alone = lifecycle.at_exit
        return drain

    def _stop(self, deadline: float) -> None:
        if self._off:
            self._summary = _NOTHING
            return
        _core.stop()
        lifecycle.release(self)
        if self._names_run:
            os.environ.pop("INSTRUMENT_RUN_ID", None)
        drain = self._drain
        if drain is None:  # a fork's child that has nothing to write to
            self._summary = _NOTHING
            return
        lifecycle.linger(self)  # until all is delivered; also if a KeyboardInterrupt ends the waiting
        totals = drain.finish(deadline)
        delivered = drain.close(deadline)
        self._summary = self._summarise(totals, delivered=delivered)
        drain.say_losses(self._summary.losses)
        if all(delivery.ended for delivery in drain.deliveries):
            lifecycle.settle(self)

    def _summarise(self, totals: tuple[Total, ...], *, delivered: bool) -> Summary:
        drain = self._drain
        targets = (getattr(named.exporter, "target", None) for named in self._exporters)
        return Summary(
            run_id=self.run_id,
            duration=time.monotonic() - self._started,
            spans=drain.spans if drain else 0,
            marks=drain.marks if drain else 0,
            losses=drain.losses() if drain else (),
            delivered=delivered,
            outputs=tuple(str(target) for target in targets if target),
            pending=drain.pending() if drain else 0,
            totals=totals,
        )

    # -------------------------------------------------------------- fork and exit

    def inherit(self) -> None:
        """In a fork's child, before anything else runs there: attributes only."""
        self._lock = threading.RLock()
        if self._drain is not None:
            self._drain.inherit()
        self._drain = None
        self._parent_pid, self._pid = self._pid, os.getpid()

    def dormant(self) -> bool:
        """Whether this is a fork's child in which nothing was recorded or asked yet."""
        return self._parent_pid is not None and self._drain is None and self._summary is None

    def abandon(self) -> None:
        """In a fork's child: make way for a session of its own."""
        _core.on_first_record(None)
        _core.stop()
        self._summary = _NOTHING
        lifecycle.release(self)

    def _is_mine(self) -> bool:
        """False for a session that was being stopped by another thread of the parent during the fork."""
        return self._pid == os.getpid()

    def resume(self, *, threads: bool = True) -> None:
        """In a fork's child: open exporters of its own and drain into them; else nothing."""
        if not self.dormant():
            return
        with self._lock:
            if not self.dormant():
                return
            exporters = [child for named in self._exporters if (child := named.for_child())]
            self._exporters = tuple(exporters)
            try:
                if not exporters:  # they were objects of the parent's: there is nothing to record for
                    raise LookupError
                drain = self._open(exporters)
                self._started = time.monotonic()
                self._drain = drain
                if threads:
                    drain.start()
            except Exception as error:
                self._stop(0.0)
                if not isinstance(error, LookupError):
                    logger.warning("instrument: this child process is not recorded: %s", error)

    def stop_at_exit(self, timeout: float) -> None:
        """The process ends: stop, and say what was lost for want of time."""
        if self.dormant():
            if not (_core.totals() or _core.metrics()):
                return  # a child that recorded nothing leaves no file
            self.resume(threads=False)
        self.stop(timeout)

    def wait_at_exit(self, deadline: float) -> None:
        """The process ends: give exporters that were late at ``stop`` another chance."""
        drain = self._drain
        if drain is None or drain.close(deadline):
            return
        for delivery in drain.deliveries:
            if lost := delivery.pending():
                logger.warning(
                    "instrument: lost %d (%s: deadline): the process ended before they were delivered",
                    lost,
                    delivery.name,
                )


def _seconds(timeout: float) -> float:
    """A time to wait that no lock refuses, whatever was given: infinity is a year."""
    return min(max(0.0, timeout), 365 * 86400.0)


def _close_all(deliveries: Sequence[Delivery]) -> None:
    for delivery in deliveries:
        delivery.close(time.monotonic() + 1.0)


def _chunk_bytes(buffer_bytes: int) -> int:
    """Large chunks are cheap, but every thread holds one: a small buffer gets small ones, a power of two."""
    return min(max(1 << (buffer_bytes // 64).bit_length() - 1, 1 << 12), 1 << 16)


# ------------------------------------------------------------------ the module's functions


def start(
    *,
    export: "str | Exporter | Sequence[str | Exporter] | None" = None,
    collect: str | Sequence[str] | None = None,
    mode: str | None = None,
    buffer_mib: float | None = None,
    overflow: str | None = None,
    interval: float | None = None,
    labels: Mapping[str, Any] | None = None,
    rank: int | None = None,
    run_id: str | None = None,
    **unknown: Never,
) -> Session:
    """Start to record, until :func:`stop`.

    An option that is not given comes from ``INSTRUMENT_<OPTION>``, else from ``[tool.instrument]`` in
    ``pyproject.toml``, else its default holds (docs/configuration.md).

    :param export: where the run goes: ``"json:run.jsonl"``, an exporter object, or several. Without any, only
        totals are kept, for :meth:`Session.report`.
    :param collect: what else to measure; this version has nothing yet.
    :param mode: ``"develop"``: every span is recorded.
    :param buffer_mib: the most memory that records and totals take, in MiB (64).
    :param overflow: which records are dropped when it is full: ``"newest"`` or ``"oldest"``.
    :param interval: seconds between two looks of the drain thread (0.1).
    :param labels: words or numbers that describe the run.
    :param rank: this process's rank.
    :param run_id: the run's identity; random by default.

    Raises :class:`~instrument.ConfigError` for an option that does not exist or cannot be used, for an
    exporter that cannot be opened, and when a session is on already. Takes some 50 ms the first time, for
    imports, and 1 ms later.
    """
    arguments = dict(
        export=export,
        collect=collect,
        mode=mode,
        buffer_mib=buffer_mib,
        overflow=overflow,
        interval=interval,
        labels=labels,
        rank=rank,
        run_id=run_id,
        **unknown,
    )
    return _start(lambda: resolve(arguments), _caller())


def _start(read_options: Callable[[], Options], where: str) -> Session:
    if _switch.DISABLED:
        return Session(Options(), where, off=True)
    options = read_options()
    by = options.sources.get("export", "")
    made = Session(options, f"{where} ({by})" if by.startswith("INSTRUMENT_") else where)
    running = lifecycle.guard(made)
    if isinstance(running, Session) and running is not made and running.dormant():
        running.abandon()
        running = lifecycle.guard(made)
    if running is not made:
        raise ConfigError(
            f"a session is on already, started at {getattr(running, 'where', '?')}; stop it first"
        )
    try:
        made._begin(make_exporters(options.export))
    except BaseException:
        lifecycle.release(made)
        raise
    return made


def _caller() -> str:
    """``file:line`` of the first frame outside the SDK."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _NOT_A_CALLER:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def start_private(exporter: Exporter, **options: Any) -> Session:
    """A session into one exporter that neither the environment nor a file has a say in: for tests."""
    return _start(lambda: resolve({**options, "export": [exporter]}, environ={}, files=False), _caller())


def flush(timeout: float = 5.0) -> bool:
    """Deliver everything recorded until now; see :meth:`Session.flush`. True without a session."""
    running = lifecycle.guarded()
    return running.flush(timeout) if isinstance(running, Session) else True


def stop(timeout: float = 2.0) -> Summary:
    """Stop the session; see :meth:`Session.stop`. Without a session it gives an empty summary."""
    running = lifecycle.guarded()
    return running.stop(timeout) if isinstance(running, Session) else _NOTHING


class StartOptions(TypedDict, total=False):
    """The options of :func:`start`, for type checkers."""

    export: "str | Exporter | Sequence[str | Exporter] | None"
    collect: str | Sequence[str] | None
    mode: str | None
    buffer_mib: float | None
    overflow: str | None
    interval: float | None
    labels: Mapping[str, Any] | None
    rank: int | None
    run_id: str | None


@contextmanager
def session(**options: Unpack[StartOptions]) -> Iterator[Session]:
    """A context manager around :func:`start`, whose options it takes, and :meth:`Session.stop`."""
    running = start(**options)
    try:
        yield running
    finally:
        running.stop()
