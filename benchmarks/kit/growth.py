"""One point of one curve, in a process of its own: `python growth.py CURVE SIZE FOLDER` prints a JSON object.

A process each, so that a point's memory is its own and an early point warms up nothing for a later one.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import instrument
from instrument.recorder import _core

REPEAT = 200_000  # spans for a point whose size is not a number of spans
PIECE = 100_000  # spans between two looks at the recorder

Point = dict[str, float]


def peak_kib() -> int:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def some_spans(count: int) -> None:
    """Spans as in the fast benchmark: nothing inside them."""
    region = instrument.region
    for _ in range(count):
        with region("x"):
            pass


def write_run(count: int, target: Path, *, paced: bool) -> Point:
    """Record so many spans into a run file; `paced` waits for the exporter now and then: nothing is lost."""
    some_spans(1)
    before, session = peak_kib(), instrument.start(export=[f"json:{target}"])
    wall, cpu = time.perf_counter(), time.process_time()
    left = count
    while left > 0:
        some_spans(min(PIECE, left))
        left -= PIECE
        if paced:
            session.flush(60)
    summary = session.stop(120)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    size = target.stat().st_size
    unrecorded, undelivered = (
        sum(loss.count for loss in summary.losses if (loss.where == "recorder") is recorder)
        for recorder in (True, False)
    )
    return {
        "wall_s": wall,
        "cpu_ns_per_span": cpu / count * 1e9,
        "memory_mib": (peak_kib() - before) / 1024,
        "file_mib": size / 2**20,
        "bytes_per_span": size / max(1, summary.spans - undelivered),
        "lost": unrecorded + undelivered,
        "lost_by_recorder": unrecorded,
        "lost_by_exporter": undelivered,
    }


def spans(size: int, folder: Path) -> Point:
    """A run of so many spans, none lost."""
    return write_run(size, folder / "run.jsonl", paced=True)


def burst(size: int, folder: Path) -> Point:
    """The same without a pause: what the drain cannot keep up with is lost, and counted."""
    return write_run(size, folder / "run.jsonl", paced=False)


def _recorded(run: Callable[[], int]) -> Point:
    """Time `run`, which answers how many spans it made, with the recorder on and nothing exported."""
    _core.start()
    times = range(
        max(1, 10_000 // run())
    )  # small points are repeated, so that the clock is not what is timed
    _core.take()
    taken, total = 0, 0
    while total < REPEAT:
        start = time.process_time_ns()
        for _ in times:
            total += run()
        taken += time.process_time_ns() - start
        _core.take()
    _core.stop()
    used, _ = _core.memory()
    return {
        "cpu_ns_per_span": taken / total,
        "recorder_mib": used / 2**20,
        "paths": _core.path_count(),
        **{f"lost_{reason}": count for reason, count in _core.losses().items() if count},
    }


def names(size: int, _folder: Path) -> Point:
    """So many names in rotation."""
    wanted, region = [f"name {number}" for number in range(size)], instrument.region

    def run() -> int:
        for name in wanted:
            with region(name):
                pass
        return size

    return _recorded(run)


def paths(size: int, _folder: Path) -> Point:
    """Two levels of names, about so many pairs of them."""
    side, region = max(1, round(size**0.5)), instrument.region
    outer, inner = ([f"{level} {number}" for number in range(side)] for level in ("outer", "inner"))

    def run() -> int:
        for first in outer:
            with region(first):
                for second in inner:
                    with region(second):
                        pass
        return side + side * side

    return _recorded(run)


def depth(size: int, _folder: Path) -> Point:
    """A recursion so deep, a span at each level."""
    sys.setrecursionlimit(size + 200)
    region = instrument.region

    def down(left: int) -> None:
        with region("level"):
            if left > 1:
                down(left - 1)

    def run() -> int:
        down(size)
        return size

    return _recorded(run)


def threads(size: int, _folder: Path) -> Point:
    """So many threads, which share the work."""
    each = max(1, REPEAT // 4 // size)

    def run() -> int:
        several = [threading.Thread(target=some_spans, args=(each,)) for _ in range(size)]
        for thread in several:
            thread.start()
        for thread in several:
            thread.join()
        return each * size

    return _recorded(run)


def report(size: int, folder: Path) -> Point:
    """`instrument report` of a run of so many spans: time and memory of the command."""
    target = folder / "run.jsonl"
    write_run(size, target, paced=True)
    command = [sys.executable, "-m", "instrument", "report", str(target)]
    start = time.perf_counter()
    child = os.posix_spawn(
        sys.executable,
        command,
        dict(os.environ),
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
    )
    _, status, usage = os.wait4(child, 0)
    if status:
        raise RuntimeError(f"`instrument report` ended with {os.waitstatus_to_exitcode(status)}")
    return {
        "wall_s": time.perf_counter() - start,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "memory_mib": usage.ru_maxrss / 1024,
        "file_mib": target.stat().st_size / 2**20,
    }


CURVES: dict[str, Callable[[int, Path], Point]] = {
    "spans": spans,
    "burst": burst,
    "names": names,
    "paths": paths,
    "depth": depth,
    "threads": threads,
    "report": report,
}

if __name__ == "__main__":
    print(json.dumps(CURVES[sys.argv[1]](int(sys.argv[2]), Path(sys.argv[3]))))
