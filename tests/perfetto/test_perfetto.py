"""What Perfetto makes of our traces."""

import json
import signal
import subprocess
import sys
import time

import pytest
from run_builder import WALL, RunBuilder

import instrument
from instrument.cli import main

pytestmark = pytest.mark.interop

ODD = 'q"\n\u2028\U0001f600é\\'
QUARTER = 7_889_238 * 10**9
BASE = WALL // QUARTER * QUARTER
SLICES = "select slice.ts, slice.dur, slice.name, slice.depth, slice.category, tid from slice "
ON_THREADS = "join thread_track on slice.track_id = thread_track.id join thread using (utid) "


def convert(run, path, target="chrome"):
    run.end()
    source = run.write(path.parent / "run.jsonl")
    assert main(["convert", str(source), f"{target}:{path}"]) == 0
    return path


@pytest.fixture
def trace(tmp_path):
    return tmp_path / "trace.json"


def test_spans_are_slices_with_exact_times_and_depths(perfetto, trace):
    run = RunBuilder()
    step, layer = run.new_id(), run.new_id()
    run.span("step/layer/scores", 46, start=WALL + 201, parent=layer, kind="kernel")
    run.span("step/layer/mix", 999, start=WALL + 247, parent=layer, kind="kernel")
    run.span("step/layer", 1_046, start=WALL + 200, parent=step, id=layer)
    run.span("step", 123_456_789, start=WALL, id=step, kind="step")
    run.span("other", 2_000, start=WALL + 100, tid=101)
    loaded = perfetto(convert(run, trace))
    assert loaded.rows(SLICES + ON_THREADS + "order by slice.ts, depth") == [
        (WALL - BASE, 123_456_789, "step", 0, "step", 100),
        (WALL - BASE + 100, 2_000, "other", 0, "region", 101),
        (WALL - BASE + 200, 1_046, "layer", 1, "region", 100),
        (WALL - BASE + 201, 46, "scores", 2, "kernel", 100),
        (WALL - BASE + 247, 999, "mix", 2, "kernel", 100),
    ]
    assert loaded.problems() == {}


def test_children_that_share_a_border_with_their_parent_stay_inside_it(perfetto, trace):
    run = RunBuilder()
    outer, inner = run.new_id(), run.new_id()
    run.span("a", 0, start=WALL, parent=inner)
    run.span("b", 9, start=WALL + 1, parent=inner)
    run.span("inner", 10, start=WALL, parent=outer, id=inner)
    run.span("c", 10, start=WALL + 10, parent=outer)
    run.span("outer", 20, start=WALL, id=outer)
    loaded = perfetto(convert(run, trace))
    sql = "select s.name, p.name as above from slice s left join slice p on s.parent_id = p.id"
    above = dict(loaded.rows(sql))
    assert (above["inner"], above["c"], above["outer"]) == ("outer", "outer", None)
    assert (above["a"], above["b"]) == ("inner", "inner")
    assert loaded.problems() == {}


def test_a_planted_overlap_is_reported_so_that_these_tests_can_fail(perfetto, trace):
    run = RunBuilder()
    run.span("a", 10_000, start=WALL)
    convert(run, trace)
    planted = '{"ph":"X","name":"planted","ts":%s,"dur":10,"pid":100,"tid":100},' % (
        (WALL - BASE) // 1000 + 5
    )
    trace.write_text(trace.read_text().replace("[\n", "[\n" + planted + "\n", 1))
    loaded = perfetto(trace)
    assert loaded.problems() == {"slice_drop_overlapping_complete_event": 1}


def test_spans_that_overlap_are_all_drawn(perfetto, trace):
    run = RunBuilder()
    for number in range(20):
        run.span("wait", 10_000, start=WALL + 3_000 * number, attrs={"number": number})
    for number in range(20):
        start = WALL + 100_000 + 3_000 * number
        run.span("request", 10_000, start=start, task=f"{number:x}")
    loaded = perfetto(convert(run, trace))
    drawn = dict(loaded.rows("select name, count() from slice where dur = 10000 group by name"))
    assert drawn == {"wait": 20, "request": 20}
    on_thread = loaded.rows("select count() from slice " + ON_THREADS)
    assert on_thread == [(5,)], "every fourth fits: 0, 4, 8, 12, 16"
    assert loaded.problems() == {}


def test_processes_and_threads_are_named(perfetto, trace):
    run = RunBuilder(rank=3)
    for tid, name in ((100, "MainThread"), (101, ODD)):
        run.add("thread", pid=100, tid=tid, name=name)
        run.span("x", 1, tid=tid)
    loaded = perfetto(convert(run, trace))
    threads = dict(loaded.rows("select tid, thread.name from thread join thread_track using (utid)"))
    assert threads == {100: "MainThread", 101: ODD}
    assert ("train.py (rank 3)",) in loaded.rows("select name from process where pid = 100")


def test_attributes_and_measures_can_be_asked_for(perfetto, trace):
    run = RunBuilder()
    attrs = {"batch": 32, "text": ODD, "ratio": 0.5, "ok": True, "shape": [4, 5], "nan": "NaN"}
    run.span(
        "scores", 5, step=3, attrs=attrs, measures={"flops": 2.1e9}, status="error", error="ValueError",
        flags=["unfinished"],
    )  # fmt: skip
    loaded = perfetto(convert(run, trace))
    wanted = ("id", "step", "error", "attrs.batch", "attrs.text", "attrs.ratio", "attrs.ok", "measures.flops")
    columns = ", ".join(f"extract_arg(arg_set_id, 'args.{name}')" for name in wanted)
    assert loaded.rows(f"select {columns} from slice") == [
        (run.spans[0]["id"], 3, "ValueError", 32, ODD, 0.5, 1, 2.1e9)
    ]
    columns = "extract_arg(arg_set_id, 'args.attrs.shape[1]'), extract_arg(arg_set_id, 'args.flags[0]')"
    assert loaded.rows(f"select {columns} from slice") == [(5, "unfinished")]


