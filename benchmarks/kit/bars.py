"""The bars that DESIGN sets, as ratios within one run."""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import instrument
from instrument.recorder import _core
from kit.measure import Figure

Costs = Mapping[str, float]
"""What something costs, by name."""
Figures = Mapping[str, Figure]
"""ns per call, by case."""


@dataclass(frozen=True)
class Bar:
    """One promise, and how it was kept. `value` is None when this run could not measure it."""

    what: str
    relation: str
    bar: float
    stretch: float
    value: float | None
    why: str = ""

    def kept(self, limit: float) -> bool:
        """Whether the value is on the right side of a limit."""
        assert self.value is not None
        return self.value <= limit if self.relation == "<=" else self.value >= limit

    @property
    def verdict(self) -> str:
        """In a word."""
        if self.value is None:
            return "unmeasured"
        return "stretch" if self.kept(self.stretch) else "met" if self.kept(self.bar) else "MISSED"

    def line(self) -> str:
        """In a line."""
        if self.value is None:
            return f"unmeasured  {self.what} ({self.why})"
        return (
            f"{self.verdict:10}  {self.what}: {self.value:.3g} "
            f"(bar {self.relation} {self.bar:g}, stretch {self.stretch:g})"
        )

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self) | {"verdict": self.verdict}


def evaluate(
    alone: float, off: Figures, on: Figures, sizes: Costs, writer: Costs, missing: Mapping[str, str]
) -> list[Bar]:
    """Every bar of DESIGN section 5. `alone` is what a kernel adds before any peer is loaded."""
    found: list[Bar] = []

    def bar(
        what: str, relation: str, limits: tuple[float, float], value: Callable[[], float], needs: str = ""
    ) -> None:
        try:
            found.append(Bar(what, relation, *limits, value()))
        except KeyError as error:
            why = missing.get(needs, f"no figure for {error}")
            found.append(Bar(what, relation, *limits, None, f"{needs}: {why}" if needs else why))

    empty, region, limit, added = "with, empty C type", "region", "C limit", "kernel, added"
    bar("recording region / empty with on a C type", "<=", (1.1, 0.85), lambda: on[region].over(on[empty]))
    if _core.HOOKS_IN_PLACE:
        bar("kernel recording, added / C limit", "<=", (2.6, 1.6), lambda: on[added].over(on[limit]))
    else:
        bar("kernel recording, added, ns", "<=", (110, 60), lambda: alone)
        if "torch" in sys.modules:
            label = "kernel recording, added, torch loaded, ns"
            bar(label, "<=", (200, 60), lambda: on[added].median)
    for case, label, limits, peer in (
        ("nvtx.annotate, new", "nvtx.annotate, new, no tool / recording region", (6, 8), "nvtx"),
        (
            "torch record_function, profiler off", "torch record_function, profiler off / recording region",
            (80, 120), "torch",
        ),
        (
            "OpenTelemetry, batch", "OpenTelemetry span, batch / recording region",
            (150, 250), "opentelemetry-sdk",
        ),
    ):  # fmt: skip
        bar(label, ">=", limits, lambda case=case: on[case].over(on[region]), peer)  # type: ignore[misc]
    bar("region off / empty with on a C type", "<=", (0.7, 0.5), lambda: off[region].over(off[empty]))
    if _core.HOOKS_IN_PLACE:
        # The bar on 3.12 is nothing at all; what is below 1 ns is the measurement's own uncertainty.
        limits = (6.0, 6.0) if sys.version_info >= (3, 13) else (1.0, 1.0)
        bar(
            "kernel off after a session, added, ns", "<=", limits, lambda: statistics.median(off[added].costs)
        )
    bar("bytes per event, plain", "<=", (32, 32), lambda: math.floor(sizes["plain"]))
    bar("bytes per event, 2 attributes", "<=", (64, 48), lambda: math.floor(sizes["2 attributes"]))
    bar(
        "JSON lines: dicts + orjson / C writer", ">=", (6, 9),
        lambda: writer["dicts + orjson"] / writer["C writer"], "orjson",
    )  # fmt: skip
    return found


def event_sizes() -> dict[str, float]:
    """Bytes that a span takes in a chunk, from how many fit into one."""
    sizes = {}
    chunk = 1 << 20
    for name, attrs in (
        ("plain", {}), ("1 attribute", {"a": 1}), ("2 attributes", {"a": 1, "b": 2.5}),
        ("3 attributes", {"a": 1, "b": 2.5, "c": True}), ("text of 8 bytes", {"a": "8 bytes."}),
    ):  # fmt: skip
        _core.start(chunk_bytes=chunk)
        for _ in range(chunk // 16):
            with instrument.region("size", **attrs):
                pass
        sizes[name] = chunk / _core.take()[0].count
        _core.stop()
        _core.take()
    return sizes


def writer_costs(spans: int = 50_000, rounds: int = 7) -> dict[str, float]:
    """ns per line of the run file: our C writer, orjson over dicts, and the standard library over dicts."""
    _core.start()
    for _ in range(spans):
        with instrument.region("x"):
            pass
    chunks = _core.take()
    total = sum(chunk.count for chunk in chunks)
    names = {index: _core.path(index) for index in range(1, _core.path_count())}

    def in_c() -> None:
        for chunk in chunks:
            chunk.jsonl(0)

    decoded = [chunk.decode() for chunk in chunks]  # not timed: it is ours, and the others have their own

    def dicts(dumps: Callable[[object], bytes]) -> None:
        for rows in decoded:
            lines = []
            for row in rows:
                id_, path, start, end = row[0], row[3], row[4], row[5]
                name, kind, text, _, _ = names[path]
                line = {
                    "type": "span", "id": f"{id_:016x}", "name": name, "kind": kind, "path": text,
                    "start": start, "dur": end - start, "pid": 1, "tid": 1,
                }  # fmt: skip
                lines.append(dumps(line))
            b"\n".join(lines)

    ways: dict[str, Callable[[], None]] = {"C writer": in_c}
    try:
        import orjson

        ways["dicts + orjson"] = lambda: dicts(orjson.dumps)
    except ImportError:
        pass
    ways["dicts + json"] = lambda: dicts(lambda line: json.dumps(line).encode())
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            start = time.process_time_ns()
            way()
            times[name].append((time.process_time_ns() - start) / total)
    _core.stop()
    return {name: statistics.median(taken) for name, taken in times.items()}
