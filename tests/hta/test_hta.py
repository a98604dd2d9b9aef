"""What HolisticTraceAnalysis makes of `kineto:` traces.

Only spans with device times are kernels to it; a run on the CPU alone loads, but has no device to break down.
"""

import json
import random

import pytest
from run_builder import WALL, RunBuilder

import instrument
from instrument.cli import main

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
]

US = 1000
COMMUNICATION = "ncclDevKernel_AllReduce"


@pytest.fixture
def analysis():
    """`TraceAnalysis` of the traces in a folder, all steps of them."""
    from hta.trace_analysis import TraceAnalysis

    return lambda folder: TraceAnalysis(trace_dir=str(folder), include_last_profiler_step=True)


def training(seed, rank, *, grain=US, steps=6):
    """Steps whose kernels run on two streams at random, later than they were launched."""
    draw = random.Random(seed)
    run = RunBuilder(rank=rank)
    free = {7: 0, 20: 0}  # when the streams have done all that was launched so far
    now = 0
    for number in range(steps):
        step, layer = run.new_id(), run.new_id()
        begin = now
        for _ in range(draw.randrange(3, 9)):
            now += draw.randrange(20, 400) * grain
            stream = draw.choice([7, 7, 20])
            device_start = max(now + draw.randrange(5, 40) * grain, free[stream])
            device_ns = draw.randrange(10, 500) * grain
            free[stream] = device_start + device_ns
            run.span(
                f"step/layer/{COMMUNICATION if stream == 20 else 'mm'}", 10 * grain, start=WALL + now,
                kind="kernel", parent=layer, step=number,
                measures={"device_ns": device_ns, "queue_ns": device_start - now, "stream": stream},
            )  # fmt: skip
        now += 20 * grain
        run.span("step/layer", now - begin - grain, start=WALL + begin, parent=step, id=layer, step=number)
        run.span("step", now - begin, start=WALL + begin, kind="step", id=step, step=number)
    run.end()
    return run


def convert(run, folder, name="rank0"):
    folder.mkdir(exist_ok=True)
    source = run.write(folder.parent / f"{name}.jsonl")
    assert main(["convert", str(source), f"kineto:{folder}/{name}.json.gz"]) == 0
    return source


def kernels_of(source):
    """(start, end, name) on the device, out of the run file."""
    spans = [json.loads(line) for line in source.read_text().splitlines() if '"span"' in line]
    found = []
    for span in spans:
        if span["kind"] == "kernel":
            start = span["start"] - WALL + span["measures"]["queue_ns"]
            found.append((start, start + span["measures"]["device_ns"], span["name"]))
    return found


def covered(kernels):
    """Time in which at least one of them runs."""
    total = reached = 0
    for start, end, _ in sorted(kernels):
        total += max(end, reached) - max(start, reached)
        reached = max(reached, end)
    return total


def breakdown(source):
    """The parts of the device's time in us, by its own definition and our own sums."""
    kernels = kernels_of(source)
    whole = max(end for _, end, _ in kernels) - min(start for start, _, _ in kernels)
    compute = covered([kernel for kernel in kernels if kernel[2] != COMMUNICATION])
    parts = {
        "idle_time(us)": whole - covered(kernels),
        "compute_time(us)": compute,
        "non_compute_time(us)": covered(kernels) - compute,
        "kernel_time(us)": whole,
    }
    return {name: ns / US for name, ns in parts.items()}


@pytest.mark.parametrize("seed", range(3))
def test_the_temporal_breakdown_equals_the_one_of_the_run_file(analysis, tmp_path, seed):
    source = convert(training(seed, None), tmp_path / "traces")
    (row,) = analysis(tmp_path / "traces").get_temporal_breakdown(visualize=False).to_dict("records")
    assert {name: row[name] for name in breakdown(source)} == pytest.approx(breakdown(source), abs=0.01)


def test_nanoseconds_survive_where_the_tool_is_told_to_keep_them(analysis, tmp_path, monkeypatch):
    monkeypatch.setenv("HTA_DISABLE_NS_ROUNDING", "1")
    source = convert(training(7, None, grain=37), tmp_path / "traces")
    (row,) = analysis(tmp_path / "traces").get_temporal_breakdown(visualize=False).to_dict("records")
    assert {name: row[name] for name in breakdown(source)} == pytest.approx(breakdown(source), abs=0.1)


def test_ranks_are_told_apart_by_the_traces_themselves(analysis, tmp_path):
    sources = {rank: convert(training(rank, rank), tmp_path / "traces", f"host{9 - rank}") for rank in (0, 1)}
    rows = analysis(tmp_path / "traces").get_temporal_breakdown(visualize=False).to_dict("records")
    assert [row["rank"] for row in rows] == [0, 1]
    for row in rows:
        assert row["idle_time(us)"] == pytest.approx(
            breakdown(sources[row["rank"]])["idle_time(us)"], abs=0.01
        )


def test_kernels_and_regions_on_the_device_are_told_apart(analysis, tmp_path):
    run = training(1, None)
    layer = run.new_id()
    run.span(
        "tail/mm",
        9 * US,
        start=WALL + 10**9,
        kind="kernel",
        parent=layer,
        measures={"device_ns": 50 * US, "queue_ns": 20 * US, "stream": 3},
    )
    run.span(
        "tail",
        30 * US,
        start=WALL + 10**9 - US,
        id=layer,
        measures={"device_ns": 60 * US, "queue_ns": 15 * US, "stream": 3},
    )
    source = convert(run, tmp_path / "traces")
    loaded = analysis(tmp_path / "traces")
    _, kernels = loaded.get_gpu_kernel_breakdown(visualize=False)
    found = dict(zip(kernels["name"], kernels["sum (us)"], strict=True))
    wanted = {}
    for start, end, name in kernels_of(source):
        wanted[name] = wanted.get(name, 0) + (end - start) / US
    assert found == pytest.approx(wanted, abs=0.01)
    annotations = loaded.get_gpu_user_annotation_breakdown(visualize=False)
    assert dict(zip(annotations["name"], annotations["sum (us)"], strict=True)) == {"tail": pytest.approx(60)}


def test_a_real_run_on_the_cpu_loads_with_its_steps(analysis, tmp_path):
    session = instrument.start(export=f"kineto:{tmp_path}/rank0.json.gz")
    for number in range(5):
        with instrument.step(number), instrument.region("layer"):
            pass
    session.stop()
    loaded = analysis(tmp_path)
    assert loaded.get_profiler_steps() == [0, 1, 2, 3, 4]
    events = loaded.t.traces[0]
    assert len(events) == 10
    assert (events["stream"] == -1).all(), "nothing of it ran on a device"
