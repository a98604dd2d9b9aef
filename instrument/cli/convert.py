"""``instrument convert RUN TARGET...``: a finished run in the form that another tool reads."""

import gc
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from instrument.errors import ConfigError, RunFileError

__all__ = ["command"]

_HELP = """Turn a run into other forms.

RUN is a run file (plain or .gz) or a folder that holds those of one run; files of child processes beside it
are read with it. A TARGET is what `--export` takes. The run is read once, whatever the number of targets.

\b
Targets:
  chrome:FILE    a trace for https://ui.perfetto.dev and chrome://tracing
  kineto:FILE    the same as torch.profiler would write it, for HolisticTraceAnalysis
  json:FILE      the run file itself, each process's; with .gz a third of the size or less

\b
Examples:
  instrument convert run.jsonl chrome:trace.json.gz
  instrument convert runs/ kineto:traces/rank0.json.gz json:run.jsonl.gz
"""


def command() -> click.Command:
    """The command, for the group."""
    return click.Command(
        "convert",
        callback=_convert,
        help=_HELP,
        short_help="Turn a run into other forms, such as a Perfetto trace.",
        params=[
            click.Argument(["run"], metavar="RUN", type=click.Path(path_type=Path)),
            click.Argument(["targets"], metavar="TARGET...", nargs=-1, required=True),
        ],
    )


def _convert(run: Path, targets: tuple[str, ...]) -> None:
    gc.disable()  # nothing here makes cycles
    from instrument.cli.progress import Progress
    from instrument.runs.convert import convert

    with Progress("converting") as progress:
        done = convert(run, targets, progress)
    for note in done.notes:
        click.echo(f"instrument convert: {note}", err=True)
    for name, losses in done.lost.items():
        told = ", ".join(f"{count:,} ({reason})" for reason, count in losses.items())
        click.echo(f"instrument convert: {name}: not written: {told}", err=True)
    for place in done.written:
        click.echo(place)
    if not done.whole:
        raise RunFileError(f"{', '.join(done.incomplete)}: not everything could be written")
