"""A run file as batches, as if the session were running: what ``instrument convert`` gives to exporters.

What
    :func:`replay` answers who recorded, and the batches of one file. A batch carries the lines of its spans
    and marks as they stand in the file, so an exporter that takes lines pays nothing for objects.
Why
    Every other form can be made from the run file, by the same exporter that makes it live.
How
    Blocks of about 1 MiB, one batch each, so memory does not grow with the file. Totals, losses and the end
    are in a last batch. What is wrong with the file is told as losses of ``run file``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from instrument.errors import RunFileError
from instrument.records import Batch, Loss, Mark, Metric, Resource, SiteInfo, Span, Thread, Total
from instrument.runs.load import Progress, RunFile, parse

__all__ = ["Replayed", "replay"]

_SPAN: Final = b'{"type":"span"'
_RECORDS: Final = (_SPAN, b'{"type":"mark"')
_WHERE: Final = "run file"


@dataclass(frozen=True, slots=True)
class Replayed(Batch):
    """A batch out of a file. ``chunks`` is empty; spans, marks and lines are there all the same.

    What a file does not say is 0: a span's ``root``, a thread's ``serial``, a site's ``index``.
    """

    block: bytes = b""
    """Lines of spans and marks."""
    records: int = 0
    """How many lines these are."""
    source: bytes = b""
    """All lines of this piece of the file."""

    @property
    def count(self) -> int:
        """How many spans and marks it carries."""
        return self.records

    def lines(self) -> Iterator[bytes]:
        """The lines as they stand in the file."""
        if self.block:
            yield self.block

    def spans(self) -> Iterator[Span]:
        """The spans, about 10 us each; lines that are none are left out."""
        return (_span(record) for record in self._records("span") if _is_span(record))

    def marks(self) -> Iterator[Mark]:
        """The marks; lines that are none are left out."""
        return (_mark(record) for record in self._records("mark") if _is_mark(record))

    def _records(self, kind: str) -> Iterator[dict[str, Any]]:
        start = b'{"type":"' + kind.encode()
        for line in self.block.split(b"\n")[:-1]:
            if not line.startswith(_RECORDS) or line.startswith(start):
                try:
                    record = parse(line)
                except ValueError:
                    continue
                if record["type"] == kind:
                    yield record


def replay(path: Path, progress: Progress | None = None) -> tuple[Resource, Iterator[Replayed]]:
    """Who recorded the file, and its batches, the last one ``final``. RunFileError if it is no run file."""
    file = RunFile(path, progress)
    resource = _resource(file)
    return resource, _batches(file, resource)


def _batches(file: RunFile, resource: Resource) -> Iterator[Replayed]:
    tables = _Tables()
    number = 0
    for block in file.blocks():
        state = file.state
        lines, records, others = _split(block)
        for index, line in others:
            try:
                record = parse(line)
                if record["type"] == "run" and state.lines + index:
                    raise ValueError("a second run")
                tables.take(record)
            except (ValueError, TypeError, KeyError):
                state.skip(state.lines + index + 1)
        state.lines += records + len(others)
        number += 1
        yield replace(tables.batch(number, resource), block=lines, records=records, source=block)
    yield tables.last(file, number + 1, resource)


def _split(block: bytes) -> tuple[bytes, int, list[tuple[int, bytes]]]:
    """The lines of spans and marks, how many, and the others with their index. Most blocks are spans only."""
    count = block.count(b"\n")
    if count == block.count(b"\n" + _SPAN) + block.startswith(_SPAN):
        return block, count, []
    kept: list[bytes] = []
    others: list[tuple[int, bytes]] = []
    for index, line in enumerate(block.split(b"\n")[:-1]):
        if line.startswith(_RECORDS) or (not line.startswith(b'{"type":"') and _is_record(line)):
            kept.append(line)
        else:
            others.append((index, line))
    return b"\n".join([*kept, b""]), len(kept), others


def _is_record(line: bytes) -> bool:
    """Whether a line is a span or mark that another writer has spelled in its own way."""
    try:
        return parse(line)["type"] in ("span", "mark")
    except ValueError:
        return False


class _Tables:
    """What the lines that are no spans and marks say: in pieces for a batch, and for the last one."""

    def __init__(self) -> None:
        self._threads: list[Thread] = []
        self._sites: list[SiteInfo] = []
        self._metrics: list[Metric] = []
        self._totals: list[Total] = []
        self._losses: dict[tuple[str, str], Loss] = {}
        self._end: Mapping[str, Any] | None = None

    def take(self, record: Mapping[str, Any]) -> None:
        """One line. ValueError, TypeError or KeyError if it lacks what its type requires."""
        match record["type"]:
            case "thread":
                self._threads.append(
                    Thread(_int(record, "pid"), _int(record, "tid"), 0, _str(record, "name"))
                )
            case "site":
                name, kind, scope, file = (_str(record, key) for key in ("name", "kind", "scope", "file"))
                self._sites.append(SiteInfo(0, name, kind, scope, file, _int(record, "line")))
            case "metric":
                self._metrics.append(_metric(record))
            case "total":
                self._totals.append(_total(record))
            case "loss":
                loss = Loss(_str(record, "where"), _str(record, "reason"), _int(record, "count"))
                self._losses[loss.where, loss.reason] = loss
            case "end":
                self._end = record

    def batch(self, number: int, resource: Resource) -> Replayed:
        """What came since the last call."""
        made = Replayed(
            sequence=number,
            threads=tuple(self._threads),
            sites=tuple(self._sites),
            metrics=tuple(self._metrics),
            pid=resource.pid,
        )
        self._threads, self._sites, self._metrics = [], [], []
        return made

    def last(self, file: RunFile, number: int, resource: Resource) -> Replayed:
        """The last batch: totals, losses, and what the file lacks."""
        state, end = file.state, self._end or {}
        lacks = {
            "no_end": not end,
            "cut_bytes": state.cut_bytes,
            "damaged": bool(state.damage),
            "unreadable_lines": state.skipped,
        }
        found = [Loss(_WHERE, reason, int(count)) for reason, count in lacks.items() if count]
        time = end.get("time", 0)
        return Replayed(
            sequence=number,
            totals=tuple(self._totals),
            losses=(*self._losses.values(), *found),
            final=True,
            time=time if type(time) is int else 0,
            pid=resource.pid,
        )


# ------------------------------------------------------------------ records


def _resource(file: RunFile) -> Resource:
    header = file.header
    parts = {name: header.get(name) or {} for name in ("versions", "labels", "clock", "config")}
    lists = {name: header.get(name) or [] for name in ("argv", "collectors")}
    if not all(isinstance(part, dict) for part in parts.values()):
        raise RunFileError(
            f"{file.path}: versions, labels, clock or config of its first line is not an object"
        )
    if not all(isinstance(part, list) for part in lists.values()):
        raise RunFileError(f"{file.path}: argv or collectors of its first line is not an array")
    pid, rank, parent = (
        value if type(value) is int else None for value in map(header.get, ("pid", "rank", "parent_pid"))
    )
    commit = header.get("git_commit")
    return Resource(
        run_id=str(header.get("run_id", "")),
        rank=rank,
        pid=pid or 0,
        host=str(header.get("host", "")),
        argv=tuple(map(str, lists["argv"])),
        git_commit=None if commit is None else str(commit),
        collectors=tuple(lists["collectors"]),
        parent_pid=parent,
        **parts,
    )


def _is_span(record: Mapping[str, Any]) -> bool:
    numbers = all(type(record.get(name)) is int for name in ("start", "dur", "pid", "tid"))
    return numbers and all(isinstance(record.get(name), str) for name in ("id", "name", "kind", "path"))


def _is_mark(record: Mapping[str, Any]) -> bool:
    numbers = all(type(record.get(name)) is int for name in ("time", "pid", "tid"))
    return numbers and all(isinstance(record.get(name), str) for name in ("name", "path"))


def _span(record: Mapping[str, Any]) -> Span:
    return Span(
        id=_id(record["id"]) or 0,
        parent=_id(record.get("parent")),
        root=0,
        name=record["name"],
        kind=record["kind"],
        path=record["path"],
        start=record["start"],
        dur=record["dur"],
        pid=record["pid"],
        tid=record["tid"],
        task=_id(record.get("task")),
        step=record.get("step"),
        weight=record.get("weight", 1.0),
        status=record.get("status", "ok"),
        error=record.get("error"),
        flags=tuple(record.get("flags") or ()),
        attrs=record.get("attrs") or {},
        measures=record.get("measures") or {},
    )


def _mark(record: Mapping[str, Any]) -> Mark:
    return Mark(
        name=record["name"],
        path=record["path"],
        time=record["time"],
        parent=_id(record.get("parent")),
        pid=record["pid"],
        tid=record["tid"],
        step=record.get("step"),
        attrs=record.get("attrs") or {},
    )


def _metric(record: Mapping[str, Any]) -> Metric:
    kind: Any = _str(record, "kind")
    labels = record.get("labels") or {}
    if kind not in ("count", "gauge", "observe") or not isinstance(labels, dict):
        raise ValueError("not a metric")
    numbers = [float(record[name]) for name in ("sum", "min", "max", "last")]
    return Metric(kind, _str(record, "name"), labels, _int(record, "time"), _int(record, "count"), *numbers)


def _total(record: Mapping[str, Any]) -> Total:
    return Total(
        path=_str(record, "path"),
        name=_str(record, "name"),
        kind=_str(record, "kind"),
        by=record.get("by") or {},
        count=_int(record, "count"),
        errors=record.get("errors", 0),
        open=record.get("open", 0),
        sum_ns=_int(record, "sum_ns"),
        self_ns=record.get("self_ns", 0),
        min_ns=record.get("min_ns") or 0,
        max_ns=record.get("max_ns") or 0,
        histogram=tuple((int(low), int(count)) for low, count in record.get("histogram") or ()),
        measures=record.get("measures") or {},
        measured=record.get("measured", 0),
    )


def _id(text: Any) -> int | None:
    try:
        return int(text, 16)
    except (TypeError, ValueError):
        return None


def _int(record: Mapping[str, Any], name: str) -> int:
    value = record[name]
    if type(value) is not int:
        raise ValueError(f"{name} is not a whole number")
    return value


def _str(record: Mapping[str, Any], name: str) -> str:
    value = record[name]
    if not isinstance(value, str):
        raise ValueError(f"{name} is not a text")
    return value
