"""The report as rows and columns, the same for the terminal, Markdown and notebooks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from instrument.runs.stats import Stats
from instrument.runs.tree import Node, walk
from instrument.runs.units import clean, duration, number, percent, quantity

__all__ = ["BAR_CELLS", "Column", "Row", "bar", "call_columns", "fit", "rows_of"]

BAR_CELLS: Final = 12
MAX_INDENT: Final = 40


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the call tree."""

    name: str
    depth: int
    stats: Stats
    inclusive_ns: float
    share: float
    """Of the time of all roots together; above 1 where children overlap."""
    path: str = ""
    value: str | None = None
    """Set in a row of one value of the attribute; ``name`` is then ``attribute=value``."""
    hidden: int = 0


@dataclass(frozen=True, slots=True)
class Column:
    """What stands in one column, and when it is left out."""

    title: str
    text: Callable[[Row], str]
    left: bool = False
    style: str = ""
    droppable: int = 0
    """Where room lacks, columns go in this order, 1 first; 0 stays."""


def rows_of(roots: Sequence[Node], whole_ns: float, by: str | None = None) -> list[Row]:
    """The tree as rows, each node followed by its values of ``by``; shares are of ``whole_ns``."""
    whole = whole_ns or 1
    rows = []
    for node in walk(list(roots)):
        share = node.inclusive_ns / whole
        rows.append(
            Row(node.name, node.depth, node.stats, node.inclusive_ns, share, node.path, hidden=node.hidden)
        )
        for value, stats in sorted(node.groups.items(), key=lambda item: (-item[1].sum_ns, item[0])):
            name = value if value.startswith("(") else f"{by}={value}"
            rows.append(
                Row(name, node.depth + 1, stats, stats.sum_ns, stats.sum_ns / whole, node.path, value)
            )
    return rows


def call_columns(rows: Sequence[Row]) -> list[Column]:
    """The columns that have something to say about these rows, the name first."""
    columns = [
        Column("call", _name, left=True),
        Column("count", _count, droppable=9),
        Column("total", _total, style="bold"),
        Column("self", lambda row: _time(row, row.stats.self_ns), droppable=8),
        Column("mean", lambda row: _time(row, row.stats.mean_ns), droppable=3),
        Column("p50", lambda row: _time(row, row.stats.quantile_ns(0.5)), droppable=4),
        Column("p99", lambda row: _time(row, row.stats.quantile_ns(0.99)), droppable=6),
        Column("share", lambda row: percent(row.share), droppable=7),
        Column("", bar, left=True, style="cyan", droppable=1),
    ]
    if any(row.stats.errors for row in rows):
        columns.append(Column("errors", lambda row: _some(row.stats.errors), style="red"))
    if any(row.stats.open for row in rows):
        columns.append(Column("open", lambda row: _some(row.stats.open), style="yellow"))
    for title, measure in (("GFLOP/s", "flops"), ("GB/s", "bytes")):
        if any(row.stats.rate(measure) is not None for row in rows):
            columns.append(Column(title, _rate(measure), style="green", droppable=5))
    return columns


def bar(row: Row) -> str:
    """The share as a bar: solid for its own time, light for its children's."""
    share = min(row.share, 1.0)
    own = min(row.stats.self_ns / row.inclusive_ns, 1.0) * share if row.inclusive_ns else 0.0
    solid, whole = round(own * BAR_CELLS), round(share * BAR_CELLS)
    if not whole:
        return "▏" if share >= 0.005 else ""
    return "█" * solid + "░" * (whole - solid)


def fit(columns: Sequence[Column], widths: Sequence[int], room: int | None) -> tuple[list[int], int]:
    """Which columns (by index) fit into ``room`` cells, two apart, and how wide the first may be."""
    kept = list(range(len(columns)))
    if room is None:
        return kept, widths[0]

    def others() -> int:
        return sum(widths[i] + 2 for i in kept[1:])

    droppable = sorted((i for i in kept if columns[i].droppable), key=lambda i: columns[i].droppable)
    for index in droppable:
        if others() + min(widths[0], 28) > room:
            kept.remove(index)
    return kept, max(min(widths[0], room - others()), 8)


def _name(row: Row) -> str:
    indent = "  " * row.depth
    indent = indent if len(indent) <= MAX_INDENT else f"{'':{MAX_INDENT - 6}}[{row.depth}] "
    more = f" (+{row.hidden} below)" if row.hidden else ""
    return indent + clean(row.name, 100) + more


def _count(row: Row) -> str:
    if not row.stats.count:
        return ""
    return ("~" if row.stats.estimated else "") + quantity(row.stats.count)


def _total(row: Row) -> str:
    if row.stats.count:
        return duration(row.stats.sum_ns)
    return f">{duration(row.inclusive_ns)}" if row.inclusive_ns else ""


def _time(row: Row, ns: float | None) -> str:
    return duration(ns) if row.stats.count else ""


def _some(value: float) -> str:
    return quantity(value) if value else ""


def _rate(measure: str) -> Callable[[Row], str]:
    def text(row: Row) -> str:
        rate = row.stats.rate(measure)
        return "" if rate is None else number(rate)

    return text
