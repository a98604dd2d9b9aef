"""What a reader of a report must know: losses, cuts, sampling, what was unavailable. Nothing is silent."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final, Literal

from instrument.runs.run import Process, Run
from instrument.runs.scan import MAX_VALUES, OTHERS
from instrument.runs.units import clean, quantity

__all__ = ["Note", "notes_of"]


@dataclass(frozen=True, slots=True)
class Note:
    """One line under the table."""

    kind: Literal["lost", "file", "note"]
    text: str


_RAISE = "raise `buffer_mib` or lower `interval`"
_HINTS: Final[Mapping[str, str]] = {
    "buffer_full": f"the newest records found no room: {_RAISE}",
    "overwritten": f"the oldest records made room: {_RAISE}",
    "unmatched_exit": "regions were left that were not open in their thread",
    "set_without_span": "`set()` or `annotate()` was called with no open span",
    "depth": "calls nested deeper than the recorder follows",
    "paths": "more call paths than are kept apart: the rest share one path each",
    "sites": "more names than are kept apart: put what varies into attributes, not names",
    "attributes": "spans had more attributes, or the program more names of them, than are kept",
    "attribute_size": "attributes were longer than is kept",
    "memory": "totals or histograms found no memory: raise `buffer_mib`",
    "recursion": "deep recursion: some levels went unrecorded",
    "evaluate": "functions given as `flops=`, `bytes=` or `attrs=` failed",
    "sink": "collectors failed",
    "metrics": "metric points had too many series, or were not numbers",
    "threads": "more threads than are remembered by name",
    "inherited": "records of the parent, dropped in a forked child (the parent writes them)",
    "queue_full": "the exporter fell behind",
    "file_closed": "the program closed the file's descriptor: start the session after that",
    "late": "they came when the exporter had been told to close",
    "error": "the exporter failed",
}


def notes_of(run: Run) -> list[Note]:
    """Everything to say about a run, the gravest first."""
    return [*_losses(run), *_files(run), *_spans(run), *_collectors(run)]


def _losses(run: Run) -> Iterator[Note]:
    for (where, reason), count in sorted(run.losses.items(), key=lambda item: -item[1]):
        if count:
            hint = _HINTS.get(reason)
            text = f"{quantity(count)} × {clean(reason, 60)} ({clean(where, 60)})"
            yield Note("lost", f"{text}: {hint}" if hint else text)


def _files(run: Run) -> Iterator[Note]:
    several = len(run.processes) > 1
    for process in run.processes:
        name = f"{clean(PurePath(process.source).name, 60)}: " if several else ""
        for text in _of_file(process):
            yield Note("file", name + text)
    for text in run.notes:
        yield Note("file", clean(text))


def _of_file(process: Process) -> Iterator[str]:
    state = process.state
    if state.damage:
        yield f"read up to a damaged place: {state.damage}"
    if state.cut_bytes:
        yield f"cut off within its last line, whose {quantity(state.cut_bytes)} bytes were ignored"
    if not state.ended:
        source = "spans" if not process.from_totals else "the totals it has"
        yield f"has no end: the program was killed or still runs; the numbers are those of {source}"
    elif not process.from_totals:
        yield "has no totals; the numbers are sums over its spans"
    if state.skipped:
        lines = "line was" if state.skipped == 1 else "lines were"
        yield f"{quantity(state.skipped)} unreadable {lines} skipped; the first is line {state.first_skipped}"
    if process.end is not None and process.end["spans"] != process.spans and not state.skipped:
        yield f"holds {quantity(process.spans)} spans, and its end line says {quantity(process.end['spans'])}"
    if process.orphaned:
        yield "many spans lack their parents; some self times are too long"


def _spans(run: Run) -> Iterator[Note]:
    sampled = sum(process.sampled for process in run.processes)
    if sampled:
        exact = all(process.from_totals for process in run.processes)
        how = "the numbers above are those of totals, and exact" if exact else "`~` marks estimates by weight"
        yield Note(
            "note", f"sampled: {quantity(sampled)} of {quantity(run.spans)} spans have a weight; {how}"
        )
    still = [(path, stats) for path, stats in run.stats.items() if stats.open]
    if still:
        count = sum(stats.open for _, stats in still)
        names = ", ".join(clean(path, 60) for path, _ in still[:3]) + (", …" if len(still) > 3 else "")
        verb = "span had" if count == 1 else "spans had"
        yield Note("note", f"{quantity(count)} {verb} not ended, and are in no other number: {names}")
    warmup = sum(process.warmup for process in run.processes)
    if warmup:
        yield Note("note", f"{quantity(warmup)} warm-up spans are left out")
    if any(OTHERS in values for values in run.groups.values()):
        yield Note(
            "note", f"more than {MAX_VALUES} values of {run.by!r} on one path; the rest are `{OTHERS}`"
        )
    for path, values in run.groups.items():
        whole, told = run.stats[path].count if path in run.stats else 0, sum(s.count for s in values.values())
        if told < whole:
            text = f"{quantity(told)} of {quantity(whole)} executions have a span to split by"
            yield Note("note", f"{clean(path, 60)}: {text}")
    if any(0 < stats.measured < stats.count for stats in run.stats.values()):
        yield Note("note", "GFLOP/s and GB/s are over the executions that said what work they did")


def _collectors(run: Run) -> Iterator[Note]:
    seen: dict[str, int] = {}
    for process in run.processes:
        collectors = process.header.get("collectors")
        for collector in collectors if isinstance(collectors, list) else []:
            if isinstance(collector, dict) and not collector.get("available", True):
                text = f"{collector.get('name')}: unavailable: {collector.get('reason') or 'no reason given'}"
                seen[text] = seen.get(text, 0) + 1
    for text, count in seen.items():
        where = f" (in {count} processes)" if count > 1 else ""
        yield Note("note", clean(text, 300) + where)


def labels_text(labels: Any) -> str:
    """Labels as ``key=value`` pairs."""
    if not isinstance(labels, dict):
        return ""
    return " ".join(f"{clean(str(key), 40)}={clean(str(value), 60)}" for key, value in labels.items())
