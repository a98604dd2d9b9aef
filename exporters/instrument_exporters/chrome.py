"""``chrome:FILE[.gz]`` and ``kineto:FILE[.gz]``: traces for timeline viewers, and for tools on torch's.

What
    Both are Trace Event Format. ``chrome`` is an array of events, which viewers also read when it is cut off;
    ``kineto`` is the object that ``torch.profiler`` writes, with its names, which HolisticTraceAnalysis and
    other tools want, and which nobody reads when it is cut off. docs/chrome-trace.md shows both.
Why
    Perfetto, chrome://tracing, speedscope and many others open it as it is.
How
    Spans come as lines of the run file, live and from a file alike, and are made into events in C where they
    look as usual. A span that overlaps another of its thread without lying inside it goes on a track of its
    own: viewers drop it otherwise. Memory does not grow with the trace.
"""

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from instrument.records import Batch, ExportError, Loss, Metric, Resource, Thread
from instrument_exporters import chrome_events as events
from instrument_exporters._chrome import Converter
from instrument_exporters.chrome_events import CHROME, KINETO, Dialect
from instrument_exporters.runfile import RunFile, open_run_file, reason_of

__all__ = ["ChromeExporter", "KinetoExporter"]

_PIECE: Final = 1 << 18  # bytes that are worth a system call
_TASKS: Final = 1 << 62  # tracks from here on are tasks
_MAX_NAMES: Final = 4
"""Names shown of threads that had the same id one after the other."""
_MAX_SERIES: Final = 10_000


class ChromeExporter:
    """Writes a trace of one process; of several, when it is told of them by :meth:`join`."""

    dialect: Dialect = CHROME

    def __init__(self, path: str) -> None:
        if not path:
            raise ValueError(f"the path is missing: {self.dialect.name}:trace.json.gz")
        self.target = os.path.abspath(os.path.expanduser(path))
        """Where it writes: the path asked for, or beside it if that is another process's."""
        self._file: RunFile | None = None
        self._base = 0
        self._process: _Process | None = None
        self._pids: dict[int, str] = {}

    def open(self, resource: Resource, /) -> None:
        """Create the file, or replace one of ours. OSError if neither can be."""
        self._base = events.base_of(resource)
        first = self._add(resource)
        self._file = open_run_file(
            self.target,
            self._head(resource) + first,
            resource.host,
            child=resource.parent_pid is not None,
            ours=_is_trace,
            what="a trace of ours",
        )
        self._file.split()
        self.target = self._file.path

    def join(self, resource: Resource, /) -> None:
        """From here on batches are of this process, into the same trace. OSError if it cannot be written."""
        if self._file is None:
            raise ValueError("not open")
        self._file.append(b",\n" + self._add(resource))

    def export(self, batch: Batch, /) -> None:
        """Append what is in the batch. ExportError says how many records did not fit, or cannot be read."""
        file, process = self._file, self._process
        if file is None or process is None:
            raise ExportError("closed", batch.count)
        lost = batch.count
        try:
            for piece, records in _joined(process.events(batch)):
                if piece:
                    file.append(piece)
                lost -= records
        except OSError as error:
            raise ExportError(reason_of(error), max(lost, 0), str(error)) from error
        if unreadable := process.take_unreadable():
            raise ExportError("unreadable", unreadable)

    def flush(self, deadline: float, /) -> bool:
        """Everything is written at once: nothing to do."""
        return True

    def close(self, deadline: float, /) -> bool:
        """Write the end; False if it does not fit."""
        file, self._file = self._file, None
        if file is None:
            return True
        try:
            file.append(self._tail())
            file.close()
        except OSError:
            file.abandon()
            return False
        return True

    def _add(self, resource: Resource) -> bytes:
        """Make it the current process; the events that say who it is, without the first one's comma."""
        pid, origin = resource.pid, f"{resource.host} {resource.pid}"
        while self._pids.setdefault(pid, origin) != origin:  # another host's, or another container's
            pid += 1 << 23
        self._process = _Process(self.dialect, resource, self._base, pid)
        found = events.process_events(resource, self.dialect, self._base, pid, len(self._pids))
        return ",\n".join(found).encode()

    def _head(self, resource: Resource) -> bytes:
        return b"[\n"

    def _tail(self) -> bytes:
        return b"\n]\n"


class KinetoExporter(ChromeExporter):
    """Writes the same as torch.profiler would: an object, with Kineto's names for kinds and steps."""

    dialect = KINETO

    def _head(self, resource: Resource) -> bytes:
        # HolisticTraceAnalysis looks for the rank with a regular expression that wants the blank.
        return (
            f'{{"schemaVersion": 1, "distributedInfo": {{"rank": {resource.rank or 0}}}, '
            f'"displayTimeUnit": "ns", "baseTimeNanoseconds": {self._base}, '
            f'"host_name": {events.to_json(resource.host)}, "traceEvents": [\n'
        ).encode()

    def _tail(self) -> bytes:
        return b"\n]}\n"


