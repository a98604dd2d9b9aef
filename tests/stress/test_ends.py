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


def test_a_fork_inside_a_child_of_multiprocessing_delivers_when_it_exits(tmp_path):
    subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM], cwd=tmp_path, check=True, timeout=120)
    found = {}
    for path in tmp_path.glob("run.*.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert lines[-1]["type"] == "end"
        (name,) = {line["name"] for line in lines if line["type"] == "span"}
        found[name] = lines[-1]["spans"]
    assert found == {"child": 100, "grandchild": 100}
