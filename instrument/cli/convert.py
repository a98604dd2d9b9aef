"""``instrument convert RUN TARGET...``: a finished run in the form that another tool reads."""

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from instrument.cli.progress import Progress, without_gc
from instrument.errors import ConfigError, InstrumentError

if TYPE_CHECKING:
    from instrument.plugins import NamedExporter
    from instrument.records import Exporter, Resource
    from instrument.runs.replay import Replayed
    from instrument_exporters.runfile import RunFile as OutputFile

__all__ = ["command"]

PATIENCE: Final = 600.0
"""Seconds that an exporter gets to deliver what it kept."""

_HELP = """Turn a run into other forms.

RUN is a run file (plain or .gz) or a folder that holds those of one run; files of child processes beside it
are read with it. A TARGET is what `--export` takes. The run is read once, whatever the number of targets.

\b
Targets:
  chrome:FILE[.gz]  a trace for https://ui.perfetto.dev and chrome://tracing
  kineto:FILE[.gz]  the same as torch.profiler would write it, for HolisticTraceAnalysis
  json:FILE[.gz]    the run itself; a compressed one takes about an eighth of the room

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
            click.Argument(["specs"], metavar="TARGET...", nargs=-1, required=True),
        ],
    )


@without_gc()
def _convert(run: Path, specs: tuple[str, ...]) -> None:
    from instrument.plugins import make_exporters
    from instrument.runs.load import find_files

    files, notes = find_files([run])
    targets = [_Target(named, files) for named in make_exporters(specs)]
    began = time.monotonic()
    with Progress("converting") as progress:
        count = _feed(files, targets, progress)
    for target in targets:
        notes += target.notes()
    for note in notes:
        click.echo(f"instrument convert: {note}", err=True)
    seconds = time.monotonic() - began
    for target in targets:
        for place in () if target.failed else target.places:
            click.echo(f"{place}: {count:,} spans and marks in {seconds:.1f} s")
    failed = [target.name for target in targets if target.failed]
    if failed:
        raise InstrumentError(f"{', '.join(failed)}: not everything could be written; see above")


def _feed(files: Sequence[Path], targets: Sequence["_Target"], progress: Callable[[int, int], None]) -> int:
    """Everything in the files to every target; how many spans and marks that were."""
    from instrument.runs.replay import replay

    sizes = [path.stat().st_size for path in files]
    count = 0
    for number, path in enumerate(files):

        def step(done: int, before: int = sum(sizes[:number])) -> None:
            progress(before + done, sum(sizes))

        resource, batches = replay(path, step)
        for target in targets:
            target.begin(resource, path, first=number == 0)
        for batch in batches:
            count += batch.count
            for target in targets:
                target.take(batch)
    for target in targets:
        target.finish()
    return count


class _Target:
    """One exporter and what became of it."""

    def __init__(self, named: "NamedExporter", files: Sequence[Path]) -> None:
        from instrument_exporters.json import JsonExporter

        self.name = named.name
        self.places: list[str] = []
        self.failed = False
        self._named = named
        self._lost: Counter[str] = Counter()
        self._first_error = ""
        place = getattr(named.exporter, "target", None)
        if place is not None and any(_is_same(str(place), path) for path in files):
            raise ConfigError(f"{named.spec}: that is the run that is read; choose another path")
        self._exporter: Exporter | _Copy = named.exporter
        if isinstance(named.exporter, JsonExporter):
            self._exporter = _Copy(named.exporter.target)

    def begin(self, resource: "Resource", path: Path, *, first: bool) -> None:
        """The batches from here on are of this process. ConfigError if the target cannot be opened."""
        exporter = self._exporter
        try:
            if isinstance(exporter, _Copy):
                exporter.begin(resource, path)
            elif first:
                exporter.open(replace(resource, parent_pid=None))
            elif hasattr(exporter, "join"):
                exporter.join(resource)
                return
            else:
                self.finish()
                self._exporter = exporter = self._another()
                exporter.open(replace(resource, parent_pid=resource.parent_pid or os.getpid()))
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self._named.spec}: {_text(error)}") from error
        self.places.append(str(getattr(exporter, "target", self._named.spec)))

    def _another(self) -> "Exporter":
        """For one more process."""
        child = self._named.for_child()
        if child is None:
            raise ConfigError(f"{self._named.spec}: takes one process, and this run has several")
        return child.exporter

    def take(self, batch: "Replayed") -> None:
        """One batch; what does not arrive is counted."""
        from instrument.records import ExportError

        try:
            self._exporter.export(batch)
        except ExportError as error:
            self._lose(error.reason, error.count, str(error))
        except Exception as error:
            self._lose("error", batch.count, f"{type(error).__name__}: {error}")

    def finish(self) -> None:
        """Wait for the exporter to deliver everything."""
        deadline = time.monotonic() + PATIENCE
        with suppress(Exception):
            if self._exporter.flush(deadline) and self._exporter.close(deadline):
                return
        self.failed = True

    def notes(self) -> list[str]:
        """What was not written, a line each."""
        if self.failed and not self._lost:
            return [f"{self.name}: the end could not be written"]
        return [
            f"{self.name}: {count:,} lost ({reason}){self._first_error if reason != 'unreadable' else ''}"
            for reason, count in self._lost.items()
        ]

    def _lose(self, reason: str, count: int, text: str) -> None:
        self._lost[reason] += count
        if reason != "unreadable":
            self.failed = True
            self._first_error = self._first_error or f": {text}"


def _text(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)


def _is_same(place: str, path: Path) -> bool:
    return os.path.exists(place) and os.path.samefile(place, path)


class _Copy:
    """Run files again, line by line, whatever they hold: compressed, or without a torn end."""

    def __init__(self, target: str) -> None:
        self.target = target
        self._place = target
        self._host = ""
        self._first_name = ""
        self._file: OutputFile | None = None

    def begin(self, resource: "Resource", path: Path) -> None:
        """The next process gets a file of its own; what tells the sources' names apart tells these apart."""
        if self._file is not None:
            self._end()
            stem, ending = _split_name(os.path.basename(self._place))
            self.target = os.path.join(
                os.path.dirname(self._place), f"{stem}.{_difference(self._first_name, path.name)}{ending}"
            )
        else:
            self._first_name = path.name
        self._host = resource.host

    def export(self, batch: "Replayed") -> None:
        """Append the lines as they are."""
        from instrument.records import ExportError
        from instrument_exporters.runfile import open_run_file

        try:
            if self._file is None:
                self._file = open_run_file(self.target, batch.source, self._host)
                self.target = self._file.path
            elif batch.source:
                self._file.append(batch.source)
        except OSError as error:
            raise ExportError("write_error", batch.count, _text(error)) from error

    def flush(self, deadline: float) -> bool:
        """Everything is written at once."""
        return True

    def close(self, deadline: float) -> bool:
        """End the file."""
        return self._end()

    def _end(self) -> bool:
        file, self._file = self._file, None
        try:
            if file is not None:
                file.close()
        except OSError:
            return False
        return True


def _split_name(name: str) -> tuple[str, str]:
    """A run file's name without and with its ending."""
    found = re.fullmatch(r"(.+?)((?:\.jsonl?)?(?:\.gz)?)", name, re.DOTALL)
    return (found[1], found[2]) if found else (name, "")


def _difference(first: str, other: str) -> str:
    """What ``run.host-1-ab.jsonl`` has beyond ``run.jsonl``."""
    stem, _ = _split_name(first)
    own, _ = _split_name(other)
    return own.removeprefix(f"{stem}.")