class _Process:
    """One process's records, made into events."""

    def __init__(self, dialect: Dialect, resource: Resource, base: int, pid: int) -> None:
        self._dialect = dialect
        self._base = base
        self._pid = pid
        self._wall_ns = int(resource.clock.get("wall_ns", 0))
        self._converter = Converter(base, pid, dialect.in_c(), dialect.profiler_steps)
        self._threads: dict[int, tuple[int, list[str]]] = {}
        self._device_tracks: set[int] = set()
        self._metrics: dict[tuple[str, str, str], Metric] = {}
        self._losses: tuple[Loss, ...] = ()
        self._unreadable = 0
        self._told: Counter[str] = Counter()

    def events(self, batch: Batch) -> Iterator[tuple[bytes, int]]:
        """(events, each after a comma; how many of the batch's spans and marks they are)."""
        for thread in batch.threads:
            yield _text(self._thread(thread)), 0
        for block in batch.lines():
            yield from self._lines(block)
        for metric in batch.metrics:
            yield _text(self._metric(metric)), 0
        for loss in batch.losses:
            if loss not in self._losses:
                yield _text([events.loss_event(loss, batch.time or self._wall_ns, self._base, self._pid)]), 0
        self._losses = tuple(batch.losses)
        if batch.final:
            about = {"time": batch.time, "losses": [loss.as_line() for loss in batch.losses], **self._told}
            yield _text([events.end_event(self._pid, about)]), 0

    def take_unreadable(self) -> int:
        """How many lines since the last call were no spans and no marks."""
        count, self._unreadable = self._unreadable, 0
        return count

    # ---------------------------------------------------------- spans and marks

    def _lines(self, block: bytes) -> Iterator[tuple[bytes, int]]:
        at = 0
        while at < len(block):
            made, at, count = self._converter.feed(block, at)
            if count:
                yield made, count
            if at < len(block):
                end = block.find(b"\n", at) + 1 or len(block)
                try:
                    yield _text(self._line(block[at:end])), 1
                except ValueError:
                    self._unreadable += 1
                    self._told["unreadable"] += 1
                    yield b"", 1
                at = end

    def _line(self, line: bytes) -> list[str]:
        """What C does not do."""
        record = events.read(line)
        if record["type"] == "mark":
            return [events.mark_event(record, self._dialect, self._base, self._pid)]
        made = self._span(record)
        track = events.device_track(record)
        if track is not None:
            made += self._device(record, track)
        elif "device_ns" in (record.get("measures") or {}):
            self._told["device_times_without_place"] += 1
        return made

    def _span(self, record: dict[str, Any]) -> list[str]:
        start, end = record["start"], record["start"] + record["dur"]
        parent, task = _number(record.get("parent")), record.get("task")
        track = record["tid"] if task is None else _TASKS + _number(task)
        fits = _is_time(start) and _is_time(end) and self._converter.place(track, parent, start, end)
        if fits and task is None:
            return [events.complete_event(record, self._dialect, self._base, self._pid)]
        lane = f"task {self._pid} {task}" if fits else f"span {record['id']}"
        self._told["async_spans"] += 1
        return list(events.async_events(record, self._dialect, self._base, self._pid, lane))

    def _device(self, record: dict[str, Any], track: int) -> list[str]:
        event, start, end = events.device_event(record, self._dialect, self._base, self._pid, track)
        parent = _number(record.get("parent"))
        if not (_is_time(start) and _is_time(end) and self._converter.place(track, parent, start, end)):
            self._told["device_times_overlapping"] += 1
            return []
        if track in self._device_tracks:
            return [event]
        self._device_tracks.add(track)
        return [*events.device_track_events(self._pid, track), event]

    # ---------------------------------------------------------- what else there is

    def _thread(self, thread: Thread) -> list[str]:
        order, names = self._threads.setdefault(thread.tid, (len(self._threads) + 1, []))
        if thread.name not in names and len(names) < _MAX_NAMES:
            names.append(thread.name)
        return events.thread_events(thread, self._pid, ", ".join(names), order)

    def _metric(self, metric: Metric) -> list[str]:
        series = metric.kind, metric.name, repr(sorted(metric.labels.items(), key=str))
        before = self._metrics.get(series)
        if before == metric:
            return []
        if before is not None or len(self._metrics) < _MAX_SERIES:
            self._metrics[series] = metric
        made = events.counter_events(metric, before, self._base, self._pid)
        if not made:
            self._told["metric_values_without_number"] += 1
        return made


def _text(made: list[str]) -> bytes:
    return b"".join(b",\n" + event.encode() for event in made)


def _joined(pieces: Iterator[tuple[bytes, int]]) -> Iterator[tuple[bytes, int]]:
    """The same in pieces that are worth a system call."""
    small: list[bytes] = []
    size = records = 0
    for piece, count in pieces:
        small.append(piece)
        size += len(piece)
        records += count
        if size >= _PIECE:
            yield b"".join(small), records
            small, size, records = [], 0, 0
    yield b"".join(small), records


def _number(value: Any) -> int:
    """An id, which stands in hex in the run file."""
    try:
        return int(value or "0", 16) & (1 << 64) - 1
    except (TypeError, ValueError):
        return hash(str(value)) & (1 << 61) - 1


def _is_time(ns: int) -> bool:
    return 0 <= ns < 1 << 62


def _is_trace(head: bytes) -> bool:
    """Whether a file that begins so is one of ours, in either form."""
    first, _, rest = head.partition(b"\n")
    if first != b"[" and not first.startswith(b'{"schemaVersion"'):
        return False
    return rest.startswith(b'{"ph":"M","name":"instrument",')
