"""A finished run as numbers per path, over all its processes.

What
    :func:`load_run` reads the files of one run; :func:`run_from_records` takes lines that a session
    holds in memory. Both answer a :class:`Run`.
Why
    Totals are exact whatever was dropped or sampled, and reading them needs no span: a complete file costs
    0.6 us a line. Only a file without them, or a split by attribute, costs a look at every span (3 us).
How
    Every file is read once, and a second time only if it turns out to have no totals. Memory holds the sums,
    never the spans.
"""

import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from instrument.runs.load import FileState, RunFile, find_files, parse
from instrument.runs.scan import SpanSums, is_span
from instrument.runs.stats import Stats, as_count

__all__ = ["Process", "Progress", "Run", "Series", "load_run", "run_from_records"]

Progress = Callable[[int, int], None]
"""Called with (bytes read so far, bytes there are)."""


@dataclass(slots=True)
class Series:
    """A metric over all processes, since the session's start."""

    kind: str
    name: str
    labels: dict[str, Any]
    time: int
    count: int
    sum: float
    min: float
    max: float
    last: float

    def add(self, other: "Series") -> None:
        """Take in the same series of another process."""
        self.count += other.count
        self.sum += other.sum
        self.min = min(self.min, other.min)
        self.max = max(self.max, other.max)
        if other.time >= self.time:
            self.time, self.last = other.time, other.last


@dataclass(slots=True)
class Process:
    """What one file says."""

    source: str
    header: Mapping[str, Any]
    state: FileState
    from_totals: bool = True
    """Its numbers come from totals, not from spans."""
    spans: int = 0
    marks: int = 0
    sampled: int = 0
    """Spans whose weight is not 1."""
    warmup: int = 0
    orphaned: bool = False
    threads: dict[tuple[Any, Any], str] = field(default_factory=dict)
    totals: list[tuple[str, dict[str, Any], Stats]] = field(default_factory=list)
    """(path, ``by``, numbers) of every line. Lines of one path add up: two functions may share a name."""
    losses: dict[tuple[str, str], int] = field(default_factory=dict)
    metrics: dict[tuple[str, str, str], Series] = field(default_factory=dict)
    end: Mapping[str, Any] | None = None
    last_ns: int = 0
    stats: dict[str, Stats] = field(default_factory=dict)
    """By path."""
    groups: dict[str, dict[str, Stats]] = field(default_factory=dict)
    """By path and value of the attribute that was asked for."""
    attributes: set[str] = field(default_factory=set)

    @property
    def start_ns(self) -> int:
        """When recording began, Unix time; 0 if the file does not say."""
        clock = self.header.get("clock")
        wall = clock.get("wall_ns") if isinstance(clock, dict) else 0
        return wall if isinstance(wall, int) and 0 <= wall < 1 << 63 else 0

    @property
    def wall_ns(self) -> int | None:
        """How long it recorded: to its end, else to the end of the last span; None if nothing says."""
        if self.end is not None:
            return as_count(self.end["duration_ns"])
        return self.last_ns - self.start_ns if self.last_ns > self.start_ns > 0 else None

    def take(self, record: Mapping[str, Any]) -> None:
        """Take in any line but a span. ValueError if it lacks what its type requires."""
        match record["type"]:
            case "total":
                by = record.get("by") or {}
                if not isinstance(by, dict):
                    raise ValueError("by is not an object")
                stats = Stats.from_total(record)
                self.totals.append((_text(record, "path"), by, stats))
            case "loss":
                self.losses[_text(record, "where"), _text(record, "reason")] = as_count(record.get("count"))
            case "metric":
                series = _series(record)
                self.metrics[series.kind, series.name, _key(series.labels)] = series
            case "thread":
                self.threads[str(record.get("pid")), str(record.get("tid"))] = _text(record, "name")
            case "mark":
                self.marks += 1
            case "end":
                self.end = {
                    name: as_count(record.get(name)) for name in ("time", "duration_ns", "spans", "marks")
                }


