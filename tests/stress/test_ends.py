"""Ends of processes that the stress found."""

import json
import subprocess
import sys

PROGRAM = """
import multiprocessing, os, sys, instrument

def record(name):
    for _ in range(100):
        with instrument.region(name): pass

def child():
    record("child")
    pid = os.fork()
    if pid == 0:
        record("grandchild")
        sys.exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

instrument.start(export="json:run.jsonl", interval=0.5)
process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join()
assert process.exitcode == 0
"""


def run(program, folder):
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], cwd=folder, check=True, timeout=120)


def test_a_fork_inside_a_child_of_multiprocessing_delivers_when_it_exits(tmp_path):
    run(PROGRAM, tmp_path)
    found = {}
    for path in tmp_path.glob("run.*.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert lines[-1]["type"] == "end"
        (name,) = {line["name"] for line in lines if line["type"] == "span"}
        found[name] = lines[-1]["spans"]
    assert found == {"child": 100, "grandchild": 100}


INHERITED_CALL = """
import os, time, instrument
from instrument import lifecycle, sessions

def ends_well(pid):
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

def inherit(self, original=sessions.Session.inherit):
    lifecycle._first_record()  # the call that the child's first record asked for, made in the grandchild
    time.sleep(0.2)
    original(self)

instrument.start(export="json:run.jsonl")
if pid := os.fork():
    ends_well(pid)
else:
    sessions.Session.inherit = inherit
    if pid := os.fork():
        ends_well(pid)
    else:
        with instrument.region("grandchild"): pass
        assert instrument.stop(60).delivered
    os._exit(0)
"""


def test_a_first_record_that_a_fork_overtakes_does_not_open_a_second_file(tmp_path):
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", INHERITED_CALL], cwd=tmp_path, check=True, timeout=120
    )
    (path,) = tmp_path.glob("run.*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["name"] for line in lines if line["type"] == "span"] == ["grandchild"]
    assert lines[-1]["type"] == "end"
