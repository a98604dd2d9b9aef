"""The report as HTML for a notebook: one table that takes the page's own colours and fonts."""

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING

from instrument.runs.layout import Column, Row
from instrument.runs.units import percent

if TYPE_CHECKING:
    from instrument.runs.report import Report

__all__ = ["as_html"]

_CELL = "padding:1px 10px 1px 0;white-space:pre;text-align:"
_NOTE_COLOURS = {"lost": "#c62828", "file": "#b26a00", "note": "inherit"}


def as_html(report: "Report") -> str:
    """Heading, call tree, metrics and notes, without scripts and style sheets; every text is escaped."""
    first, *rest = report.heading()
    parts = [
        '<div style="font-size:90%;overflow-x:auto">',
        f"<div><b>{html.escape(first)}</b></div>",
        *(f'<div style="opacity:.7">{html.escape(line)}</div>' for line in rest),
    ]
    if report.rows:
        columns = report.columns()
        cells = [[_cell(column, row) for column in columns] for row in report.rows]
        parts += _table([column.title for column in columns], [column.left for column in columns], cells)
    else:
        parts.append("<div>no span was recorded</div>")
    for titles, rows in report.metric_tables():
        left = [i < 2 for i in range(len(titles))]
        parts += _table(titles, left, [[html.escape(text) for text in row] for row in rows])
    for note in report.notes:
        colour = _NOTE_COLOURS[note.kind]
        parts.append(f'<div><b style="color:{colour}">{note.kind}</b> {html.escape(note.text)}</div>')
    return "\n".join([*parts, "</div>"])


def _table(titles: Sequence[str], left: Sequence[bool], rows: Sequence[Sequence[str]]) -> list[str]:
    sides = ["left" if is_left else "right" for is_left in left]
    head = "".join(
        f'<th style="{_CELL}{side}">{html.escape(title)}</th>'
        for title, side in zip(titles, sides, strict=True)
    )
    body = [
        "<tr>"
        + "".join(f'<td style="{_CELL}{side}">{text}</td>' for text, side in zip(row, sides, strict=True))
        + "</tr>"
        for row in rows
    ]
    style = "border-collapse:collapse;margin:.6em 0;font-variant-numeric:tabular-nums"
    return [f'<table style="{style}"><thead><tr>{head}</tr></thead><tbody>', *body, "</tbody></table>"]


def _cell(column: Column, row: Row) -> str:
    if column.title:
        return html.escape(column.text(row))
    share = min(row.share, 1.0)
    own = min(row.stats.self_ns / row.inclusive_ns, 1.0) * share if row.inclusive_ns else 0.0
    bars = ((own, 1.0), (share - own, 0.35))
    return "".join(
        f'<span style="display:inline-block;height:.7em;width:{100 * width:.0f}px;background:#1f77b4;'
        f'opacity:{opacity}" title="{percent(width)}"></span>'
        for width, opacity in bars
    )
