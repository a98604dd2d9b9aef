"""The report of a run: a call tree for people, and the same numbers as JSON, Markdown or HTML.

What
    :class:`Report` holds the rows, what must be known beside them, and renders both.
Why
    The same numbers serve a terminal, a pull request, a notebook and a script, and none may leave out what
    was lost.
How
    ``layout`` says which columns there are, ``table`` and ``page`` draw them. Only ``table`` imports
    ``rich``, when it is asked for.
"""

import json
import re
import shlex
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path, PurePath
from typing import Any

from instrument.runs.layout import Column, Row, call_columns, rows_of
from instrument.runs.notes import Note, labels_text, notes_of
from instrument.runs.run import Progress, Run, Series, load_run
from instrument.runs.tree import build_tree, select, walk
from instrument.runs.units import clean, duration, number, quantity

__all__ = ["Report", "report"]

MAX_METRICS = 20


def report(
    *targets: str | Path,
    top: int = 40,
    sort: str = "total",
    by: str | None = None,
    progress: Progress | None = None,
) -> "Report":
    """Read a run (files or folders) and report it. Errors and cost as :func:`load_run`'s."""
    run = load_run([Path(target) for target in targets], by=by, progress=progress)
    return Report(run, top=top, sort=sort)


class Report:
    """A run, ready to be shown: as HTML in a notebook, as a plain table by ``str()``."""

    def __init__(self, run: Run, *, top: int = 40, sort: str = "total") -> None:
        self.run = run
        self.sort = sort
        tree = build_tree(run.stats, run.groups, sort=sort)
        self.paths = sum(1 for _ in walk(tree))
        self.whole_ns = sum(root.inclusive_ns for root in tree)
        """The time of all roots together, of which shares are."""
        self.all_rows = rows_of(tree, self.whole_ns, run.by)
        self.rows = rows_of(select(tree, top, sort=sort), self.whole_ns, run.by)
        self.notes = notes_of(run)
        shown = sum(row.value is None for row in self.rows)
        if shown < self.paths:
            what = f"the {top} largest by {sort} of {quantity(self.paths)} paths, with what leads to them"
            self.notes.append(Note("note", f"shown are {what}; `--top 0` shows all"))

    # -------------------------------------------------------------- for programs

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain values: all paths, whatever ``top`` is. Times are ns; None means unknown."""
        run = self.run
        header = {key: value for key, value in run.header.items() if key not in ("type", "schema")}
        return {
            "schema": 1,
            "run": header,
            "wall_ns": run.wall_ns,
            "spans": run.spans,
            "marks": run.marks,
            "threads": run.threads,
            "by": run.by,
            "files": [
                {
                    "file": process.source,
                    "pid": process.header.get("pid"),
                    "rank": process.header.get("rank"),
                    "host": process.header.get("host"),
                    "ended": process.state.ended,
                    "cut_bytes": process.state.cut_bytes,
                    "damage": process.state.damage or None,
                    "skipped_lines": process.state.skipped,
                    "numbers_from": "totals" if process.from_totals else "spans",
                }
                for process in run.processes
            ],
            "paths": [_row_dict(row, run.by) for row in self.all_rows],
            "metrics": [_metric_dict(one) for one in run.metrics],
            "losses": [
                {"where": where, "reason": reason, "count": count}
                for (where, reason), count in sorted(run.losses.items())
            ],
            "notes": [note.text for note in self.notes if "--top" not in note.text],
        }

    def as_json(self) -> str:
        """:meth:`as_dict` as JSON."""
        return json.dumps(self.as_dict(), indent=2, ensure_ascii=False, allow_nan=False)

    # -------------------------------------------------------------- for people

    def heading(self) -> list[str]:
        """The lines above the table: which run, what ran, where and when, how much."""
        run, header = self.run, self.run.header
        sources = [PurePath(process.source).name for process in run.processes]
        more = f" and {len(sources) - 1} more" if len(sources) > 1 else ""
        first = f"{clean(sources[0], 100)}{more}  run {clean(str(header.get('run_id', '?')), 64)}"
        lines = [first]
        argv = header.get("argv")
        if isinstance(argv, list) and argv:
            lines.append(clean(shlex.join(map(str, argv)), 200))
        hosts = sorted({str(process.header.get("host", "?")) for process in run.processes})
        where = clean(hosts[0], 60) if len(hosts) == 1 else f"{len(hosts)} hosts"
        pids = f"pid {header.get('pid')}" if len(sources) == 1 else f"{len(sources)} processes"
        started = run.processes[0].start_ns
        when = datetime.fromtimestamp(started // 10**9).strftime("%Y-%m-%d %H:%M:%S") if started else ""
        versions = header.get("versions")
        python = f"Python {versions['python']}" if isinstance(versions, dict) and "python" in versions else ""
        wall = f"{duration(run.wall_ns)} wall" if run.wall_ns is not None else "wall time unknown"
        lines.append(" · ".join(part for part in (where, pids, clean(python, 40), when, wall) if part))
        counts = [(run.spans, "span"), (self.paths, "path"), (run.threads, "thread"), (run.marks, "mark")]
        parts = [f"{quantity(n)} {word}{'' if n == 1 else 's'}" for n, word in counts if n or word == "span"]
        labels = labels_text(header.get("labels"))
        lines.append(" · ".join([*parts, labels] if labels else parts))
        return lines

    def as_text(self, width: int | None = None, *, colour: bool = False) -> str:
        """The table as text, at most ``width`` columns wide (None: as wide as it needs)."""
        from instrument.runs.table import draw

        return draw(self, width=width, colour=colour)

    def as_markdown(self) -> str:
        """The report as Markdown, for a pull request or a page."""
        first, *rest = self.heading()
        lines = [f"## {_markdown(first)}", "", *(f"{_markdown(line)}  " for line in rest), ""]
        columns, rows = self.columns(bars=False), self.rows
        lines += _markdown_table(columns, [[column.text(row) for column in columns] for row in rows])
        for titles, values in self.metric_tables():
            lines += [
                "",
                *_markdown_table([Column(t, str, left=i < 2) for i, t in enumerate(titles)], values),
            ]
        if self.notes:
            lines += ["", *(f"* **{note.kind}** {_markdown(note.text)}" for note in self.notes)]
        return "\n".join(lines) + "\n"

    def metric_tables(self) -> list[tuple[list[str], list[list[str]]]]:
        """Titles and rows of the metrics, if there are any; the first two columns are words."""
        return [_metric_table(self.run.metrics)] if self.run.metrics else []

    def hints(self) -> list[tuple[str, str]]:
        """What to look at next, as (word, text)."""
        command = self.run.command
        if not command or not self.rows:
            return []
        asked = [f"--sort {'total' if self.sort == 'self' else 'self'}"]
        if self.run.by is None:
            asked.append("--by ATTRIBUTE")
        return [("next", f"instrument report {command} {option}") for option in asked]

    def columns(self, *, bars: bool = True) -> list[Column]:
        """The columns of the call tree."""
        return [column for column in call_columns(self.rows) if bars or column.title]

    def _repr_html_(self) -> str:
        from instrument.runs.page import as_html

        return as_html(self)

    def _repr_markdown_(self) -> str:
        return self.as_markdown()

    def __str__(self) -> str:
        return self.as_text().rstrip("\n")


def _row_dict(row: Row, by: str | None) -> dict[str, Any]:
    stats = row.stats
    data: dict[str, Any] = {
        "path": row.path,
        "name": row.name,
        "kind": stats.kind or None,
        "depth": row.depth,
    }
    if row.value is not None:
        data["by"] = {by: row.value}
    data |= {
        "count": stats.count,
        "errors": stats.errors,
        "open": stats.open,
        "total_ns": stats.sum_ns,
        "self_ns": stats.self_ns,
        "mean_ns": stats.mean_ns,
        "min_ns": stats.min_ns,
        "max_ns": stats.max_ns,
        "p50_ns": stats.quantile_ns(0.5),
        "p90_ns": stats.quantile_ns(0.9),
        "p99_ns": stats.quantile_ns(0.99),
        "share": row.share,
        "measured": stats.measured,
        "measured_ns": stats.measured_ns,
        "measures": stats.measures,
        "gflops_per_s": stats.rate("flops"),
        "gbytes_per_s": stats.rate("bytes"),
    }
    return data


def _metric_dict(one: Series) -> dict[str, Any]:
    def finite(value: float) -> float | str:
        """JSON has no words for these; the run file's are used."""
        if value != value:
            return "NaN"
        return value if abs(value) < float("inf") else "Infinity" if value > 0 else "-Infinity"

    numbers = {name: finite(getattr(one, name)) for name in ("sum", "min", "max", "last")}
    return {"kind": one.kind, "name": one.name, "labels": one.labels, "count": one.count, **numbers}


