"""``json:PATH``: the run file, one JSON object per line; compressed if PATH ends in ``.gz``.

What
    Schema 1 (docs/run-file.md). Spans and marks are the recorder's own lines; the others are made here.
Why
    It is the form from which every other can be made again.
How
    :mod:`instrument_exporters.runfile` appends all or nothing. Spans that do not fit are lost and counted,
    and the next batch tries again; lines about threads and sites are kept until they fit.
"""

import errno
import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from instrument.records import SCHEMA, Batch, ExportError, Loss, Metric, Resource, SiteInfo, Thread, Total
from instrument_exporters.runfile import RunFile, open_run_file

__all__ = ["JsonExporter"]

_PIECE: Final = 1 << 18  # bytes that are worth a system call
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
        self._lost = 0  # here, since the losses of the last batch were counted
        self._losses: tuple[Loss, ...] = ()

    def open(self, resource: Resource, /) -> None:
        """Create the file, or replace one of ours. OSError if neither can be."""
        first = _line("run", _run_fields(resource))
        self._file = open_run_file(self.target, first, resource.host, child=resource.parent_pid is not None)
        self.target = self._file.path
        self._pid = resource.pid
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
            for piece in _pieces(batch):
                file.append(piece)
                marks = piece.count(b'{"type":"mark"')
                events = piece.count(b"\n")
                written += events
                self._marks += marks
                self._spans += events - marks
        except OSError as caught:
            error = caught
        lost = batch.count - written
        try:
            self._append_summary(file, batch)
        except OSError as caught:
            error = error or caught
        self._losses = tuple(batch.losses)
        self._lost = lost if batch.final else 0
        if error is not None:
            raise ExportError(_reason(error), lost, str(error)) from error

    def flush(self, deadline: float, /) -> bool:
        """Everything is written at once: nothing to do. The system writes it to the disk when it likes."""
        return True

    def close(self, deadline: float, /) -> bool:
        """Write the ``end`` line; False if it does not fit."""
        file, self._file = self._file, None
        if file is None:
            return True
        end = {
            "time": time.time_ns(),
            "duration_ns": time.monotonic_ns() - self._opened_ns,
            "spans": self._spans,
            "marks": self._marks,
            "lost": self._lost + sum(loss.count for loss in self._losses),
        }
        try:
            file.append(self._waiting + _line("end", end))
            file.close()
        except OSError:
            file.abandon()
            return False
        return True

    def _append_tables(self, file: RunFile, batch: Batch) -> None:
        """Threads and sites: said once, so they wait until there is room."""
        threads = (_line("thread", _thread_fields(thread, self._pid)) for thread in batch.threads)
        sites = (_line("site", _site_fields(site)) for site in batch.sites)
        lines = self._waiting + b"".join(threads) + b"".join(sites)
        self._waiting = lines if len(lines) <= _KEPT else self._waiting
        if lines:
            file.append(lines)
        self._waiting = b""

    def _append_summary(self, file: RunFile, batch: Batch) -> None:
        """What is cumulative: the next batch says it again if it does not fit."""
        losses = batch.losses if batch.final else [loss for loss in batch.losses if loss not in self._losses]
        lines = [_line("metric", _metric_fields(metric)) for metric in batch.metrics]
        lines += [_line("total", _total_fields(total)) for total in batch.totals]
        lines += [
            _line("loss", {"where": loss.where, "reason": loss.reason, "count": loss.count})
            for loss in losses
        ]
        if lines:
            file.append(b"".join(lines))


def _pieces(batch: Batch) -> Iterator[bytes]:
    """The batch's own lines, small chunks joined."""
    small: list[bytes] = []
    size = 0
    for lines in batch.lines():
        small.append(lines)
        size += len(lines)
        if size >= _PIECE:
            yield b"".join(small)
            small, size = [], 0
    if small:
        yield b"".join(small)


def _reason(error: OSError) -> str:
    return "disk_full" if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else "write_error"


# ------------------------------------------------------------------ lines


def _line(kind: str, fields: Mapping[str, Any]) -> bytes:
    text = json.dumps(
        {"type": kind, **{key: _plain(value) for key, value in fields.items()}},
        ensure_ascii=False,
        allow_nan=False,
        separators=(",", ":"),
        default=str,
    )
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


def _run_fields(resource: Resource) -> dict[str, Any]:
    fields = {
        "schema": SCHEMA,
        "run_id": resource.run_id,
        "rank": resource.rank,
        "pid": resource.pid,
        "host": resource.host,
        "argv": resource.argv,
        "versions": resource.versions,
        "git_commit": resource.git_commit,
        "labels": resource.labels,
        "clock": resource.clock,
        "config": resource.config,
        "collectors": resource.collectors,
    }
    return fields if resource.parent_pid is None else fields | {"parent_pid": resource.parent_pid}


def _thread_fields(thread: Thread, pid: int) -> dict[str, Any]:
    return {"pid": pid, "tid": thread.tid, "name": thread.name}


def _site_fields(site: SiteInfo) -> dict[str, Any]:
    return {"name": site.name, "kind": site.kind, "scope": site.scope, "file": site.file, "line": site.line}


def _metric_fields(metric: Metric) -> dict[str, Any]:
    return {
        "kind": metric.kind,
        "name": metric.name,
        "labels": metric.labels,
        "time": metric.time,
        "count": metric.count,
        "sum": metric.sum,
        "min": metric.min,
        "max": metric.max,
        "last": metric.last,
    }


def _total_fields(total: Total) -> dict[str, Any]:
    ended = total.count > 0
    return {
        "path": total.path,
        "name": total.name,
        "kind": total.kind,
        "by": total.by,
        "count": total.count,
        "errors": total.errors,
        "open": total.open,
        "sum_ns": total.sum_ns,
        "self_ns": total.self_ns,
        "min_ns": total.min_ns if ended else None,
        "max_ns": total.max_ns if ended else None,
        "p50_ns": round(total.p50_ns) if ended else None,
        "p90_ns": round(total.p90_ns) if ended else None,
        "p99_ns": round(total.p99_ns) if ended else None,
        "histogram": total.histogram,
        "measured": total.measured,
        "measures": total.measures,
    }
