"""A real program, recorded and reported: the report's numbers are what the file's spans sum to."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections import defaultdict

import pytest

PROGRAM = """
    import os, random, sys, threading, time
    import instrument

    @instrument.kernel(flops=lambda n: 2.0 * n, bytes=lambda n: 4.0 * n)
    def work(n):
        if n % 50 == 7:
            raise ValueError(n)
        return sum(range(n))

    def tree(depth):
        with instrument.region("tree", depth=depth):
            return 1 if depth == 0 else tree(depth - 1) + tree(depth - 1)

    def loop(seed):
        draw = random.Random(seed)
        for number in range(60):
            with instrument.step(number):
                with instrument.region("a/b", batch=number % 3):
                    try:
                        work(draw.randrange(200))
                    except ValueError:
                        pass
                tree(3)

    threads = [threading.Thread(target=loop, args=(seed,)) for seed in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    if "killed" in sys.argv:
        time.sleep(0.5)  # several turns of the drain
        os.kill(os.getpid(), 9)
"""


def recorded(folder, *arguments):
    (folder / "app.py").write_text(textwrap.dedent(PROGRAM))
    done = subprocess.run(
        [sys.executable, "-m", "instrument", "run", "app.py", *arguments], cwd=folder, capture_output=True
    )
    lines = [json.loads(line) for line in (folder / "run.jsonl").read_text().splitlines()]
    return done.returncode, lines


def summed(lines):
    """Per path: count, errors, total, self, flops, from the span lines alone."""
    spans = [line for line in lines if line["type"] == "span"]
    below = defaultdict(int)
    for span in spans:
        below[span.get("parent")] += span["dur"]
    sums = defaultdict(lambda: [0, 0, 0, 0, 0.0])
    for span in spans:
        row = sums[span["path"]]
        row[0] += 1
        row[1] += span.get("status") == "error"
        row[2] += span["dur"]
        row[3] += span["dur"] - below[span["id"]]
        row[4] += span.get("measures", {}).get("flops", 0.0)
    return dict(sums)


def reported(folder, *options):
    done = subprocess.run(
        [sys.executable, "-m", "instrument", "report", "run.jsonl", "--json", *options],
        cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    return json.loads(done.stdout)


def rows(report):
    keys = ("count", "errors", "total_ns", "self_ns")
    return {
        row["path"]: [*(row[key] for key in keys), row["measures"].get("flops", 0.0)]
        for row in report["paths"]
        if "by" not in row and row["count"]
    }


def test_totals_equal_what_the_spans_sum_to(tmp_path):
    code, lines = recorded(tmp_path)
    assert code == 0
    report = reported(tmp_path)
    assert report["files"][0]["numbers_from"] == "totals"
    assert report["losses"] == []
    sums = summed(lines)
    assert rows(report) == sums
    assert sums["step"][0] == 240
    assert sums["step/a%2Fb/work"][1] > 0
    work = next(row for row in report["paths"] if row["name"] == "work")
    assert work["gflops_per_s"] == pytest.approx(sums["step/a%2Fb/work"][4] / sums["step/a%2Fb/work"][2])


def test_a_program_that_was_killed_is_reported_from_its_spans(tmp_path):
    code, lines = recorded(tmp_path, "killed")
    assert code == -signal.SIGKILL
    report = reported(tmp_path)
    assert report["files"][0]["numbers_from"] == "spans"
    assert not report["files"][0]["ended"]
    assert rows(report) == summed(lines)
    assert rows(report)["step"][0] == 240
    assert any("has no end" in note for note in report["notes"])


def test_both_ways_give_the_same_percentiles(tmp_path):
    recorded(tmp_path)
    keys = ("path", "count", "p50_ns", "p90_ns", "p99_ns", "min_ns", "max_ns", "measured", "measures")
    whole = [[row[key] for key in keys] for row in reported(tmp_path)["paths"]]
    path = tmp_path / "run.jsonl"
    kept = [
        line for line in path.read_bytes().splitlines(keepends=True) if not line.startswith(b'{"type":"end"')
    ]
    os.truncate(path, len(b"".join(kept)))
    report = reported(tmp_path)
    assert report["files"][0]["numbers_from"] == "spans"
    assert [[row[key] for key in keys] for row in report["paths"]] == whole


def test_a_split_by_attribute_adds_up_to_its_path(tmp_path):
    _, lines = recorded(tmp_path)
    report = reported(tmp_path, "--by", "batch")
    split = {row["by"]["batch"]: row["total_ns"] for row in report["paths"] if "by" in row}
    wanted = defaultdict(int)
    for line in lines:
        if line["type"] == "span" and "batch" in line.get("attrs", {}):
            wanted[str(line["attrs"]["batch"])] += line["dur"]
    assert split == wanted
    assert sum(split.values()) == rows(report)["step/a%2Fb"][2]
