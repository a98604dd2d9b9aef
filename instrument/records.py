"""What an exporter receives, and what it must be able to do.

What
    :class:`Batch` is all that happened since the last one: chunks of spans and marks as the recorder wrote
    them, new threads and sites, metrics, losses, and in the last batch the totals. :class:`Resource` says who
    recorded.
Why
    Exporters know this module and nothing else of the SDK, so they can live in other distributions.
How
    An exporter that writes the run file's lines takes :meth:`Batch.lines`, which the recorder makes in C; one
    that wants objects takes :meth:`Batch.spans` and :meth:`Batch.marks` (about 2 us a span). Everything here
    is frozen; times are Unix time in ns unless a name says otherwise, durations are ns.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeVar, runtime_checkable

from instrument.histogram import Histogram, quantile

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "SCHEMA",
    "AsLine",
    "Batch",
    "ExportError",
    "Exporter",
    "Loss",
    "Mark",
    "Metric",
    "PathInfo",
    "RecordedChunk",
    "Resource",
    "SiteInfo",
    "Span",
    "Thread",
    "Total",
]

_T = TypeVar("_T")
_Record = tuple[Any, ...]

RECORD_DTYPE: Final = [
    ("start", "u8"),
    ("end", "u8"),
    ("path", "u4"),
    ("sequence", "u4"),
    ("attributes", "u4"),
    ("context", "u2"),
    ("flags", "u2"),
]
"""The recorder's 32-byte record, as numpy takes it."""

SCHEMA = 1
"""Version of the run file's schema; a reader ignores fields it does not know."""

_CHUNKS_A_PIECE = 16  # waiting for the GIL after each piece is what writing mostly costs

ERROR, MARK = 1 << 0, 1 << 1
"""The recorder's bits that are no flags of the run file, but show as ``status`` and as the line's type."""


@dataclass(frozen=True, slots=True)
class Resource:
    """Who recorded: one process of one run."""

    run_id: str
    """The same in every process of a run."""
    rank: int | None
    pid: int
    host: str
    argv: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    git_commit: str | None = None
    labels: Mapping[str, Any] = field(default_factory=dict)
    clock: Mapping[str, Any] = field(default_factory=dict)
    """``monotonic_ns`` and ``wall_ns`` of one instant, and ``source``: what the recorder reads."""
    config: Mapping[str, Any] = field(default_factory=dict)
    collectors: tuple[Mapping[str, Any], ...] = ()
    parent_pid: int | None = None
    """Set in a fork's child: the process whose session it continues, into a place of its own."""

    def as_line(self) -> dict[str, Any]:
        """The ``run`` line of the run file; NaN and the infinities are left to the writer."""
        line = {
            "type": "run",
            "schema": SCHEMA,
            "run_id": self.run_id,
            "rank": self.rank,
            "pid": self.pid,
            "host": self.host,
            "argv": list(self.argv),
            "versions": self.versions,
            "git_commit": self.git_commit,
            "labels": self.labels,
            "clock": self.clock,
            "config": self.config,
            "collectors": list(self.collectors),
        }
        return line if self.parent_pid is None else line | {"parent_pid": self.parent_pid}

    @property
    def wall_offset(self) -> int:
        """What turns the recorder's CLOCK_MONOTONIC ns into Unix time."""
        return int(self.clock.get("wall_ns", 0)) - int(self.clock.get("monotonic_ns", 0))


@dataclass(frozen=True, slots=True)
class Span:
    """One execution of a site."""

    id: int
    parent: int | None
    root: int
    name: str
    kind: str
    path: str
    start: int
    dur: int
    pid: int
    tid: int
    task: int | None = None
    step: int | None = None
    weight: float = 1.0
    status: Literal["ok", "error"] = "ok"
    error: str | None = None
    """Name of the exception's type that ended it."""
    flags: tuple[str, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)
    measures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Mark:
    """An instant."""

    name: str
    path: str
    time: int
    parent: int | None
    pid: int
    tid: int
    step: int | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Metric:
    """One series, cumulative since the session's start: the last one of a series holds."""

    kind: Literal["count", "gauge", "observe"]
    name: str
    labels: Mapping[str, Any]
    time: int
    count: int
    sum: float
    min: float
    max: float
    last: float

    @property
    def series(self) -> tuple[Any, ...]:
        """What tells it apart: kind, name and labels, of which ``True``, 1 and 1.0 are three."""
        labels = sorted(self.labels.items())
        return (self.kind, self.name, *((key, type(value), value) for key, value in labels))

    def as_line(self) -> dict[str, Any]:
        """The ``metric`` line of the run file."""
        return {
            "type": "metric",
            "kind": self.kind,
            "name": self.name,
            "labels": self.labels,
            "time": self.time,
            "count": self.count,
            "sum": self.sum,
            "min": self.min,
            "max": self.max,
            "last": self.last,
        }


