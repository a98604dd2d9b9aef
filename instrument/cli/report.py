"""``instrument report RUN``: the call tree of a finished run."""

import os
import shutil
import sys
from difflib import get_close_matches
from pathlib import Path

import click

from instrument.cli.progress import Progress, without_gc
from instrument.errors import RunFileError
from instrument.runs.report import Report, report
from instrument.runs.tree import SORTS

__all__ = ["command"]

_HELP = """Show where the time of a run went: a call tree with counts, times and rates.

RUN is a run file (plain or .gz), several of one run, or a folder that holds them. Files of child processes
beside a run file are read with it.

\b
Examples:
  instrument report run.jsonl
  instrument report run.jsonl --sort self --top 10
  instrument report run.jsonl --by batch
  instrument report run.jsonl --format markdown > report.md
"""


def command() -> click.Command:
    """The command, for the group."""
    return click.Command(
        "report",
        callback=_report,
        help=_HELP,
        short_help="Show where the time of a run went.",
        params=[
            click.Argument(
                ["runs"], metavar="RUN...", nargs=-1, required=True, type=click.Path(path_type=Path)
            ),
            click.Option(
                ["--top"],
                type=click.IntRange(min=0),
                default=40,
                show_default=True,
                metavar="N",
                help="Show the N largest paths and what leads to them; 0 shows all.",
            ),
            click.Option(
                ["--sort"],
                type=click.Choice([*SORTS, "name"]),
                default="total",
                show_default=True,
                help="What decides which rows are the largest, and their order.",
            ),
            click.Option(["--by"], metavar="ATTR", help="Split every path by an attribute of its spans."),
            click.Option(
                ["--format", "form"],
                type=click.Choice(["table", "json", "markdown"]),
                default="table",
                show_default=True,
                help="JSON has all paths, whatever --top says, and times in ns.",
            ),
            click.Option(["--json", "as_json"], is_flag=True, help="The same as --format json."),
        ],
    )


def _report(runs: tuple[Path, ...], top: int, sort: str, by: str | None, form: str, as_json: bool) -> None:
    with Progress("reading") as progress, without_gc():
        shown = report(*runs, top=top, sort=sort, by=by, progress=progress)
    if by is not None and not shown.run.groups:
        raise RunFileError(f"{runs[0]}: {_no_attribute(by, shown)}")
    if sys.stdout is None:  # closed, as by `>&-`: nobody reads it
        return
    if hasattr(sys.stdout, "reconfigure"):  # a name may have letters that this terminal's encoding lacks
        sys.stdout.reconfigure(errors="replace")
    if as_json or form == "json":
        click.echo(shown.as_json())
    elif form == "markdown":
        click.echo(shown.as_markdown(), nl=False)
    else:
        terminal = sys.stdout.isatty()
        sized = terminal or os.environ.get("COLUMNS", "").isdigit()
        width = shutil.get_terminal_size().columns if sized else None
        colour = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        sys.stdout.write(shown.as_text(width, colour=colour))  # rich answers a closed pipe with exit code 1
    sys.stdout.flush()  # here, where a closed pipe is understood


def _no_attribute(by: str, shown: Report) -> str:
    known = sorted(shown.run.attributes)
    if not known:
        return f"no span has an attribute, so there is nothing to split by {by!r}"
    near = get_close_matches(by, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"no span has the attribute {by!r}{hint} (there are: {', '.join(known[:20])})"
