"""``json:PATH``: the run file, one JSON object per line; compressed if PATH ends in ``.gz``.

What
    Schema 1 (docs/run-file.md). Spans and marks are the recorder's own lines; the others are made here.
Why
    It is the form from which every other can be made again.
How
    :mod:`instrument_exporters.runfile` appends all or nothing. Spans that do not fit are lost and counted,
    and the next batch tries again; lines about threads and sites are kept until they fit.
"""

import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from instrument.records import AsLine, Batch, ExportError, Loss, Resource
from instrument_exporters.runfile import RunFile, open_run_file, reason_of

__all__ = ["JsonExporter"]

_KEPT: Final = 1 << 20  # bytes of lines that wait for room


class JsonExporter:
    """Writes one process's run file."""

    def __init__(self, path: str) -> None:
        if not path:
            raise ValueError("the path is missing: json:run.jsonl")
        self.target = os.path.abspath(os.path.expanduser(path))
        """Where it writes: the path asked for, or beside it if that is another process's."""
        self._file: RunFile | None = None
        self._waiting = b""
        self._opened_ns = 0
        self._spans = 0
        self._marks = 0
        self._losses: tuple[Loss, ...] = ()
        self._clock: Mapping[str, int] = {}

    def open(self, resource: Resource, /) -> None:
        """Create the file, or replace one of ours. OSError if neither can be."""
        first = _line(resource.as_line())
        self._file = open_run_file(self.target, first, resource.host, child=resource.parent_pid is not None)
        self.target = self._file.path
        self._opened_ns = time.monotonic_ns()

    def export(self, batch: Batch, /) -> None:
        """Append what is in the batch. ExportError with the number of spans and marks that did not fit."""
        file = self._file
        if file is None:
            raise ExportError("closed", batch.count)
        error: OSError | None = None
        written = 0
        try:
            self._append_tables(file, batch)
            for piece in batch.lines():
                file.append(piece)
                marks = piece.count(b'{"type":"mark"') if batch.mark_count else 0
                events = piece.count(b"\n")
                written += events
                self._marks += marks
                self._spans += events - marks
        except OSError as caught:
            error = caught
        lost = batch.count - written
        losses = batch.losses
        if batch.final and lost:  # nobody else can say it in this file
            losses = _with_loss(losses, "write_error" if error is None else reason_of(error), lost)
        try:
            self._append_summary(file, batch, losses)
        except OSError as caught:
            error = error or caught
        self._losses, self._clock = tuple(losses), batch.clock
        if error is not None:
            raise ExportError(reason_of(error), lost, str(error)) from error
        if batch.final and file.is_gone():
            raise ExportError(
                "file_removed", self._spans + self._marks, f"{self.target} was removed meanwhile"
            )

    def flush(self, deadline: float, /) -> bool:
        """Everything is written at once: nothing to do. The system writes it to the disk when it likes."""
        return True

    def close(self, deadline: float, /) -> bool:
        """Write the ``end`` line; False if it does not fit."""
        file, self._file = self._file, None
        if file is None:
            return True
        end = {
            "type": "end",
            "time": time.time_ns(),
            "duration_ns": time.monotonic_ns() - self._opened_ns,
            "spans": self._spans,
            "marks": self._marks,
            "lost": sum(loss.count for loss in self._losses),
            "clock": self._clock,
        }
        try:
            file.append(self._waiting + _line(end))
            file.close()
        except OSError:
            file.abandon()
            return False
        return True

    def _append_tables(self, file: RunFile, batch: Batch) -> None:
        """Threads and sites: said once, so they wait until there is room."""
        tables: tuple[AsLine, ...] = (*batch.threads, *batch.sites)
        lines = self._waiting + b"".join(_line(item.as_line()) for item in tables)
        self._waiting = lines if len(lines) <= _KEPT else self._waiting
        if lines:
            file.append(lines)
        self._waiting = b""

    def _append_summary(self, file: RunFile, batch: Batch, losses: Sequence[Loss]) -> None:
        """What is cumulative: the next batch says it again if it does not fit."""
        if not batch.final:
            losses = [loss for loss in losses if loss not in self._losses]
        items: tuple[AsLine, ...] = (*batch.metrics, *batch.totals, *losses)
        if items:
            file.append(b"".join(_line(item.as_line()) for item in items))


def _with_loss(losses: Sequence[Loss], reason: str, count: int) -> list[Loss]:
    """`losses`, with this exporter's own of the last batch among them."""
    before = sum(loss.count for loss in losses if (loss.where, loss.reason) == ("json", reason))
    others = [loss for loss in losses if (loss.where, loss.reason) != ("json", reason)]
    return [*others, Loss("json", reason, before + count)]


# ------------------------------------------------------------------ lines


def _line(fields: Mapping[str, Any]) -> bytes:
    text = json.dumps(_plain(fields), ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=str)
    # A lone surrogate becomes \udXXX, which inside a JSON string means that surrogate.
    return text.encode("utf-8", "backslashreplace") + b"\n"


def _plain(value: Any) -> Any:
    """With NaN and the infinities, which JSON cannot say, as strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