@dataclass(slots=True)
class Run:
    """All processes of one run."""

    processes: list[Process]
    by: str | None = None
    notes: list[str] = field(default_factory=list)
    """What was left out while looking for its files."""
    command: str = ""
    """How a shell names its files; empty for a run in memory."""
    stats: dict[str, Stats] = field(default_factory=dict)
    """By path, over all processes."""
    groups: dict[str, dict[str, Stats]] = field(default_factory=dict)
    """By path and value of the attribute ``by``."""
    losses: dict[tuple[str, str], int] = field(default_factory=dict)
    """Lost records by (where, reason)."""
    metrics: list[Series] = field(default_factory=list)

    def __post_init__(self) -> None:
        series: dict[tuple[str, str, str], Series] = {}
        for process in self.processes:
            _add_all(self.stats, process.stats)
            for path, groups in process.groups.items():
                _add_all(self.groups.setdefault(path, {}), groups)
            for where, count in process.losses.items():
                self.losses[where] = self.losses.get(where, 0) + count
            for key, one in process.metrics.items():
                if key in series:
                    series[key].add(one)
                else:
                    series[key] = _copy(one)
        self.metrics = sorted(series.values(), key=lambda one: (one.name, _key(one.labels)))

    @property
    def header(self) -> Mapping[str, Any]:
        """The ``run`` line of the first process."""
        return self.processes[0].header

    @property
    def wall_ns(self) -> int | None:
        """From the first process's start to the last one's end; None if nothing says."""
        walls = [(process.start_ns, process.wall_ns) for process in self.processes]
        known = [(start, start + wall) for start, wall in walls if wall is not None]
        return max(end for _, end in known) - min(start for start, _ in known) if known else None

    @property
    def spans(self) -> int:
        """Span lines in all files."""
        return sum(process.spans for process in self.processes)

    @property
    def marks(self) -> int:
        """Mark lines in all files."""
        return sum(process.marks for process in self.processes)

    @property
    def threads(self) -> int:
        """Threads that recorded."""
        return len({thread for process in self.processes for thread in process.threads})

    @property
    def attributes(self) -> set[str]:
        """Names of the attributes that spans have; only known if the run was loaded ``by`` one."""
        return {name for process in self.processes for name in process.attributes}


def load_run(targets: Sequence[Path], *, by: str | None = None, progress: Progress | None = None) -> Run:
    """Read the run that ``targets`` (files or folders) hold, with its child processes' files.

    ``by`` splits every path by an attribute of its spans. RunFileError if nothing can be read. Takes 0.6 s a
    million lines of a complete file, 3 s with ``by`` or without totals. Memory does not grow with the file.
    """
    files, notes = find_files(targets)
    sizes = [path.stat().st_size for path in files]
    processes = []
    for number, path in enumerate(files):

        def step(done: int, before: int = sum(sizes[:number])) -> None:
            if progress:
                progress(before + done, sum(sizes))

        processes.append(_load(RunFile(path, step), by))
    return Run(processes, by, notes, shlex.join(map(str, targets)))


def run_from_records(records: Iterable[Mapping[str, Any]], source: str = "this session") -> Run:
    """A run from dicts: a ``run`` line, then those of  ``total``, ``loss``, ``metric`` and so on.

    For a session that is still in memory. Spans are not needed; their number is that of the ``end`` line.
    """
    lines = iter(records)
    process = Process(source, next(lines), FileState(ended=True))
    for record in lines:
        process.take(record)
    if process.end is not None:
        process.spans = process.end["spans"]
        process.marks = process.marks or process.end["marks"]
    _settle(process, None)
    process.from_totals = True
    return Run([process])


# ------------------------------------------------------------------ one file


def _load(file: RunFile, by: str | None) -> Process:
    if by is None and file.seems_ended():
        process = _read(file, _skim(file, rare := SpanSums()), rare)
        if process.from_totals or not process.spans:
            return process
    sums = SpanSums(by)
    return _read(file, _scan(file, sums), sums)


_Lines = Iterator[tuple[int, bytes]]


