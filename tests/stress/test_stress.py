"""Threads, forks, starts and stops at random: all processes end, and each file tells the truth."""

import gzip
import json
import random
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("program.py")
LOST = {"buffer_full", "overwritten", "depth"}  # reasons of the recorder that mean a span or mark is missing
NUMBERS = {"id", "parent", "start", "dur", "pid", "tid", "task", "step", "weight"}


def refuse(token):
    raise ValueError(f"{token} is not JSON")


class File:
    """One process's run file of one session, checked while it is read."""

    def __init__(self, path):
        self.path = path
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        assert data.endswith(b"\n"), path
        lines = [json.loads(line, parse_constant=refuse) for line in data.splitlines()]
        assert lines[0]["type"] == "run"
        assert [line["type"] for line in lines].count("end") == 1, path.name
        assert lines[-1]["type"] == "end", path.name
        self.pid = lines[0]["pid"]
        self.round = int(path.name.partition(".")[0])
        self.spans = [line for line in lines if line["type"] == "span"]
        self.marks = [line for line in lines if line["type"] == "mark"]
        self.totals = [line for line in lines if line["type"] == "total"]
        losses = [line for line in lines if line["type"] == "loss"]
        self.losses = {(line["where"], line["reason"]): line["count"] for line in losses}
        self.lost = sum(
            count for (where, reason), count in self.losses.items() if where != "recorder" or reason in LOST
        )
        assert not {reason for _, reason in self.losses} & {"error", "write_error"}, self.losses
        series = {json.dumps([m["name"], m["labels"]]): m for m in lines if m["type"] == "metric"}
        self.counted = sum(m["sum"] for m in series.values() if m["name"] == "counted")
        end = lines[-1]
        assert (end["spans"], end["marks"]) == (len(self.spans), len(self.marks))
        assert end["lost"] == sum(self.losses.values())
        self.threads = {line["tid"] for line in lines if line["type"] == "thread"}

    def check_spans(self):
        by_id = {span["id"]: span for span in self.spans}
        assert len(by_id) == len(self.spans), "an id twice"
        for item in (*self.spans, *self.marks):
            parent = by_id.get(item.get("parent"))
            assert item["pid"] == self.pid
            assert item["tid"] in self.threads
            if "parent" not in item:
                assert item["path"].removeprefix("(overflow)/").find("/") < 0, f"{self.path.name}: {item}"
            elif parent is None:
                assert self.lost, f"the parent of {item} is missing, and nothing is lost"
            else:
                assert parent["tid"] == item["tid"]
                start, end = item.get("start", item.get("time")), item.get("dur", 0)
                assert parent["start"] <= start
                assert start + end <= parent["start"] + parent["dur"]
                assert follows(item, parent)
        for span in self.spans:
            assert re.fullmatch("[0-9a-f]{16}", span["id"])
            assert span["dur"] >= 0
            assert span["kind"] in ("region", "kernel", "step")
            assert span["path"].split("/")[-1] == span["name"]
            assert span.get("status", "ok") in ("ok", "error")
            assert (span.get("error") is not None) == (span.get("status") == "error")
            assert set(span.get("flags", ())) <= {"unfinished"}

    def check_totals(self):
        """They are exact, whatever was lost: so what was delivered and lost adds up to them."""
        if self.losses.get(("recorder", "memory")):
            return
        ended = Counter()
        for total in self.totals:
            ended[total["path"]] += total["count"] + total["open"]
        spans = Counter(span["path"] for span in self.spans)
        if not self.lost:
            assert spans == +ended, self.path.name
        missing = sum(ended.values()) - len(self.spans)
        assert 0 <= missing <= self.lost, f"{self.path.name}: {missing} missing, {self.losses}"


def follows(item, parent):
    """Whether the path is the parent's and the name, or a fold of recursion, or beyond the cap."""
    path = item["path"]
    return (
        path == f"{parent['path']}/{item['name']}"
        or path.startswith("(overflow)")
        or path.split("/").count(item["name"]) >= 7
    )


def stress(folder, seed, seconds):
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder), str(seed), str(seconds)],
        capture_output=True,
        text=True,
        timeout=seconds + 240,
        check=False,
    )
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr[-10_000:]}"
    assert "Traceback" not in done.stderr, done.stderr[-10_000:]
    return done.stdout


def check(folder):
    made = {}
    for path in folder.glob("*.made.json"):
        number, pid, *_ = path.name.split(".")
        made[int(number), int(pid)] = json.loads(path.read_text())
    seen, ids, parents, children = {}, set(), 0, 0
    for path in folder.glob("*.jsonl*"):
        file = File(path)
        assert (file.round, file.pid) not in seen, "a process has two files of one session"
        file.check_spans()
        file.check_totals()
        new = {span["id"] for span in file.spans}
        assert not new & ids, "two processes or sessions share an id"
        ids |= new
        known = made.pop((file.round, file.pid), None)
        if known is not None:
            found = len(file.spans) + len(file.marks) + file.lost
            assert found == known.get("spans", 0) + known.get("marks", 0), (path, file.losses, known)
            if not file.losses.get(("recorder", "metrics")):
                assert file.counted == known.get("counted", 0)
        seen[file.round, file.pid] = len(new)
        is_child = not re.fullmatch(r"\d+\.jsonl(\.gz)?", path.name)
        children += is_child
        parents += not is_child
    assert not any(counts.get("spans") for counts in made.values()), f"no file for {made}"
    assert parents
    return parents, children, len(ids)


def run(folder, seconds):
    seed = random.SystemRandom().getrandbits(32)
    said = f"seed {seed}"  # in every failure: stress(folder, seed, seconds) runs it again
    try:
        said += f": {stress(folder, seed, seconds).strip()}"
        parents, children, spans = check(folder)
        said += f", {parents} files, {children} of children, {spans} spans"
    finally:
        sys.stdout.write(said + "\n")
    assert spans > 1000


def test_five_seconds_of_everything_at_once_lose_nothing_uncounted(tmp_path):
    run(tmp_path, 5)


@pytest.mark.slow
def test_a_minute_of_everything_at_once_loses_nothing_uncounted(tmp_path):
    run(tmp_path, 60)