@dataclass(frozen=True, slots=True)
class Total:
    """All executions along one path, exact whatever was dropped or sampled."""

    path: str
    name: str
    kind: str
    by: Mapping[str, Any]
    count: int
    """Spans that ended."""
    errors: int
    open: int
    """Spans not ended yet; they are in no other number."""
    sum_ns: int
    self_ns: int
    """``sum_ns`` without what children took."""
    min_ns: int
    max_ns: int
    histogram: Histogram
    measures: Mapping[str, float] = field(default_factory=dict)
    """Sums of ``flops`` and ``bytes`` over the measured spans."""
    measured: int = 0
    """How many of the spans say what work they did."""

    @property
    def p50_ns(self) -> float:
        """The median duration in ns, interpolated inside its bucket; NaN where there is no histogram, as when
        nothing ended."""
        return self._quantile(0.5)

    @property
    def p90_ns(self) -> float:
        """The duration in ns that nine of ten spans do not exceed."""
        return self._quantile(0.9)

    @property
    def p99_ns(self) -> float:
        """The duration in ns that 99 of 100 spans do not exceed."""
        return self._quantile(0.99)

    def as_line(self) -> dict[str, Any]:
        """The ``total`` line of the run file; times are None where nothing ended, quantiles also where the
        histogram found no memory."""
        ended = self.count > 0
        return {
            "type": "total",
            "path": self.path,
            "name": self.name,
            "kind": self.kind,
            "by": self.by,
            "count": self.count,
            "errors": self.errors,
            "open": self.open,
            "sum_ns": self.sum_ns,
            "self_ns": self.self_ns,
            "min_ns": self.min_ns if ended else None,
            "max_ns": self.max_ns if ended else None,
            "p50_ns": round(self.p50_ns) if self.histogram else None,
            "p90_ns": round(self.p90_ns) if self.histogram else None,
            "p99_ns": round(self.p99_ns) if self.histogram else None,
            "histogram": [list(bucket) for bucket in self.histogram],
            "measured": self.measured,
            "measures": self.measures,
        }

    def _quantile(self, q: float) -> float:
        return quantile(self.histogram, q, least=self.min_ns, most=self.max_ns)


@dataclass(frozen=True, slots=True)
class Loss:
    """What was not recorded or not delivered: how many since the session's start, where and why."""

    where: str
    """``recorder``, ``drain``, or an exporter's name."""
    reason: str
    count: int

    def as_line(self) -> dict[str, Any]:
        """The ``loss`` line of the run file."""
        return {"type": "loss", "where": self.where, "reason": self.reason, "count": self.count}


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread that recorded."""

    pid: int
    tid: int
    """The operating system's id, as other tools show it; may be used again after the thread has ended."""
    serial: int
    """Its number in this process, from 1; never used again."""
    name: str

    def as_line(self) -> dict[str, Any]:
        """The ``thread`` line of the run file."""
        return {"type": "thread", "pid": self.pid, "tid": self.tid, "name": self.name}


@dataclass(frozen=True, slots=True)
class SiteInfo:
    """One annotation in the source."""

    index: int
    name: str
    kind: str
    scope: str
    file: str
    line: int

    def as_line(self) -> dict[str, Any]:
        """The ``site`` line of the run file."""
        return {
            "type": "site",
            "name": self.name,
            "kind": self.kind,
            "scope": self.scope,
            "file": self.file,
            "line": self.line,
        }


@dataclass(frozen=True, slots=True)
class PathInfo:
    """A node of the tree of paths."""

    name: str
    kind: str
    path: str
    parent: int
    """Index of the path above; 0 for none."""
    site: int


class AsLine(Protocol):
    """What has a line in the run file beside spans and marks, which the recorder writes."""

    def as_line(self) -> dict[str, Any]:
        """The line's fields, ``type`` first."""