def _skim(file: RunFile, rare: SpanSums) -> _Lines:
    """The lines that are no spans, with their numbers. Of the spans only those that totals do not know, open
    ones and sampled ones, go into ``rare``."""
    state = file.state
    plain = 0
    for block in file.blocks():
        state = file.state
        lines = block.split(b"\n")
        lines.pop()
        others = [(i, line) for i, line in enumerate(lines) if not line.startswith(b'{"type":"span"')]
        plain += len(lines) - len(others)
        if b'"unfinished"' in block or b'"weight"' in block:
            spans = [line for line in lines if line.startswith(b'{"type":"span"')]
            told = [line for line in spans if b'"unfinished"' in line or b'"weight"' in line]
            rare.add_block(b"\n".join([*told, b""]))
        for index, line in others:
            if line.startswith(b'{"type":"') or not is_span(line):
                yield state.lines + index + 1, line
            else:
                plain += 1
        state.lines += len(lines)
    rare.spans = plain


def _scan(file: RunFile, sums: SpanSums) -> _Lines:
    """The lines that are no spans, with their numbers; all spans go into ``sums``."""
    for block in file.blocks():
        state = file.state
        others, bad = sums.add_block(block)
        for index in bad:
            state.skip(state.lines + index + 1)
        for index, line in others:
            yield state.lines + index + 1, line
        state.lines += block.count(b"\n")


def _read(file: RunFile, lines: _Lines, sums: SpanSums) -> Process:
    process = Process(str(file.path), file.header, file.state)
    for number, line in lines:
        if number == 1:
            continue
        try:
            record = parse(line)
            if record["type"] == "run":
                raise ValueError("a second run")
            process.take(record)
        except ValueError:
            file.state.skip(number)
    process.state = file.state
    process.state.ended = process.end is not None
    process.spans, process.sampled, process.warmup = sums.spans, sums.sampled, sums.warmup
    process.orphaned, process.last_ns, process.attributes = sums.orphaned, sums.last_ns, sums.attributes
    _settle(process, sums)
    return process


def _settle(process: Process, sums: SpanSums | None) -> None:
    """Choose between totals and spans, and fill ``stats`` and ``groups``."""
    from_spans = sums.by_path() if sums else {}
    # Totals are written last: a file that has no end may hold only some of them.
    process.from_totals = bool(process.totals) and (process.end is not None or not process.spans)
    if not process.from_totals:
        process.stats = from_spans
    else:
        for path, _, stats in process.totals:
            process.stats.setdefault(path, Stats()).add(stats)
        for path, stats in from_spans.items():
            if stats.open:  # written at the stop, when totals no longer know them
                known = process.stats.setdefault(path, Stats(kind=stats.kind))
                known.open = max(known.open, stats.open)
                known.open_ns = stats.open_ns
    if sums and sums.by is not None:
        process.groups = sums.by_value()
        for path, values in _split_totals(process, sums.by).items():
            process.groups[path] = values


def _split_totals(process: Process, by: str) -> dict[str, dict[str, Stats]]:
    """The values of an attribute that totals themselves are split by: exact, whatever was dropped."""
    split: dict[str, dict[str, Stats]] = {}
    if process.from_totals:
        for path, values, stats in process.totals:
            if by in values:
                value = values[by]
                text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                split.setdefault(path, {}).setdefault(text, Stats()).add(stats)
    return split


# ------------------------------------------------------------------ small pieces


def _add_all(into: dict[str, Stats], more: Mapping[str, Stats]) -> None:
    for key, stats in more.items():
        into.setdefault(key, Stats()).add(stats)


def _key(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True) if value else ""


def _text(record: Mapping[str, Any], name: str) -> str:
    value = record.get(name)
    if not isinstance(value, str):
        raise ValueError(f"{name} is not a text")
    return value


def _series(record: Mapping[str, Any]) -> Series:
    labels = record.get("labels") or {}
    if not isinstance(labels, dict):
        raise ValueError("labels are not an object")
    numbers = [_loose(record.get(name)) for name in ("sum", "min", "max", "last")]
    time, count = as_count(record.get("time")), as_count(record.get("count"))
    return Series(_text(record, "kind"), _text(record, "name"), labels, time, count, *numbers)


def _loose(value: Any) -> float:
    """A number, or one that JSON cannot say."""
    if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is not a number")
    try:
        return float(value)
    except OverflowError:
        raise ValueError("beyond every float") from None


def _copy(series: Series) -> Series:
    return Series(*(getattr(series, name) for name in Series.__slots__))
