"""Trace events: what each record of ours becomes in the Trace Event Format.

What
    Functions that answer one event as JSON text, and :class:`Dialect`: what differs between the form for
    timeline viewers and the one that torch.profiler writes.
Why
    Readers keep ``ts`` as a double of microseconds. A Unix time in that unit is exact to a quarter of a
    microsecond only, which moves children out of their parents; a time since the beginning of the
    quarter-year, as torch's Kineto has it, is exact to the nanosecond.
How
    Here is every event's shape; ``_chrome.c`` writes the same for the lines that come in millions, and hands
    the others over.
"""

import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from instrument.records import Loss, Metric, Resource, Thread

__all__ = [
    "CHROME",
    "DEVICE_TRACKS",
    "KINETO",
    "Dialect",
    "async_events",
    "base_of",
    "complete_event",
    "counter_events",
    "device_event",
    "device_track",
    "device_track_events",
    "end_event",
    "loss_event",
    "mark_event",
    "process_events",
    "read",
    "thread_events",
    "to_json",
]

QUARTER_NS: Final = 7_889_238 * 10**9
"""What Kineto takes for a quarter of a year. With the same one, traces of both lie on one time axis."""

DEVICE_TRACKS: Final = 1 << 24
"""Thread ids from here on are streams of devices; Linux gives none above 2**22."""
STREAMS: Final = 1 << 12
"""Streams of one device."""

_WANTED: Final = {
    "span": (("start", "dur", "tid"), ("id", "name", "kind")),
    "mark": (("time", "tid"), ("name",)),
}
_CARRIED: Final = ("step", "weight", "status", "error", "flags", "attrs", "measures")


@dataclass(frozen=True, slots=True)
class Dialect:
    """What differs between the two forms of a trace."""

    name: str
    categories: Mapping[str, str]
    """By kind of span."""
    profiler_steps: bool
    """Steps are called ``ProfilerStep#N``."""

    def category(self, kind: str) -> str:
        """What stands in ``cat``."""
        return self.categories.get(kind, kind)

    def in_c(self) -> tuple[bytes, bytes, bytes, bytes]:
        """For :class:`instrument_exporters._chrome.Converter`."""
        region, kernel, step, mark = (
            to_json(self.category(kind)).encode() for kind in ("region", "kernel", "step", "mark")
        )
        return region, kernel, step, mark


CHROME: Final = Dialect("chrome", {}, profiler_steps=False)
KINETO: Final = Dialect(
    "kineto",
    {"region": "user_annotation", "step": "user_annotation", "kernel": "cpu_op", "mark": "cpu_instant_event"},
    profiler_steps=True,
)


def base_of(resource: Resource) -> int:
    """Unix ns that a trace counts from."""
    started = int(resource.clock.get("wall_ns", 0))
    return started // QUARTER_NS * QUARTER_NS


# ------------------------------------------------------------------ spans and marks