class RecordedChunk(Protocol):
    """A piece of one thread's recording, as ``instrument.recorder._core.Chunk`` is."""

    @property
    def thread(self) -> int:
        """Serial number of the thread."""

    @property
    def tid(self) -> int:
        """The operating system's id of the thread."""

    @property
    def count(self) -> int:
        """Spans and marks in it."""

    @property
    def marks(self) -> int:
        """How many of them are marks."""

    def decode(self) -> Sequence[_Record]:
        """Its records as tuples; see the recorder's type stubs."""

    def jsonl(self, wall_offset_ns: int, following: Sequence[Any] = (), /) -> bytes:
        """Its records, then those of the following chunks, as lines of the run file."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What happened in one process since the batch before. Holds recorder memory until it is freed."""

    sequence: int
    """From 1, without gaps at the drain; an exporter that misses one has lost it to its full queue."""
    chunks: Sequence[RecordedChunk] = ()
    threads: Sequence[Thread] = ()
    """Threads seen for the first time."""
    sites: Sequence[SiteInfo] = ()
    """Sites seen for the first time."""
    metrics: Sequence[Metric] = ()
    """Series that changed; in the last batch all."""
    totals: Sequence[Total] = ()
    """In the last batch only."""
    losses: Sequence[Loss] = ()
    """All up to now, cumulative."""
    final: bool = False
    time: int = 0
    """When it was made."""
    clock: Mapping[str, int] = field(default_factory=dict)
    """``monotonic_ns`` and ``wall_ns`` of one instant, to see whether the wall clock was set meanwhile."""
    pid: int = 0
    wall_offset: int = 0
    paths: Sequence[PathInfo | None] = ()
    """By path index; shared by all batches of a session."""
    flag_names: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """How many spans and marks it carries."""
        return sum(chunk.count for chunk in self.chunks)

    @property
    def mark_count(self) -> int:
        """How many of them are marks."""
        return sum(chunk.marks for chunk in self.chunks)

    def lines(self) -> Iterator[bytes]:
        """The spans and marks as whole lines of the run file, some MB at a time; cheap (written in C)."""
        for at in range(0, len(self.chunks), _CHUNKS_A_PIECE):
            first, *following = self.chunks[at : at + _CHUNKS_A_PIECE]
            yield first.jsonl(self.wall_offset, following)

    def arrays(self) -> "Iterator[tuple[RecordedChunk, np.ndarray[Any, Any]]]":
        """Each chunk with its records as a numpy array, without a copy; about 1 us a chunk.

        The fields are the recorder's: ``start`` and ``end`` in CLOCK_MONOTONIC ns (add
        :attr:`wall_offset`), ``path`` (an index into :attr:`paths`), ``sequence``, ``attributes``,
        ``context``, ``flags``. The array is valid while the chunk lives, and holds its memory.
        """
        import numpy as np

        for chunk in self.chunks:
            yield chunk, np.frombuffer(chunk, dtype=RECORD_DTYPE)  # type: ignore[call-overload]

    def spans(self) -> Iterator[Span]:
        """The spans, within a thread in order of completion; about 2 us each."""
        return self._decode(_span, marks=False)

    def marks(self) -> Iterator[Mark]:
        """The marks, within a thread in order."""
        return self._decode(_mark, marks=True)

    def _decode(self, make: Callable[["Batch", PathInfo, int, _Record], _T], *, marks: bool) -> Iterator[_T]:
        for chunk in self.chunks:
            for record in chunk.decode():
                if bool(record[6] & MARK) is marks:
                    yield make(self, self._path(record[3]), chunk.tid, record)

    def _path(self, index: int) -> PathInfo:
        known = self.paths[index] if index < len(self.paths) else None
        return known or PathInfo("", "region", "", 0, 0)


def _span(batch: Batch, path: PathInfo, tid: int, record: _Record) -> Span:
    ident, parent, root, _, start, end, flags, step, task, error, attrs, measures = record
    return Span(
        id=ident,
        parent=parent or None,
        root=root,
        name=path.name,
        kind=path.kind,
        path=path.path,
        start=start + batch.wall_offset,
        dur=end - start,
        pid=batch.pid,
        tid=tid,
        task=task,
        step=step,
        status="error" if flags & ERROR else "ok",
        error=error,
        flags=tuple(name for bit, name in enumerate(batch.flag_names) if name and flags >> bit & 1),
        attrs=attrs or {},
        measures=measures or {},
    )


def _mark(batch: Batch, path: PathInfo, tid: int, record: _Record) -> Mark:
    return Mark(
        name=path.name,
        path=path.path,
        time=record[4] + batch.wall_offset,
        parent=record[1] or None,
        pid=batch.pid,
        tid=tid,
        step=record[7],
        attrs=record[10] or {},
    )


class ExportError(Exception):
    """Raised by :meth:`Exporter.export` to say why records were lost, and how many of the batch.

    Any other exception counts the whole batch under the reason ``error``.
    """

    def __init__(self, reason: str, count: int, hint: str = "") -> None:
        super().__init__(hint or reason)
        self.reason = reason
        self.count = count


@runtime_checkable
class Exporter(Protocol):
    """Sends or writes batches. Called from one thread of its own, never two calls at once.

    ``deadline`` is a value of ``time.monotonic()``; an exporter that is not done by then answers False. What
    it raises is counted and never reaches the program, but for :meth:`open`, whose errors end ``start()``. An
    attribute ``target``, if it has one, says in words or as a path where its output goes.
    """

    def open(self, resource: Resource, /) -> None:
        """Called once, by ``start()``, before anything is recorded; an error here is the user's to see.

        With ``resource.parent_pid`` set this is a fork's child, which must not write where its parent writes.
        """

    def export(self, batch: Batch, /) -> None:
        """Take one batch. May block: later ones wait in a bounded queue, and no other exporter notices."""

    def flush(self, deadline: float, /) -> bool:
        """Deliver what :meth:`export` took but kept; True when nothing is left."""

    def close(self, deadline: float, /) -> bool:
        """Deliver and let go of everything; called once, after the batch marked ``final``."""
