"""Forks, children of multiprocessing, and the end of the interpreter: each a program of its own."""

import json
import os
import re
import subprocess
import sys
import time

import pytest

LONG = 60.0


@pytest.fixture
def program(tmp_path):
    """Run a file as a program in a folder of its own; gives what it did, and the run files by process."""

    def run(code, *, timeout=LONG, expect=0, **environ):
        script = tmp_path / "program.py"
        script.write_text("import os, sys, time, threading\nimport instrument\n" + code)
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environ}
        env["PYTHONWARNINGS"] = "ignore::DeprecationWarning"
        before = time.monotonic()
        done = subprocess.run(
            [sys.executable, str(script)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=env,
            timeout=timeout,
            check=False,
        )
        done.seconds = time.monotonic() - before
        assert done.returncode == expect, done.stderr
        return done

    return run


@pytest.fixture
def runs(tmp_path):
    """The lines of every run file there is: the parent's, then its children's."""

    def read():
        files = sorted(tmp_path.glob("*.jsonl"), key=lambda path: len(path.name))
        return [[json.loads(line) for line in path.read_text().splitlines()] for path in files]

    return read


def names(lines, kind="span"):
    return [line["name"] for line in lines if line["type"] == kind]


def inherited(lines):
    return sum(line["count"] for line in lines if line["type"] == "loss" and line["reason"] == "inherited")


FORK = """
instrument.start(export="json:run.jsonl", interval=60)
for i in range(9):
    with instrument.region("before"): pass
pid = os.fork()
if pid == 0:
    for i in range(100):
        with instrument.region("child"): pass
    {end}
_, status = os.waitpid(pid, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
with instrument.region("after"): pass
"""

ENDS = {
    "sys.exit": "sys.exit(0)",
    "flush and os._exit": "assert instrument.flush(); os._exit(0)",
    "stop and os._exit": "assert instrument.stop().spans == 100; os._exit(0)",
    "a session's own stop": "instrument.lifecycle.guarded().stop(); os._exit(0)",
    "a thread's end": "threading.Thread(target=lambda: time.sleep(0.2)).start(); sys.exit(0)",
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
def test_nine_spans_of_the_parent_and_a_hundred_of_the_child_come_out_once(program, runs, tmp_path, end):
    done = program(FORK.format(end=end))
    assert done.stderr == ""
    parent, child = runs()
    assert names(parent) == ["before"] * 9 + ["after"]
    assert names(child) == ["child"] * 100
    ids = [line["id"] for line in parent + child if line["type"] == "span"]
    assert len(set(ids)) == 110
    assert inherited(child) == 9
    assert inherited(parent) == 0
    assert parent[0]["run_id"] == child[0]["run_id"]
    assert child[0]["parent_pid"] == parent[0]["pid"]
    pid = child[0]["pid"]
    assert pid not in (parent[0]["pid"], 0)
    (name,) = [path.name for path in tmp_path.glob("run.?*.jsonl")]
    assert re.fullmatch(rf"run\.{re.escape(child[0]['host'])}-{pid}-[0-9a-f]{{8}}\.jsonl", name)


def test_a_stopped_child_ends_its_file_and_has_totals_of_its_own(program, runs):
    program(FORK.format(end="sys.exit(0)"))
    parent, child = runs()
    for lines, counts in ((parent, {"before": 9, "after": 1}), (child, {"child": 100})):
        assert lines[-1]["type"] == "end"
        assert {line["path"]: line["count"] for line in lines if line["type"] == "total"} == counts


def test_a_child_begins_by_itself_at_its_first_record(program, runs, tmp_path):
    program("""
instrument.start(export="json:run.jsonl", interval=0.01)
pid = os.fork()
if pid == 0:
    with instrument.region("child"): pass
    import glob
    deadline = time.monotonic() + 50
    while not any(b'"child"' in open(name, "rb").read() for name in glob.glob("run.?*.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
""")
    assert names(runs()[1]) == ["child"]


def test_a_child_that_records_nothing_leaves_no_file_and_starts_no_thread(program, tmp_path):
    done = program("""
instrument.start(export="json:run.jsonl")
pid = os.fork()
if pid == 0:
    time.sleep(0.05)
    print(len(os.listdir("/proc/self/task")))
    sys.exit(0)
os.waitpid(pid, 0)
""")
    assert done.stdout == "1\n"
    assert [path.name for path in tmp_path.glob("*.jsonl")] == ["run.jsonl"]


def test_a_child_inside_the_parents_block_leaves_it_without_touching_the_parents_file(program, runs):
    program("""
with instrument.session(export="json:run.jsonl"), instrument.region("outer"):
    pid = os.fork()
    if pid == 0:
        with instrument.region("child"): pass
        sys.exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
""")
    parent, child = runs()
    assert names(parent) == ["outer"]
    assert names(child) == ["child"]
    assert [line["type"] for line in parent].count("end") == 1


def test_grandchildren_write_files_of_their_own(program, runs):
    program("""
instrument.start(export="json:run.jsonl")
def generation(n):
    with instrument.region(f"g{n}"): pass
    if n == 3: sys.exit(0)
    pid = os.fork()
    if pid == 0: generation(n + 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    sys.exit(0)
generation(0)
""")
    assert sorted(names(lines) for lines in runs()) == [["g0"], ["g1"], ["g2"], ["g3"]]


def test_a_fork_while_every_lock_is_held_does_not_hang_the_child(program, runs):
    program(
        """
instrument.start(export="json:run.jsonl", interval=0.005)
session = instrument.lifecycle.guarded()
drain = session._drain
locks = [session._lock, drain._one_cycle, drain.deliveries[0]._changed, threading._active_limbo_lock]
held, done = threading.Event(), threading.Event()
def hold():
    for lock in locks: lock.acquire()
    held.set(); done.wait()
    for lock in reversed(locks): lock.release()
threading.Thread(target=hold).start()
held.wait()
pid = os.fork()
if pid == 0:
    before = time.monotonic()
    for i in range(100):
        with instrument.region("child"): pass
    instrument.flush()
    os._exit(0 if time.monotonic() - before < 2 else 1)
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
done.set()
assert status == 0, status
"""
    )
    assert names(runs()[1]) == ["child"] * 100


def test_what_waits_for_the_parents_exporters_takes_no_room_in_the_child(program):
    done = program("""
from instrument.recorder import _core
from instrument.testing import InMemoryExporter

class Hanging(InMemoryExporter):
    gate = threading.Event()
    def export(self, batch):
        self.gate.wait()

session = instrument.start(export=[Hanging(), "json:run.jsonl"], buffer_mib=16, interval=0.005)
while _core.memory()[0] < 5 << 20:  # what the hanging exporter keeps
    with instrument.region("waits"):
        pass
if not (child := os.fork()):
    print(_core.memory()[0] < 3 << 20)
    sys.stdout.flush()
    os._exit(0)
os.waitpid(child, 0)
Hanging.gate.set()
""")
    assert done.stdout == "True\n"


def test_a_child_of_a_session_into_objects_records_nothing_and_may_start_its_own(program, runs):
    program("""
from instrument.testing import InMemoryExporter
instrument.start(export=InMemoryExporter())
pid = os.fork()
if pid == 0:
    with instrument.region("unseen"): pass
    assert instrument.flush()
    with instrument.session(export="json:run.jsonl"):
        with instrument.region("own"): pass
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
""")
    (child,) = runs()
    assert names(child) == ["own"]


def test_a_child_that_starts_a_session_first_thing_replaces_the_inherited_one(program, runs):
    program("""
instrument.start(export="json:run.jsonl")
with instrument.region("parent"): pass
pid = os.fork()
if pid == 0:
    instrument.start(export="json:run.jsonl", run_id="own")
    with instrument.region("child"): pass
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
""")
    parent, child = runs()
    assert (names(parent), names(child)) == (["parent"], ["child"])
    assert child[0]["run_id"] == "own"


def test_a_child_whose_folder_is_gone_runs_on_and_says_so_once(program, tmp_path):
    done = program("""
import shutil
os.mkdir("there")
instrument.start(export="json:there/run.jsonl")
shutil.rmtree("there")
pid = os.fork()
if pid == 0:
    for i in range(10):
        with instrument.region("child"): pass
        instrument.flush()
    print("ran")
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
instrument.stop()
""")
    assert done.stdout == "ran\n"
    assert done.stderr.count("\n") == 1
    assert "this child process is not recorded" in done.stderr


def test_a_relative_path_means_the_folder_of_the_start(program, runs):
    program("""
os.mkdir("elsewhere")
instrument.start(export="json:run.jsonl")
os.chdir("elsewhere")
pid = os.fork()
if pid == 0:
    with instrument.region("child"): pass
    sys.exit(0)
os.waitpid(pid, 0)
with instrument.region("parent"): pass
""")
    assert [names(lines) for lines in runs()] == [["parent"], ["child"]]


WORKERS = """
import multiprocessing
def work(n):
    with instrument.region("work", n=n): pass
    return n
"""

POOLS = {
    "Process": """
    children = [context.Process(target=work, args=(n,)) for n in range(4)]
    for child in children: child.start()
    for child in children: child.join()
    assert [child.exitcode for child in children] == [0] * 4
""",
    "Pool": """
    with context.Pool(2) as pool:
        assert pool.map(work, range(4), chunksize=1) == [0, 1, 2, 3]
        pool.close(); pool.join()
""",
    "ProcessPoolExecutor": """
    from concurrent.futures import ProcessPoolExecutor
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        assert list(pool.map(work, range(4))) == [0, 1, 2, 3]
""",
}


@pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS.keys())
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_every_span_of_multiprocessings_children_comes_out_once(program, runs, method, pool):
    main = f"if __name__ == '__main__':\n    context = multiprocessing.get_context({method!r})\n{pool}"
    done = program(WORKERS + main, INSTRUMENT_EXPORT="json:run.jsonl")
    assert done.stderr == ""
    spans = [line for lines in runs() for line in lines if line["type"] == "span"]
    assert sorted(span["attrs"]["n"] for span in spans) == [0, 1, 2, 3]
    assert len({span["id"] for span in spans}) == 4
    assert len({lines[0]["run_id"] for lines in runs()}) == 1


def test_multiprocessing_imported_after_start_is_found(program, runs):
    program(
        "instrument.start(export='json:run.jsonl')\n"
        + WORKERS
        + "c = multiprocessing.get_context('fork').Process(target=work, args=(1,)); c.start(); c.join()\n"
        + "assert c.exitcode == 0\n"
    )
    _, child = runs()
    assert names(child) == ["work"]
    assert child[-1]["type"] == "end"


def test_nothing_is_lost_at_the_end_of_a_program_that_never_stops(program, runs):
    program("""
import atexit
atexit.register(lambda: instrument.region("first_registered").__enter__())
instrument.start(export="json:run.jsonl", interval=60)
def late():
    with instrument.region("atexit"): pass
atexit.register(late)
def slow():
    time.sleep(0.2)
    with instrument.region("thread"): pass
threading.Thread(target=slow).start()
with instrument.region("main"): pass
""")
    (lines,) = runs()
    assert sorted(names(lines)) == ["atexit", "main", "thread"]
    assert lines[-1]["type"] == "end"


@pytest.mark.parametrize(("end", "code"), [("sys.exit(7)", 7), ("raise ValueError('mine')", 1)])
def test_the_exit_code_is_the_programs_own(program, runs, end, code):
    program(
        f"instrument.start(export='json:run.jsonl')\nwith instrument.region('a'): pass\n{end}\n", expect=code
    )
    assert runs()[0][-1]["type"] == "end"


HANGING = """
from instrument.testing import InMemoryExporter
class Hanging(InMemoryExporter):
    def {method}(self, *args):
        time.sleep(600)
instrument.start(export=[Hanging(), "json:run.jsonl"], interval=0.01)
for i in range(5):
    with instrument.region("a"): pass
sys.exit(4)
"""


@pytest.mark.parametrize("method", ["export", "flush", "close"])
def test_an_exporter_that_hangs_at_exit_delays_it_by_the_deadline_only(program, runs, method):
    done = program(HANGING.format(method=method), expect=4)
    assert (
        done.seconds < 2.2 + 3.0
    )  # the deadline and a tenth; and the start of an interpreter on a busy machine
    assert names(runs()[0]) == ["a"] * 5
    lost = [line for line in done.stderr.splitlines() if "lost 5 (Hanging: deadline)" in line]
    assert len(lost) == (1 if method == "export" else 0)


def test_an_exporter_that_was_late_at_stop_gets_the_time_until_exit(program):
    done = program("""
from instrument.testing import InMemoryExporter
class Slow(InMemoryExporter):
    def export(self, batch):
        time.sleep(0.3)
        super().export(batch)
        print(len(self.spans), flush=True)
session = instrument.start(export=Slow())
with instrument.region("a"): pass
assert not session.stop(timeout=0.01).delivered
""")
    assert (done.stdout, done.stderr) == ("1\n", "")


FORK_IN_A_THREAD = """
def work():
    child = os.fork()
    with instrument.region("child" if child == 0 else "parent"):
        pass
    if child == 0:
        time.sleep(0.3)  # CPython 3.13 runs pending calls late in such a child, and the drain begins by one
    else:
        done.append(os.waitpid(child, 0)[1])
    # The child's only thread ends here, and with it the process.

done = []
with instrument.session(export="json:run.jsonl"):
    with instrument.region("before"):
        pass
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
print(done)
"""


def test_a_child_that_a_thread_forked_ends_with_that_thread(program, runs):
    done = program(FORK_IN_A_THREAD, timeout=20)
    assert done.stdout == "[0]\n"
    parent, child = runs()
    assert sorted(names(parent)) == ["before", "parent"]
    assert names(child) == ["child"]
    assert names(child, "total") == ["child"]
    assert child[-1]["type"] == "end"


def test_at_exit_nothing_is_imported_and_no_thread_is_started(program, runs):
    done = program("""
import atexit
instrument.start(export="json:run.jsonl")
before = None
def after_us():
    print(sorted(set(sys.modules) - before), started)
started = []
start = threading.Thread.start
import instrument.lifecycle as lifecycle
atexit.unregister(lifecycle.at_exit)
atexit.register(after_us)
atexit.register(lifecycle.at_exit)
with instrument.region("a"): pass
before = set(sys.modules)
threading.Thread.start = lambda self: (started.append(self), start(self))
""")
    assert done.stdout == "[] []\n"
    assert names(runs()[0]) == ["a"]


def test_a_child_that_ends_at_once_is_written_without_a_thread_of_its_own(program, runs):
    program("""
instrument.start(export="json:run.jsonl")
import instrument.lifecycle as lifecycle
lifecycle._resume = lambda session: None   # as if the interpreter were faster than the thread
pid = os.fork()
if pid == 0:
    with instrument.region("child"): pass
    instrument.count("metric")
    threading.Thread.start = lambda self: 1 / 0
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
""")
    _, child = runs()
    assert names(child) == ["child"]
    assert names(child, "metric") == ["metric"]
    assert child[-1]["type"] == "end"


def test_many_sessions_and_forks_keep_the_hooks_registered_once(program, runs):
    program("""
for n in range(20):
    with instrument.session(export="json:run.jsonl"):
        pid = os.fork()
        if pid == 0:
            with instrument.region("child"): pass
            assert instrument.flush()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
""")
    assert [names(lines) for lines in runs()[1:]] == [["child"]] * 20


def test_children_forked_before_any_session_make_ids_of_their_own(program):
    done = program("""
from instrument.testing import capture
readers = []
for _ in range(3):
    end, begin = os.pipe()
    if os.fork() == 0:
        with capture() as got, instrument.region("a"):
            pass
        os.write(begin, b"%d" % got.spans[0].id)
        os._exit(0)
    readers.append(end)
print(len({os.read(end, 100) for end in readers}))
""")
    assert done.stdout == "3\n"
