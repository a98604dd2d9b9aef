"""Adding up spans: for files that ended without totals, and for questions that totals do not answer.

What
    :class:`SpanSums` takes blocks of lines and keeps, per path and value of one attribute, what a ``total``
    line would say.
Why
    A program that was killed has written its spans but no totals; and ``--by`` splits by any attribute.
How
    The recorder writes a span's fields in one order, so one regular expression takes them out of a whole
    block, 3 us a span with the sums; a line in another order goes through the JSON parser, 15 us. What stands
    behind the step (weight, status, flags, attributes, measures) repeats a lot and is parsed once per
    spelling.

    *Self* time needs a span's children. They come before it in the file, so their time waits under the
    parent's id until it comes. Parents that never come (dropped, still open) are forgotten beyond
    ``MAX_WAITING``.
"""

import json
import re
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from instrument.histogram import bucket_low
from instrument.runs.load import parse
from instrument.runs.stats import Stats, as_count, as_measures, as_number

__all__ = ["ABSENT", "OTHERS", "OTHER_PATHS", "SpanSums", "is_span"]

MAX_WAITING: Final = 100_000
MAX_SPELLINGS: Final = 20_000
MAX_GROUPS: Final = 100_000
"""Paths times values. The recorder keeps 4,096 paths; a file with more than this is not its work."""
MAX_VALUES: Final = 64
"""Values of an attribute that are told apart on one path."""
MAX_ATTRIBUTES: Final = 500
"""Names of attributes remembered."""
MAX_TEXT: Final = 200
"""Characters of a value."""

ABSENT: Final = "(not set)"
OTHERS: Final = "(other values)"
OTHER_PATHS: Final = "(other paths)"

_SPAN: Final = re.compile(
    rb'\{"type":"span","id":"(.{16})"(?:,"parent":"(.{16})")?+'
    rb',("name":"[^"\\\n]*+","kind":"[^"\\\n]*+","path":"[^"\\\n]*+")'
    rb',"start":(\d{1,19}+),"dur":(\d{1,19}+),("pid":\d++,"tid":\d++(?:,"task":"\w++")?+)(?:,"step":-?\d++)?+'
    rb"(}|,.*+)\n|(.*+)\n"
)


_Fields = tuple[bytes, bytes, bytes, bytes | int, bytes | int, bytes, bytes]
"""(id, parent or empty, name + kind + path, start, duration, where it ran, the rest from `,` or `}` on)."""


class Extra(NamedTuple):
    """What a span says beyond its path and times."""

    groups: dict[bytes, "Group"]
    """Where its spans are added, by name, kind and path; shared by all that have the same ``value``."""
    plain: bool = True
    """It counts as one, ended well, and says nothing of its work."""
    weight: float = 1
    error: bool = False
    open: bool = False
    warmup: bool = False
    measures: dict[str, float] | None = None
    value: str | None = None
    """Of the attribute that is asked for, as text."""


class Group:
    """Spans of one path and value: the sums, and what waits to be added to them at the end of the block."""

    __slots__ = ("durations", "self_ns", "stats")

    def __init__(self, kind: str) -> None:
        self.stats = Stats(kind=kind)
        self.durations: list[int] = []
        self.self_ns = 0

    def settle(self) -> None:
        """Move what waits into the sums."""
        durations, stats = self.durations, self.stats
        if not durations:
            return
        stats.count += len(durations)
        stats.sum_ns += sum(durations)
        stats.self_ns += self.self_ns
        least, most = min(durations), max(durations)
        stats.min_ns = least if stats.min_ns is None else min(stats.min_ns, least)
        stats.max_ns = most if stats.max_ns is None else max(stats.max_ns, most)
        histogram = stats.histogram
        for ns in durations:
            shift = ns.bit_length() - 6  # bucket_low(), without its two calls
            low = ns >> shift << shift if shift > 0 else ns
            histogram[low] = histogram.get(low, 0) + 1
        self.durations = []
        self.self_ns = 0


