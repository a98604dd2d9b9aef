"""The report on a terminal, or as plain text for a pipe."""

import textwrap
from collections.abc import Sequence
from io import StringIO
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from instrument.runs.layout import Column, Row, fit
from instrument.runs.units import cells, clean, duration

if TYPE_CHECKING:
    from instrument.runs.report import Report

__all__ = ["draw"]

_NOTE_STYLES = {"lost": "bold red", "file": "bold yellow", "note": "dim"}


def draw(report: "Report", *, width: int | None, colour: bool) -> str:
    """Heading, call tree, metrics and notes; lines take at most ``width`` columns, if there is one."""
    out = StringIO()
    console = Console(
        file=out,
        width=width or 10_000,
        force_terminal=colour,
        color_system="auto" if colour else None,
        no_color=not colour,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    for number, line in enumerate(report.heading()):
        _line(console, Text(clean(line, width), style="dim" if number else "bold"))
    _line(console, Text())
    hidden = _calls(console, report, width)
    for titles, rows in report.metric_tables():
        _line(console, Text())
        columns = [Column(title, str, left=i < 2, droppable=i) for i, title in enumerate(titles)]
        _grid(console, columns, rows, width, [""] * len(rows))
    _line(console, Text())
    for note in report.notes:
        _paragraph(console, note.kind, note.text, width, _NOTE_STYLES[note.kind])
    if hidden:
        text = f"hidden at this width: {', '.join(hidden)}"
        _paragraph(console, "note", text, width, "dim")
    for kind, text in report.hints():
        _paragraph(console, kind, text, width, "dim")
    return out.getvalue()


def _calls(console: Console, report: "Report", width: int | None) -> list[str]:
    """Draw the call tree; answers the titles of the columns that found no room."""
    if not report.rows:
        _line(console, Text("no span was recorded", style="yellow"))
        return []
    columns, rows = report.columns(), report.rows
    texts = [[column.text(row) for column in columns] for row in rows]
    kept = _grid(console, columns, texts, width, [_style(row) for row in rows])
    if any(not columns[i].title for i in kept):
        legend = (
            f"█ its own time  ░ in calls below; shares are of {duration(report.whole_ns)}, all roots together"
        )
        _line(console, Text(clean(legend, width), style="dim"))
    return [column.title for i, column in enumerate(columns) if i not in kept and column.title]


def _style(row: Row) -> str:
    if row.value is not None or not row.stats.count:
        return "dim"
    own = row.stats.self_ns / row.inclusive_ns if row.inclusive_ns else 0.0
    return "bold" if own * row.share >= 0.1 else ""


def _grid(
    console: Console,
    columns: Sequence[Column],
    texts: Sequence[Sequence[str]],
    width: int | None,
    styles: Sequence[str],
) -> list[int]:
    """Draw rows under their titles; answers which columns found room."""
    titles = [column.title for column in columns]
    widths = [max(map(cells, texts_below)) for texts_below in zip(titles, *texts, strict=True)]
    kept, name = fit(columns, widths, width)
    widths[0] = name
    _line(console, Text("  ").join(_cell(titles[i], columns[i], widths[i], "bold") for i in kept))
    _line(console, Text("─" * (sum(widths[i] + 2 for i in kept) - 2), style="dim"))
    for row, style in zip(texts, styles, strict=True):
        parts = [_cell(row[i], columns[i], widths[i], style if i == 0 else columns[i].style) for i in kept]
        _line(console, Text("  ").join(parts))
    return kept


def _cell(text: str, column: Column, width: int, style: str) -> Text:
    text = clean(text, width)
    space = " " * (width - cells(text))
    return Text(text + space if column.left else space + text, style=style)


def _paragraph(console: Console, kind: str, text: str, width: int | None, style: str) -> None:
    """A note with its kind in front, wrapped under itself."""
    lines = [text]
    if width is not None:
        lines = textwrap.wrap(text, max(width - 6, 20), break_on_hyphens=False) or [""]
    for number, line in enumerate(lines):
        _line(console, Text.assemble((f"{'' if number else kind:<6}", style), line))


def _line(console: Console, text: Text) -> None:
    text.rstrip()
    console.print(text, no_wrap=True, overflow="ignore", crop=False)