def read(line: bytes) -> dict[str, Any]:
    """A span or mark line of the run file, in any spelling. ValueError if it is none."""
    try:
        record = json.loads(line, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(record, dict) or record.get("type") not in ("span", "mark"):
        raise ValueError("not a span or mark")
    numbers, texts = _WANTED[record["type"]]
    if not all(type(record.get(name)) is int for name in numbers):
        raise ValueError("a number is missing")
    if not all(isinstance(record.get(name), str) for name in texts):
        raise ValueError("a text is missing")
    if record.get("dur", 0) < 0:
        raise ValueError("it ends before it starts")
    for name in ("attrs", "measures"):
        if not isinstance(record.get(name, {}), dict):
            raise ValueError(f"{name} is not an object")
    return record


def complete_event(record: Mapping[str, Any], dialect: Dialect, base: int, pid: int) -> str:
    """A span that has a place on its thread's track."""
    name, args = _span(record, dialect)
    times = f'"ts":{_us(record["start"] - base)},"dur":{_us(record["dur"])}'
    return _event("X", name, dialect.category(record["kind"]), times, pid, record["tid"], args)


def async_events(
    record: Mapping[str, Any], dialect: Dialect, base: int, pid: int, lane: str
) -> tuple[str, str]:
    """A span beside its thread's track: begin and end of one on the track ``lane``."""
    name, args = _span(record, dialect)
    for key in ("parent", "task"):
        if record.get(key) is not None:
            args[key] = record[key]
    category, tid, start = dialect.category(record["kind"]), record["tid"], record["start"] - base
    extra = f',"id":{to_json(lane)}'
    begin = _event("b", name, category, f'"ts":{_us(start)}', pid, tid, args, extra)
    end = _event("e", name, category, f'"ts":{_us(start + record["dur"])}', pid, tid, {}, extra)
    return begin, end


def mark_event(record: Mapping[str, Any], dialect: Dialect, base: int, pid: int) -> str:
    """An instant."""
    args = {key: record[key] for key in ("parent", *_CARRIED) if record.get(key) is not None}
    times = f'"ts":{_us(record["time"] - base)}'
    return _event("i", record["name"], dialect.category("mark"), times, pid, record["tid"], args, ',"s":"t"')


def _span(record: Mapping[str, Any], dialect: Dialect) -> tuple[str, dict[str, Any]]:
    """Name and arguments."""
    name, step = record["name"], record.get("step")
    args = {key: record[key] for key in ("id", *_CARRIED) if record.get(key) is not None}
    if dialect.profiler_steps and record["kind"] == "step" and step is not None:
        args["name"], name = name, f"ProfilerStep#{step}"
    return name, args


# ------------------------------------------------------------------ devices


def device_track(record: Mapping[str, Any]) -> int | None:
    """The thread id under which a span's device time is shown; None if it has none that can be placed.

    Where on the device's time axis it lies is known only with ``queue_ns``, from the span's start to the
    device's.
    """
    measures = record.get("measures") or {}
    if not all(_is_number(measures.get(name)) for name in ("device_ns", "queue_ns")):
        return None
    device, stream = _device(measures)
    return DEVICE_TRACKS + device * STREAMS + stream


def device_event(
    record: Mapping[str, Any], dialect: Dialect, base: int, pid: int, track: int
) -> tuple[str, int, int]:
    """What a span's work took on its device: the event, its start and its end (Unix ns).

    A kernel's is a ``kernel``, with the stream among its arguments; a region's, which holds those of its
    kernels, is a ``gpu_user_annotation``, as torch's profiler calls them.
    """
    measures = record["measures"]
    device, stream = _device(measures)
    start, dur = record["start"] + round(measures["queue_ns"]), max(round(measures["device_ns"]), 0)
    args: dict[str, Any] = {"id": record["id"]}
    category = "gpu_user_annotation"
    if record["kind"] == "kernel":
        category = "kernel"
        args |= {"device": device, "stream": stream}
    name, _ = _span(record, dialect)
    times = f'"ts":{_us(start - base)},"dur":{_us(dur)}'
    return _event("X", name, category, times, pid, track, args), start, start + dur


def _device(measures: Mapping[str, Any]) -> tuple[int, int]:
    device, stream = (measures.get(name, 0) for name in ("device", "stream"))
    return int(device) if _is_number(device) else 0, int(stream) % STREAMS if _is_number(stream) else 0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


# ------------------------------------------------------------------ what else there is


def process_events(resource: Resource, dialect: Dialect, base: int, pid: int, order: int) -> list[str]:
    """Who recorded: name and place of the process, and all that the run file's first line says."""
    program = os.path.basename(resource.argv[0]) if resource.argv and resource.argv[0] else "python"
    title = program if resource.rank is None else f"{program} (rank {resource.rank})"
    place = order if resource.rank is None else resource.rank
    about = resource.as_line() | {"base_time_ns": base, "unit": "us", "dialect": dialect.name}
    del about["type"]
    return [
        _metadata("instrument", pid, pid, about),  # the first: it tells our files from others'
        _metadata("process_name", pid, pid, {"name": title}),
        _metadata("process_labels", pid, pid, {"labels": f"{resource.host} pid {resource.pid}"}),
        _metadata("process_sort_index", pid, pid, {"sort_index": place}),
    ]


def thread_events(thread: Thread, pid: int, name: str, order: int) -> list[str]:
    """Name and place of a thread."""
    return [
        _metadata("thread_name", pid, thread.tid, {"name": name}),
        _metadata("thread_sort_index", pid, thread.tid, {"sort_index": order}),
    ]


def device_track_events(pid: int, track: int) -> list[str]:
    """Name and place of a stream, below the threads."""
    device, stream = divmod(track - DEVICE_TRACKS, STREAMS)
    return [
        _metadata("thread_name", pid, track, {"name": f"device {device} stream {stream}"}),
        _metadata("thread_sort_index", pid, track, {"sort_index": track}),
    ]


def counter_events(metric: Metric, before: Metric | None, base: int, pid: int) -> list[str]:
    """A series as a counter; ``before`` is what it said last.

    Counts show their total, gauges their value, observations the mean since ``before`` and how many there
    were. What is not finite cannot be drawn, and is left out.
    """
    labels = ",".join(f"{key}={value}" for key, value in metric.labels.items())
    name = f"{metric.name}{{{labels}}}" if labels else metric.name
    points: list[tuple[str, str, float]] = []
    if metric.kind == "count":
        points.append((name, "total", metric.sum))
    elif metric.kind == "gauge":
        points.append((name, "value", metric.last))
    else:
        count = metric.count - (before.count if before else 0)
        if count > 0:
            points.append((name, "mean", (metric.sum - (before.sum if before else 0)) / count))
        points.append((f"{name} observations", "total", metric.count))
    times = f'"ts":{_us(metric.time - base)}'
    return [
        _event("C", title, "metric", times, pid, pid, {key: value})
        for title, key, value in points
        if _is_number(value)
    ]


def loss_event(loss: Loss, time: int, base: int, pid: int) -> str:
    """Something was lost by now."""
    args = {"where": loss.where, "reason": loss.reason, "count": loss.count}
    name = f"lost: {loss.where} {loss.reason}"
    return _event("i", name, "instrument", f'"ts":{_us(time - base)}', pid, pid, args, ',"s":"p"')


def end_event(pid: int, about: Mapping[str, Any]) -> str:
    """The last word of a process: without it the trace is cut off."""
    return _metadata("instrument_end", pid, pid, about)


# ------------------------------------------------------------------ JSON


def _metadata(name: str, pid: int, tid: int, args: Mapping[str, Any]) -> str:
    return f'{{"ph":"M","name":{to_json(name)},"pid":{pid},"tid":{tid},"args":{to_json(args)}}}'


def _event(
    ph: str,
    name: str,
    category: str,
    times: str,
    pid: int,
    tid: int,
    args: Mapping[str, Any],
    extra: str = "",
) -> str:
    return (
        f'{{"ph":"{ph}"{extra},"name":{to_json(name)},"cat":{to_json(category)},{times},'
        f'"pid":{pid},"tid":{tid},"args":{to_json(args)}}}'
    )


def _us(ns: int) -> str:
    """Nanoseconds as microseconds, exactly."""
    whole, rest = divmod(abs(ns), 1000)
    return f"{'-' if ns < 0 else ''}{whole}.{rest:03}"


def to_json(value: Any) -> str:
    """As JSON that Perfetto reads; what JSON does not know, as its ``str``.

    Perfetto (v52) gives up on a whole trace at two things that are good JSON: a text that ends in a
    backslash, and, beside an escaped quote, half of a surrogate pair as an escape. So the last backslash is
    written by its number, characters as they are, and a lone half as U+FFFD.
    """
    text = json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=str)
    if '\\\\"' in text:
        text = _TEXT.sub(_last_backslash, text)
    if not text.isascii():
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


_TEXT: Final = re.compile(r'"(?:[^"\\]|\\.)*"')


def _last_backslash(found: re.Match[str]) -> str:
    text = found[0]
    return f'{text[:-3]}\\u005c"' if text.endswith('\\\\"') else text


def _plain(value: Any) -> Any:
    """With NaN and the infinities, which JSON cannot say, as strings, and every key a string."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _refuse(word: str) -> float:
    raise ValueError(f"{word} is not JSON")