class SpanSums:
    """Sums over the spans of one process."""

    def __init__(self, by: str | None = None) -> None:
        self.by = by
        self.spans = 0
        """Span lines read."""
        self.sampled = 0
        """Those whose weight is not 1."""
        self.warmup = 0
        """Those left out for being warm-up."""
        self.orphaned = False
        """More parents were missing than are waited for, so that some *self* times are too long."""
        self.last_ns = 0
        """When the last span ended, Unix time."""
        self.attributes: set[str] = set()
        """Names of attributes seen; at most some hundred."""
        self._groups: dict[tuple[str, str | None], Group] = {}
        self._heads: dict[str | None, dict[bytes, Group]] = {}
        self._extras: dict[bytes, Extra] = {}
        self._waiting: dict[bytes, dict[bytes, int]] = {}
        self._values: dict[str, set[str]] = {}

    def by_path(self) -> dict[str, Stats]:
        """The sums per path."""
        paths: dict[str, Stats] = {}
        for (path, _), group in self._groups.items():
            paths.setdefault(path, Stats()).add(group.stats)
        return paths

    def by_value(self) -> dict[str, dict[str, Stats]]:
        """The sums per path and value of the attribute; only paths where some span has it."""
        paths: dict[str, dict[str, Stats]] = {}
        for (path, value), group in self._groups.items():
            if value is not None:
                paths.setdefault(path, {})[value] = group.stats
        return {path: values for path, values in paths.items() if values.keys() != {ABSENT}}

    def add_block(self, block: bytes) -> tuple[list[tuple[int, bytes]], list[int]]:
        """Add the spans of a block of lines. Answers (its other lines, each with its index in the block; the
        indices of spans that cannot be read)."""
        others: list[tuple[int, bytes]] = []
        bad: list[int] = []
        # This loop is most of the time that the report of a killed run takes; hence local names and no calls.
        extras = self._extras
        children: dict[bytes, int] = {}
        place, ns, index = b"", 0, -1
        start: bytes | int = 0
        for index, (ident, parent, head, begin, dur, where, rest, other) in enumerate(_SPAN.findall(block)):
            try:
                if not head:
                    if not is_span(other):
                        others.append((index, other))
                        continue
                    ident, parent, head, begin, dur, where, rest = _fields(other)
                extra = extras.get(rest) or self._extra(rest)
                group = extra.groups.get(head) or self._group(head, extra)
            except ValueError:
                bad.append(index)
                continue
            if where != place:  # within one, spans stand in the order in which they ended
                self._ended(int(start) + ns)
                if place and not children:
                    del self._waiting[place]
                place = where
                children = self._waiting.setdefault(where, {})
            start = begin
            ns = int(dur)
            self_ns = ns - children.pop(ident, 0)
            if parent:
                children[parent] = children.get(parent, 0) + ns
            if extra.plain:
                group.durations.append(ns)
                if self_ns > 0:
                    group.self_ns += self_ns
            else:
                self._add(group, extra, ns, max(self_ns, 0))
        self._ended(int(start) + ns)
        self.spans += index + 1 - len(others) - len(bad)
        for group in self._groups.values():
            group.settle()
        self._forget()
        return others, bad

    def _add(self, group: Group, extra: Extra, ns: int, self_ns: int) -> None:
        """Add a span that is not plain."""
        stats, weight = group.stats, extra.weight
        if weight != 1:
            self.sampled += 1
        if extra.warmup:
            self.warmup += 1
            return
        if extra.open:
            stats.open += weight
            stats.open_ns += weight * ns
            return
        if weight == 1:
            group.durations.append(ns)
            group.self_ns += self_ns
        elif weight:
            stats.estimated = True
            stats.add(
                Stats(
                    count=weight,
                    sum_ns=weight * ns,
                    self_ns=weight * self_ns,
                    min_ns=ns,
                    max_ns=ns,
                    histogram={bucket_low(ns): weight},
                )
            )
        if extra.error:
            stats.errors += weight
        measures = extra.measures
        if measures and weight:
            for name, value in measures.items():
                stats.measures[name] = stats.measures.get(name, 0) + weight * value
            if "flops" in measures or "bytes" in measures:
                stats.measured += weight
                stats.measured_ns += weight * ns

    def _ended(self, ns: int) -> None:
        if ns > self.last_ns:
            self.last_ns = ns

    def _extra(self, rest: bytes) -> Extra:
        """What stands behind the step of a span. ValueError if it is not what the schema says."""
        record = {} if rest == b"}" else parse(b'{"type":"span"' + rest)
        weight = as_number(record.get("weight", 1))
        flags = record.get("flags") or []
        attrs = record.get("attrs") or {}
        if weight < 0 or not isinstance(flags, list) or not isinstance(attrs, dict):
            raise ValueError("not a span")
        if len(self.attributes) < MAX_ATTRIBUTES:
            self.attributes.update(attrs)
        value = None if self.by is None else _text(attrs[self.by]) if self.by in attrs else ABSENT
        is_open, warmup, error = "unfinished" in flags, "warmup" in flags, record.get("status") == "error"
        measures = as_measures(record.get("measures") or {}) or None
        extra = Extra(
            self._heads.setdefault(value, {}),
            not (weight != 1 or is_open or warmup or error or measures),
            weight,
            error,
            is_open,
            warmup,
            measures,
            value,
        )
        if len(self._extras) >= MAX_SPELLINGS:
            self._extras.clear()
            self._heads.clear()
            extra = extra._replace(groups=self._heads.setdefault(value, {}))
        self._extras[rest] = extra
        return extra

    def _group(self, head: bytes, extra: Extra) -> Group:
        """Where spans with this name, kind, path and value are added; ValueError if they are none."""
        record = parse(b'{"type":"span",' + head + b"}")
        path, kind = record.get("path"), record.get("kind")
        if not isinstance(path, str) or not isinstance(kind, str):
            raise ValueError("not a span")
        value = extra.value
        if value is not None:
            values = self._values.setdefault(path, set())
            if value not in values and len(values) >= MAX_VALUES:
                value = OTHERS
            values.add(value)
        group = self._groups.get((path, value))
        if group is None:
            if len(self._groups) >= MAX_GROUPS:
                path, value = OTHER_PATHS, None if self.by is None else OTHERS
            group = self._groups.setdefault((path, value), Group(kind))
        if len(extra.groups) < MAX_GROUPS:
            extra.groups[head] = group
        return group

    def _forget(self) -> None:
        """Keep what waits for parents within bounds: the oldest have waited in vain."""
        waiting = self._waiting
        if sum(map(len, waiting.values())) + len(waiting) > MAX_WAITING:
            self.orphaned = True
            for place in list(islice(waiting, len(waiting) // 2 + 1)):
                del waiting[place]


def is_span(line: bytes) -> bool:
    """Whether a line is a span, in whatever order its fields stand; cheap for the recorder's own lines."""
    if line.startswith(b'{"type":"'):
        return line.startswith(b'{"type":"span"')
    if b'"span"' not in line:
        return False
    try:
        return bool(parse(line)["type"] == "span")
    except ValueError:
        return False


def _fields(line: bytes) -> _Fields:
    """A span in any spelling as the regular expression would have found it. ValueError if it is none."""
    record = parse(line)
    if not all(isinstance(record.get(key), str) for key in ("id", "name", "kind", "path")):
        raise ValueError("not a span")
    start, dur = as_count(record.get("start")), as_count(record.get("dur"))
    where = [record.get("pid"), record.get("tid")] + ([record["task"]] if record.get("task") else [])
    head = {key: record[key] for key in ("name", "kind", "path")}
    rest: dict[str, Any] = {
        key: record[key] for key in ("weight", "status", "flags", "attrs", "measures") if key in record
    }
    return (
        record["id"].encode(),
        str(record.get("parent") or "").encode(),
        _compact(head)[1:-1],
        start,
        dur,
        _where(where),
        b"," + _compact(rest)[1:] if rest else b"}",
    )


def _compact(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode()


def _where(where: list[Any]) -> bytes:
    pid, tid, *task = where
    text = f'"pid":{as_count(pid)},"tid":{as_count(tid)}'
    return (text + (f',"task":"{task[0]}"' if task else "")).encode()


def _text(value: Any) -> str:
    """An attribute's value for people, bounded."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"
