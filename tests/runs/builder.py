"""Run files made by hand, and what their spans add up to, worked out independently of the code under test."""

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

WALL = 1_700_000_000_000_000_000
HOST = "box"


class RunBuilder:
    """Collects lines as the recorder would write them. Times in ns; spans are numbered from 1."""

    def __init__(self, pid: int = 100, **fields: Any) -> None:
        self.pid = pid
        self.lines: list[dict[str, Any]] = []
        self.spans: list[dict[str, Any]] = []
        self.lost = 0
        self._clock = WALL
        self._next = pid << 32
        self.add(
            "run",
            **{
                "schema": 1,
                "run_id": "r1",
                "rank": None,
                "pid": pid,
                "host": HOST,
                "argv": ["train.py", "--epochs", "3"],
                "versions": {"python": "3.11.7", "instrument": "0.1.0"},
                "git_commit": None,
                "labels": {},
                "clock": {"monotonic_ns": 1000, "wall_ns": WALL, "source": "tsc"},
                "config": {},
                "collectors": [],
                **fields,
            },
        )

    def add(self, kind: str, /, **fields: Any) -> None:
        self.lines.append({"type": kind, **fields})

    def new_id(self) -> str:
        self._next += 1
        return f"{self._next:016x}"

    def span(self, path: str, dur: int, *, parent: str | None = None, **fields: Any) -> str:
        """A span that ended; children are added before their parent, whose id new_id() gives."""
        ident = fields.pop("id", None) or self.new_id()
        line: dict[str, Any] = {"id": ident}
        if parent:
            line["parent"] = parent
        name = path.rpartition("/")[2].replace("%2F", "/").replace("%25", "%")
        line |= {"name": name, "kind": fields.pop("kind", "region"), "path": path}
        line |= {"start": fields.pop("start", self._clock), "dur": dur}
        line |= {"pid": self.pid, "tid": fields.pop("tid", self.pid)}
        for key in ("task", "step", "weight", "status", "error", "flags", "attrs", "measures"):
            if key in fields:
                line[key] = fields.pop(key)
        assert not fields
        self._clock += 10
        self.add("span", **line)
        self.spans.append(line)
        return ident

    def sums(self) -> dict[str, dict[str, float]]:
        """Per path: count, errors, sum_ns, self_ns, flops; by the ids of parents, in plain loops."""
        below: dict[tuple[str, int, Any], int] = defaultdict(int)
        for span in self.spans:
            if "unfinished" not in span.get("flags", ()):
                below[span.get("parent"), span["tid"], span.get("task")] += span["dur"]
        sums: dict[str, dict[str, float]] = {}
        for span in self.spans:
            if "unfinished" in span.get("flags", ()):
                continue
            row = sums.setdefault(
                span["path"], {"count": 0, "errors": 0, "sum_ns": 0, "self_ns": 0, "flops": 0, "measured": 0}
            )
            row["count"] += 1
            row["errors"] += span.get("status") == "error"
            row["sum_ns"] += span["dur"]
            row["self_ns"] += max(span["dur"] - below[span["id"], span["tid"], span.get("task")], 0)
            row["flops"] += span.get("measures", {}).get("flops", 0)
            row["measured"] += "measures" in span
        return sums

    def totals(self) -> None:
        """A ``total`` line per path of the spans."""
        kinds = {span["path"]: (span["name"], span["kind"]) for span in self.spans}
        for path, row in self.sums().items():
            durations = sorted(
                s["dur"] for s in self.spans if s["path"] == path and "unfinished" not in s.get("flags", ())
            )
            name, kind = kinds[path]
            measured = [s["measures"] for s in self.spans if s["path"] == path and "measures" in s]
            names = {name for measures in measured for name in measures}
            measures = {key: sum(m.get(key, 0) for m in measured) for key in sorted(names)}
            self.total(
                path, name=name, kind=kind, durations=durations, self_ns=row["self_ns"],
                errors=row["errors"], measured=row["measured"], measures=measures,
            )  # fmt: skip

    def total(self, path: str, durations: list[int], **fields: Any) -> None:
        histogram: dict[int, int] = defaultdict(int)
        for ns in durations:
            low = int(f"{ns:b}"[:6].ljust(len(f"{ns:b}"), "0"), 2)  # five bits below the first stay
            histogram[low] += 1
        line = {
            "path": path,
            "name": path.rpartition("/")[2],
            "kind": "region",
            "by": {},
            "count": len(durations),
            "errors": 0,
            "open": 0,
            "sum_ns": sum(durations),
            "self_ns": sum(durations),
            "min_ns": min(durations, default=None),
            "max_ns": max(durations, default=None),
            "p50_ns": durations[len(durations) // 2] if durations else None,
            "p90_ns": durations[len(durations) * 9 // 10] if durations else None,
            "p99_ns": durations[len(durations) * 99 // 100] if durations else None,
            "histogram": sorted(map(list, histogram.items())),
            "measured": 0,
            "measures": {},
            **fields,
        }
        self.add("total", **line)

    def loss(self, reason: str, count: int, where: str = "recorder") -> None:
        self.lost += count
        self.add("loss", where=where, reason=reason, count=count)

    def metric(self, name: str, kind: str = "count", **fields: Any) -> None:
        line = {"kind": kind, "name": name, "labels": {}, "time": WALL, "count": 1, "sum": 1.0, "min": 1.0}
        self.add("metric", **{**line, "max": 1.0, "last": 1.0, **fields})

    def end(self, duration_ns: int = 2_000_000_000, **fields: Any) -> None:
        marks = sum(line["type"] == "mark" for line in self.lines)
        line = {"time": WALL + duration_ns, "duration_ns": duration_ns, "spans": len(self.spans)}
        self.add("end", **{**line, "marks": marks, "lost": self.lost, **fields})

    def data(self) -> bytes:
        return b"".join(as_line(line) for line in self.lines)

    def write(self, path: Path) -> Path:
        data = self.data()
        path.write_bytes(gzip.compress(data) if path.name.endswith(".gz") else data)
        return path


def as_line(line: dict[str, Any]) -> bytes:
    """As the recorder spells it."""
    return json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def small_run(steps: int = 5, *, totals: bool = True, pid: int = 100, **fields: Any) -> RunBuilder:
    """A run of some steps, with nested spans, attributes, measures and an error."""
    run = RunBuilder(pid, **fields)
    run.add("thread", pid=pid, tid=pid, name="MainThread")
    run.add("site", name="scores", kind="kernel", scope="", file="model.py", line=3)
    for number in range(steps):
        step, attention = run.new_id(), run.new_id()
        for dur in (3000, 5000 + number):
            run.span(
                "step/attention/scores", dur, parent=attention, kind="kernel", step=number,
                measures={"flops": 60000.0, "bytes": 1200.0},
            )  # fmt: skip
        run.span(
            "step/attention", 9000 + 7 * number, parent=step, id=attention, step=number,
            attrs={"batch": number % 2, "text": 'say "hi", {you}\n'},
        )  # fmt: skip
        failed = {"status": "error", "error": "ValueError"} if number == 2 else {}
        run.span("step/load", 40 + number, parent=step, step=number, **failed)
        run.span("step", 12000 + number, id=step, kind="step", step=number)
    run.add("mark", name="epoch", path="epoch", time=WALL + 5, pid=pid, tid=pid, attrs={"n": 1})
    run.metric("tokens", labels={"model": "a"}, count=5, sum=50.0, min=10.0, max=10.0, last=10.0)
    if totals:
        run.totals()
        run.end()
    return run