def test_metrics_are_counter_tracks(perfetto, trace):
    run = RunBuilder()
    for number in range(3):
        at = WALL + 1000 * number
        run.metric("tokens", labels={"model": "a"}, sum=10.0 * number, time=at)
        run.metric("loss", "gauge", last=1 / (number + 1), time=at)
    run.metric("bad", "gauge", last="NaN")
    loaded = perfetto(convert(run, trace))
    rows = loaded.rows(
        "select t.name, c.ts, c.value from counter c join process_counter_track t on c.track_id = t.id "
        "join process using (upid) where pid = 100 order by t.name, c.ts"
    )
    start = WALL - BASE
    assert rows == [
        *(("loss value", start + 1000 * number, pytest.approx(1 / (number + 1))) for number in range(3)),
        *(("tokens{model=a} total", start + 1000 * number, 10.0 * number) for number in range(3)),
    ]
    assert loaded.problems() == {}


def test_marks_and_losses_are_instants(perfetto, trace):
    run = RunBuilder()
    run.add("mark", name="epoch", kind="mark", path="epoch", time=WALL + 5, pid=100, tid=7, attrs={"n": 1})
    run.loss("buffer_full", 12)
    loaded = perfetto(convert(run, trace))
    assert loaded.rows(SLICES + ON_THREADS) == [(WALL - BASE + 5, 0, "epoch", 0, "mark", 7)]
    lost = loaded.rows(
        "select slice.name, extract_arg(slice.arg_set_id, 'args.count') from slice "
        "join process_track on slice.track_id = process_track.id"
    )
    assert lost == [("lost: recorder buffer_full", 12)]
    assert loaded.problems() == {}


def test_device_times_are_a_track_of_their_own(perfetto, trace):
    run = RunBuilder()
    layer = run.new_id()
    for number in range(2):
        measures = {"device_ns": 400, "queue_ns": 1000 + 300 * number, "stream": 7}
        run.span("mm", 50, start=WALL + 100 * (number + 1), kind="kernel", parent=layer, measures=measures)
    run.span("layer", 400, start=WALL, id=layer, measures={"device_ns": 800, "queue_ns": 1100, "stream": 7})
    loaded = perfetto(convert(run, trace))
    rows = loaded.rows(
        "select slice.ts, slice.dur, slice.name, depth from slice "
        + ON_THREADS
        + "where thread.name = 'device 0 stream 7' order by ts, depth"
    )
    start = WALL - BASE
    assert rows == [
        (start + 1100, 800, "layer", 0),
        (start + 1100, 400, "mm", 1),
        (start + 1500, 400, "mm", 1),
    ]
    assert loaded.problems() == {}


def test_a_trace_without_its_end_is_read_as_far_as_it_goes(perfetto, trace):
    run = RunBuilder()
    for number in range(1000):
        run.span("x", 5, start=WALL + 10 * number)
    data = convert(run, trace).read_bytes()
    trace.write_bytes(data[: len(data) // 2])
    ((count,),) = perfetto(trace).rows("select count() from slice")
    assert 300 < count < 700


def test_a_compressed_trace_of_a_program_that_was_killed_is_read_whole(perfetto, tmp_path):
    program = f"""
import instrument, os, signal
session = instrument.start(export="chrome:{tmp_path}/trace.json.gz")
for batch in range(3):
    for number in range(100):
        with instrument.region("x"): pass
    session.flush(30)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    assert perfetto(tmp_path / "trace.json.gz").rows("select count() from slice") == [(300,)]


@pytest.mark.parametrize("target", ["chrome", "kineto"])
def test_a_real_session_comes_through_whole(perfetto, tmp_path, target):
    session = instrument.start(export=f"{target}:{tmp_path}/trace.json.gz")
    for number in range(200):
        with instrument.step(number):
            for index in range(3):
                with instrument.region("layer", index=index), instrument.region("norm"):
                    instrument.mark("here")
        instrument.count("tokens", 32)
    session.stop()
    loaded = perfetto(tmp_path / "trace.json.gz")
    counts = dict(loaded.rows("select iif(name like 'Prof%', 'step', name), count() from slice group by 1"))
    assert counts == {"step": 200, "layer": 600, "norm": 600, "here": 600}
    depths = dict(loaded.rows("select name, max(depth) - min(depth) from slice group by name"))
    assert set(depths.values()) == {0}
    assert loaded.rows("select max(value) from counter") == [(6400.0,)]
    assert loaded.problems() == {}


def test_the_base_turns_times_into_unix_time(perfetto, tmp_path):
    before = time.time_ns()
    session = instrument.start(export=f"chrome:{tmp_path}/trace.json")
    with instrument.region("x"):
        pass
    session.stop()
    first = json.loads((tmp_path / "trace.json").read_text())[0]
    ((ts,),) = perfetto(tmp_path / "trace.json").rows("select ts from slice")
    assert before <= ts + first["args"]["base_time_ns"] <= time.time_ns()