def _metric_table(metrics: Sequence[Series]) -> tuple[list[str], list[list[str]]]:
    rows = []
    for one in metrics[:MAX_METRICS]:
        labels = f"{{{labels_text(one.labels)}}}" if one.labels else ""
        mean = one.sum / one.count if one.count else None
        spread = [number(value) for value in (mean, one.min, one.max, one.last)]
        rows.append([clean(one.name, 60) + labels, one.kind, quantity(one.count), number(one.sum), *spread])
    if len(metrics) > MAX_METRICS:
        rows.append([f"(+{len(metrics) - MAX_METRICS} more, see --format json)", *[""] * 7])
    return ["metric", "kind", "count", "sum", "mean", "min", "max", "last"], rows


def _markdown_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table whose first column keeps its indent."""
    lines = [
        "| " + " | ".join(column.title for column in columns) + " |",
        "|" + "|".join(":--" if column.left else "--:" for column in columns) + "|",
    ]
    for name, *rest in rows:
        bare = name.lstrip(" ")
        indent = "&nbsp;" * (len(name) - len(bare))
        lines.append("| " + " | ".join([indent + _markdown(bare), *map(_markdown, rest)]) + " |")
    return lines


def _markdown(text: str) -> str:
    """Text that Markdown shows as it is."""
    return re.sub(r"([\\`*_{}\[\]<>#|~])", r"\\\1", text)
