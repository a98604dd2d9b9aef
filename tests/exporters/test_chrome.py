import gzip
import itertools
import json
import os
import time
from collections import Counter, defaultdict
from contextlib import suppress
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_builder import HOST, WALL, RunBuilder, as_line

import instrument
from instrument import ConfigError
from instrument.records import Batch, ExportError, Resource
from instrument.runs.replay import replay
from instrument_exporters import chrome_events, runfile
from instrument_exporters._chrome import Converter
from instrument_exporters.chrome import ChromeExporter, KinetoExporter

ODD = 'q"\\\n\t\x01\u2028\U0001f600é'


def refuse(word):
    raise AssertionError(f"{word} is no JSON")


def strict(text):
    """JSON with its numbers as they are written."""
    return json.loads(text, parse_constant=refuse, parse_float=Decimal)


def read(path):
    data = path.read_bytes()
    return (gzip.decompress(data) if path.name.endswith(".gz") else data).decode()


def events_of(path):
    trace = strict(read(path))
    return trace if isinstance(trace, list) else trace["traceEvents"]


def steps_run(steps=5, *, totals=True, **fields):
    """A run of steps with five spans each, which nest as a program's do, and a mark."""
    run = RunBuilder(**fields)
    run.add("thread", pid=100, tid=100, name="MainThread")
    for number in range(steps):
        at = WALL + 20_000 * number
        step, layer = run.new_id(), run.new_id()
        about = {"parent": layer, "kind": "kernel", "step": number}
        run.span("step/layer/scores", 3_000, start=at + 200, measures={"flops": 6e4}, **about)
        run.span("step/layer/mix", 5_000 + number, start=at + 3_200, **about)
        run.span(
            "step/layer", 9_000, start=at + 100, parent=step, id=layer, step=number, attrs={"index": number}
        )
        run.span("step/load", 0, start=at + 9_100, parent=step, step=number)
        run.span("step", 12_000, start=at, id=step, kind="step", step=number)
    run.add("mark", name="epoch", path="epoch", time=WALL + 5, pid=100, tid=100, attrs={"n": 1})
    if totals:
        run.totals()
        run.end()
    return run


def converted(run, path, exporter=ChromeExporter):
    """The events of a run made by hand, by way of its file."""
    source = run.write(path.parent / "source.jsonl")
    write(exporter(str(path)), source)
    return events_of(path)


def write(exporter, *sources):
    for number, source in enumerate(sources):
        resource, batches = replay(source)
        if number:
            exporter.join(resource)
        else:
            exporter.open(resource)
        for batch in batches:
            exporter.export(batch)
    assert exporter.close(time.monotonic() + 60)


def of(events, ph, name=None):
    return [event for event in events if event["ph"] == ph and name in (None, event["name"])]


def one(events, ph, name):
    (event,) = of(events, ph, name)
    return event


def base_of(events):
    return one(events, "M", "instrument")["args"]["base_time_ns"]


def unix_ns(events, event):
    ns = event["ts"] * 1000
    assert ns == int(ns), f"{event['ts']} us is no whole number of ns"
    return int(ns) + base_of(events)


def intervals(events):
    """Start and end of the complete events, by thread."""
    found = defaultdict(list)
    for event in of(events, "X"):
        start = event["ts"] * 1000
        found[event["pid"], event["tid"]].append((start, start + event["dur"] * 1000))
    return found


def crossing(spans):
    """Pairs that neither lie apart nor one in the other."""
    return [(a, b) for a, b in itertools.combinations(sorted(spans), 2) if a[0] < b[0] < a[1] < b[1]]


@pytest.fixture
def trace(tmp_path):
    return tmp_path / "trace.json"


# ------------------------------------------------------------------ the file


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_trace_is_a_strict_json_array_with_an_event_per_line(tmp_path, name):
    converted(steps_run(), tmp_path / name)
    first, *lines, last, nothing = read(tmp_path / name).split("\n")
    assert (first, last, nothing) == ("[", "]", "")
    assert all(line.endswith(",") for line in lines[:-1])
    assert all("ph" in strict(line.removesuffix(",")) for line in lines)


def test_a_trace_that_is_cut_off_anywhere_lacks_only_its_last_events(trace):
    events = converted(steps_run(), trace)
    text = read(trace)
    for cut in range(text.index("\n{") + 1, len(text), 97):
        whole = text[:cut].rpartition(",\n")[0] or "["
        found = strict(whole + "]")
        assert found == events[: len(found)]
        assert len(found) >= text[:cut].count(",\n{") - 1


def test_a_compressed_trace_can_be_read_while_it_is_written(tmp_path):
    source = steps_run().write(tmp_path / "run.jsonl")
    exporter = ChromeExporter(str(tmp_path / "trace.json.gz"))
    resource, batches = replay(source)
    exporter.open(resource)
    exporter.export(next(batches))
    text = gzip.decompress((tmp_path / "trace.json.gz").read_bytes()).decode()
    assert len(of(strict(text + "]"), "X")) == 25
    exporter.close(time.monotonic() + 60)


def test_every_span_and_mark_is_there_once(trace):
    run = steps_run(20)
    events = converted(run, trace)
    assert Counter(event["args"]["id"] for event in of(events, "X")) == {s["id"]: 1 for s in run.spans}
    assert len(of(events, "i")) == 1


def test_a_former_trace_is_replaced_and_a_foreign_file_is_left_alone(trace):
    for exporter in (ChromeExporter, KinetoExporter, ChromeExporter):
        converted(steps_run(), trace, exporter)
    for foreign in ("{}", "[]", '[\n{"ph":"X"}\n]', '{"schemaVersion": 1, "traceEvents": [\n]}', "hello"):
        trace.write_text(foreign)
        with pytest.raises(FileExistsError, match="is not a trace of ours; remove it or choose another path"):
            ChromeExporter(str(trace)).open(Resource("r", None, 1, "h"))
        assert trace.read_text() == foreign


def test_the_path_is_wanted_at_once():
    with pytest.raises(ConfigError, match=r"the path is missing: chrome:trace\.json\.gz"):
        instrument.start(export="chrome:")
    with pytest.raises(ConfigError, match=r"the path is missing: kineto:trace\.json\.gz"):
        instrument.start(export="kineto:")


def test_a_full_disk_costs_whole_events_and_is_told(tmp_path, monkeypatch):
    source = steps_run(200).write(tmp_path / "run.jsonl")
    exporter = ChromeExporter(str(tmp_path / "trace.json"))
    resource, batches = replay(source)
    exporter.open(resource)
    really = os.write

    def full(descriptor, data):
        if len(data) > 1000:
            really(descriptor, bytes(data)[:700])
            raise OSError(28, "No space left on device")
        return really(descriptor, data)

    with monkeypatch.context() as patch:
        patch.setattr(runfile.os, "write", full)
        with pytest.raises(ExportError) as caught:
            exporter.export(next(batches))
    assert (caught.value.reason, caught.value.count) == ("disk_full", 1001)
    exporter.export(next(batches))
    assert exporter.close(time.monotonic() + 60)
    assert len(of(events_of(tmp_path / "trace.json"), "X")) == 0


# ------------------------------------------------------------------ times


def test_times_are_exact_to_the_nanosecond_on_a_unix_base(trace):
    run = RunBuilder()
    for dur in (0, 1, 46, 999, 1000, 1001, 123_456_789_012):
        run.span("x", dur, tid=dur + 1)
    events = converted(run, trace)
    found = {event["args"]["id"]: event for event in of(events, "X")}
    for span in run.spans:
        assert unix_ns(events, found[span["id"]]) == span["start"]
        assert found[span["id"]]["dur"] * 1000 == span["dur"]


def test_a_reader_that_keeps_doubles_loses_no_nanosecond(trace):
    run = RunBuilder()
    quarter = 7_889_238 * 10**9
    latest = quarter - 1 - WALL % quarter  # how far the base may lie back
    for nudge in range(200):
        run.span("x", 1, start=WALL + latest - 7 * nudge, tid=nudge + 1)
    found = [float(event["ts"]) for event in of(converted(run, trace), "X")]
    starts = [span["start"] - WALL // quarter * quarter for span in run.spans]
    assert [round(us * 1000) for us in found] == starts


def test_the_base_is_the_one_of_torchs_own_traces(tmp_path):
    if os.environ.get("INSTRUMENT_TEST_SANITIZED"):
        pytest.skip("torch is not built for sanitizers")
    torch = pytest.importorskip("torch")
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as prof:
        torch.ones(1)
    prof.export_chrome_trace(str(tmp_path / "torch.json"))
    theirs = json.loads((tmp_path / "torch.json").read_text())["baseTimeNanoseconds"]
    run = RunBuilder(clock={"monotonic_ns": 0, "wall_ns": time.time_ns(), "source": "tsc"})
    assert base_of(converted(run, tmp_path / "trace.json")) == int(theirs)


# ------------------------------------------------------------------ spans


def test_a_span_says_all_that_its_line_says(trace):
    run = RunBuilder()
    ident = run.span(
        "a/scores", 46, parent="00000000000000ab", kind="kernel", step=3, weight=0.5, status="error",
        error="ValueError", flags=["async", "unfinished"], attrs={"batch": 32, "x": [1, "two", None]},
        measures={"flops": 2.1e9},
    )  # fmt: skip
    event = one(converted(run, trace), "X", "scores")
    assert (event["cat"], event["pid"], event["tid"]) == ("kernel", 100, 100)
    assert event["args"] == {
        "id": ident,
        "step": 3,
        "weight": Decimal("0.5"),
        "status": "error",
        "error": "ValueError",
        "flags": ["async", "unfinished"],
        "attrs": {"batch": 32, "x": [1, "two", None]},
        "measures": {"flops": Decimal("2100000000.0")},
    }


def test_odd_names_and_attributes_come_through(trace):
    run = RunBuilder()
    names = [ODD, ODD * 1000, "C:\\", '"\\']
    for tid, name in enumerate(names):
        line = {"id": run.new_id(), "name": name, "kind": "region", "path": name, "start": WALL, "dur": 1}
        run.add("span", **line, pid=100, tid=tid, attrs={name: name, "nan": "NaN"})
    source = trace.parent / "run.jsonl"
    for ascii_only in (False, True):
        text = [json.dumps(line, separators=(",", ":"), ensure_ascii=ascii_only) for line in run.lines]
        source.write_text("\n".join([*text, ""]))
        write(ChromeExporter(str(trace)), source)
        events = of(events_of(trace), "X")
        assert [event["name"] for event in events] == names
        assert [event["args"]["attrs"] for event in events] == [{name: name, "nan": "NaN"} for name in names]


def test_what_perfetto_stumbles_over_is_spelled_in_another_way(trace):
    run = RunBuilder()
    run.span("x", 1, attrs={"a": "C:\\", "b": '"\\', "c": ['"\ud800', "\\\\"], "\\": "\U0001f600"})
    source = trace.parent / "run.jsonl"
    source.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in run.lines))
    write(ChromeExporter(str(trace)), source)
    assert '\\\\"' not in read(trace)
    assert "\\ud8" not in read(trace)
    assert one(events_of(trace), "X", "x")["args"]["attrs"] == {
        "a": "C:\\", "b": '"\\', "c": ['"\ufffd', "\\\\"], "\\": "\U0001f600",
    }  # fmt: skip


def test_a_mark_is_an_instant_of_its_thread(trace):
    run = RunBuilder()
    run.add("mark", name="epoch", kind="mark", path="epoch", time=WALL + 5, pid=100, tid=7, attrs={"n": 1})
    run.add(
        "mark", name="a", kind="mark", parent="00000000000000ab", path="a", time=WALL, pid=100, tid=7, step=2
    )
    events = converted(run, trace)
    epoch, a = one(events, "i", "epoch"), one(events, "i", "a")
    assert (epoch["s"], epoch["cat"], epoch["tid"], epoch["args"]) == ("t", "mark", 7, {"attrs": {"n": 1}})
    assert unix_ns(events, epoch) == WALL + 5
    assert a["args"] == {"parent": "00000000000000ab", "step": 2}


def test_spans_that_overlap_in_one_thread_go_beside_its_track(trace):
    run = RunBuilder()
    run.span("a", 10_000, start=WALL)
    run.span("inside", 1_000, start=WALL + 12_000)
    late = run.span("b", 15_000, start=WALL + 5_000, attrs={"n": 1}, parent="00000000000000ab")
    run.span("c", 1_000, start=WALL + 20_000)
    events = converted(run, trace)
    assert [event["name"] for event in of(events, "X")] == ["a", "inside", "c"]
    begin, end = one(events, "b", "b"), one(events, "e", "b")
    assert begin["id"] == end["id"] == f"span {late}"
    assert begin["args"] == {"id": late, "attrs": {"n": 1}, "parent": "00000000000000ab"}
    assert (end["ts"] - begin["ts"]) * 1000 == 15_000
    assert one(events, "M", "instrument_end")["args"]["async_spans"] == 1


def test_spans_of_other_threads_may_overlap(trace):
    run = RunBuilder()
    for tid in (1, 2, 3):
        run.span("a", 10_000, start=WALL + 1_000 * tid, tid=tid)
    assert len(of(converted(run, trace), "X")) == 3


def test_a_task_has_a_track_of_its_own(trace):
    run = RunBuilder()
    for start, task in ((0, "a1"), (3, "b2"), (1, "a1"), (20, "a1")):
        run.span("wait", 15 - start if start < 15 else 5, start=WALL + start, task=task)
    events = converted(run, trace)
    assert of(events, "X") == []
    assert [event["id"] for event in of(events, "b")][:2] == ["task 100 a1", "task 100 b2"]
    assert all(event["args"]["task"] in ("a1", "b2") for event in of(events, "b"))


def tree(draw, start, end, depth):
    """A random tree of spans in order of completion, as (start, end, number of the parent's)."""
    spans = []
    at = start
    while at < end and draw(st.booleans()):
        first = draw(st.integers(at, end))
        last = draw(st.integers(first, end))
        inner = tree(draw, first, last, depth + 1) if depth < 4 else []
        spans += [*inner, (first, last)]
        at = last
    return spans


@given(st.data())
def test_spans_that_nest_all_lie_on_their_threads_track(data):
    spans = tree(data.draw, 0, 60, 0)
    assert displaced(spans) == []


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=40), st.booleans())
def test_what_lies_on_a_threads_track_always_nests(pairs, in_order):
    spans = [(min(pair), max(pair)) for pair in pairs]
    if in_order:
        spans.sort(key=lambda span: span[1])
    beside = displaced(spans)
    on_track = list((Counter(spans) - Counter(beside)).elements())
    assert crossing(on_track) == []


def displaced(spans, parents=None):
    """Those of one thread's spans that have no place on its track."""
    converter = Converter(0, 1, (b'""',) * 4, False)
    parents = parents or [0] * len(spans)
    return [
        span for span, parent in zip(spans, parents, strict=True) if not converter.place(1, parent, *span)
    ]


def test_many_neighbours_take_little_room_and_still_nest():
    pairs = [(10 * i, 10 * i + 9) for i in range(100_000)]
    assert displaced([*pairs, (0, 10**6)], [7] * len(pairs) + [0]) == []
    assert displaced([*pairs, (0, 10**6)]) == []
    assert displaced([*pairs, (5, 10**6)]) == [(5, 10**6)]
    assert displaced([*pairs, (5, 10**6)], [7] * len(pairs) + [0]) == [(5, 10**6)]


# ------------------------------------------------------------------ what else there is


def test_processes_and_threads_have_names_and_places(trace):
    run = RunBuilder(rank=3)
    for tid, name in ((100, "MainThread"), (101, ODD), (100, "again")):
        run.add("thread", pid=100, tid=tid, name=name)
    events = converted(run, trace)
    names = {event["tid"]: event["args"]["name"] for event in of(events, "M", "thread_name")}
    assert names == {100: "MainThread, again", 101: ODD}
    assert one(events, "M", "process_name")["args"] == {"name": "train.py (rank 3)"}
    assert one(events, "M", "process_labels")["args"] == {"labels": f"{HOST} pid 100"}
    assert one(events, "M", "process_sort_index")["args"] == {"sort_index": 3}
    order = {event["tid"]: event["args"]["sort_index"] for event in of(events, "M", "thread_sort_index")}
    assert order[100] < order[101]
    assert all(type(event["pid"]) is int and type(event["tid"]) is int for event in events)


def test_the_first_event_says_who_recorded_and_how(trace):
    run = RunBuilder(config={"mode": "production", "rate": 0.01}, labels={"model": "small"})
    first = converted(run, trace)[0]
    assert (first["ph"], first["name"]) == ("M", "instrument")
    about = first["args"]
    assert about["config"] == {"mode": "production", "rate": Decimal("0.01")}
    assert (about["run_id"], about["host"], about["labels"]) == ("r1", HOST, {"model": "small"})
    assert about["unit"] == "us"


def test_losses_are_said_and_seen(trace):
    run = steps_run(totals=False)
    run.loss("buffer_full", 12)
    run.end()
    events = converted(run, trace)
    lost = one(events, "i", "lost: recorder buffer_full")
    assert (lost["s"], lost["args"]) == ("p", {"where": "recorder", "reason": "buffer_full", "count": 12})
    assert unix_ns(events, lost) == WALL + 2_000_000_000
    assert one(events, "M", "instrument_end")["args"]["losses"] == [
        {"type": "loss", "where": "recorder", "reason": "buffer_full", "count": 12}
    ]


def test_a_run_that_was_cut_off_says_so(trace):
    run = steps_run(totals=False)
    source = trace.parent / "run.jsonl"
    source.write_bytes(run.data() + b'{"type":"span","id":"00')
    write(ChromeExporter(str(trace)), source)
    events = events_of(trace)
    assert len(of(events, "X")) == 25
    losses = {loss["reason"]: loss["count"] for loss in events[-1]["args"]["losses"]}
    assert losses == {"no_end": 1, "cut_bytes": 23}


def test_metrics_are_counters(trace):
    run = RunBuilder()
    labels = {"model": "a"}
    run.metric("tokens", labels=labels, count=2, sum=30.0, time=WALL + 1)
    run.metric("loss", "gauge", count=9, sum=9.0, last=0.25, time=WALL + 2)
    run.metric("wait", "observe", count=2, sum=10.0, time=WALL + 3)
    run.metric("wait", "observe", count=6, sum=14.0, time=WALL + 4)
    run.metric("odd", "gauge", last="NaN")
    events = converted(run, trace)
    found = [(event["name"], unix_ns(events, event) - WALL, event["args"]) for event in of(events, "C")]
    assert found == [
        ("tokens{model=a}", 1, {"total": 30}),
        ("loss", 2, {"value": Decimal("0.25")}),
        ("wait", 3, {"mean": 5}),
        ("wait observations", 3, {"total": 2}),
        ("wait", 4, {"mean": 1}),
        ("wait observations", 4, {"total": 6}),
    ]
    assert events[-1]["args"]["metric_values_without_number"] == 1


def test_device_times_lie_on_a_track_per_stream(trace):
    run = RunBuilder()
    parent = run.new_id()
    on = {"device": 1, "stream": 7}
    run.span(
        "mm",
        50,
        start=WALL + 10,
        kind="kernel",
        parent=parent,
        measures={"device_ns": 400, "queue_ns": 90, **on},
    )
    run.span(
        "mm",
        50,
        start=WALL + 80,
        kind="kernel",
        parent=parent,
        measures={"device_ns": 300, "queue_ns": 420, **on},
    )
    run.span("layer", 200, start=WALL, id=parent, measures={"device_ns": 700, "queue_ns": 100, **on})
    run.span("unplaced", 5, start=WALL + 300, measures={"device_ns": 700})
    run.span("crossing", 5, start=WALL + 310, measures={"device_ns": 700, "queue_ns": 0, **on})
    events = converted(run, trace)
    (track,) = {event["tid"] for event in of(events, "X")} - {100}
    assert one([e for e in events if e["tid"] == track], "M", "thread_name")["args"] == {
        "name": "device 1 stream 7"
    }
    device = [event for event in of(events, "X") if event["tid"] == track]
    assert [(event["name"], event["cat"]) for event in device] == [
        ("mm", "kernel"), ("mm", "kernel"), ("layer", "gpu_user_annotation"),
    ]  # fmt: skip
    assert [(unix_ns(events, event) - WALL, event["dur"] * 1000) for event in device] == [
        (100, 400), (500, 300), (100, 700),
    ]  # fmt: skip
    assert device[0]["args"] == {"id": run.spans[0]["id"], **on}
    assert len(of(events, "X")) == 5 + 3
    about = events[-1]["args"]
    assert (about["device_times_without_place"], about["device_times_overlapping"]) == (1, 1)


# ------------------------------------------------------------------ Kineto's form


def test_the_kineto_form_is_what_torchs_profiler_writes(trace):
    run = RunBuilder(rank=2)
    run.span("step/scores", 5, kind="kernel", step=7)
    run.span("step/layer", 6, step=7)
    run.span("step", 30, kind="step", step=7)
    run.span("warm", 3, kind="step", start=WALL + 100)
    converted(run, trace, KinetoExporter)
    about = strict(read(trace))
    events = about.pop("traceEvents")
    assert about == {
        "schemaVersion": 1,
        "distributedInfo": {"rank": 2},
        "displayTimeUnit": "ns",
        "baseTimeNanoseconds": base_of(events),
        "host_name": HOST,
    }
    assert [(event["name"], event["cat"]) for event in of(events, "X")] == [
        ("scores", "cpu_op"),
        ("layer", "user_annotation"),
        ("ProfilerStep#7", "user_annotation"),
        ("warm", "user_annotation"),
    ]
    assert one(events, "X", "ProfilerStep#7")["args"]["name"] == "step"


# ------------------------------------------------------------------ two ways to one end

odd_text = st.text(st.characters(codec="utf-8"), max_size=8).filter(lambda text: not text.endswith("\\"))
values = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64)
    | st.floats(allow_nan=False, allow_infinity=False)
)
values |= odd_text | st.lists(st.integers() | odd_text, max_size=3)
ids = st.integers(0, 2**64 - 1).map("{:016x}".format)
optional = {
    "step": st.integers(-3, 2**63),
    "weight": st.floats(0, 1),
    "status": st.sampled_from(["ok", "error"]),
    "error": odd_text,
    "flags": st.lists(odd_text, max_size=2),
    "attrs": st.dictionaries(odd_text, values, max_size=3),
    "measures": st.dictionaries(odd_text, values, max_size=3),
}


@st.composite
def line(draw):
    mark = draw(st.booleans())
    fields = {"type": "mark"} if mark else {"type": "span", "id": draw(ids)}
    if draw(st.booleans()):
        fields["parent"] = draw(ids)
    kinds = ["mark"] if mark else ["region", "kernel", "step"]
    fields |= {"name": draw(odd_text), "kind": draw(st.sampled_from(kinds)), "path": draw(odd_text)}
    start = draw(st.integers(WALL, WALL + 10**12))
    fields |= {"time": start} if mark else {"start": start, "dur": draw(st.integers(0, 10**12))}
    fields |= {"pid": draw(st.integers(0, 2**22)), "tid": draw(st.integers(0, 2**22))}
    for name, strategy in optional.items():
        if draw(st.booleans()):
            fields[name] = draw(strategy)
    return fields


@given(line(), st.sampled_from([ChromeExporter, KinetoExporter]))
def test_c_and_python_make_the_same_of_a_line(fields, form):
    dialect = form.dialect
    converter = Converter(WALL - 5, 77, dialect.in_c(), dialect.profiler_steps)
    data = as_line(fields)
    made, stopped, count = converter.feed(data, 0)
    assert (stopped, count) == (len(data), 1), "the recorder's own spelling is C's to read"
    record = chrome_events.read(data)
    make = chrome_events.mark_event if fields["type"] == "mark" else chrome_events.complete_event
    assert strict(made.decode()[2:]) == strict(make(record, dialect, WALL - 5, 77))


@given(line(), st.data())
def test_whatever_a_file_holds_the_trace_is_strict_json(tmp_path_factory, fields, data):
    text = bytearray(as_line(fields)[:-1])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        new = data.draw(st.binary(min_size=0, max_size=3)).replace(b"\n", b"")
        text[at : at + data.draw(st.integers(0, 3))] = new
        text = text or bytearray(b" ")
    folder = tmp_path_factory.mktemp("fuzz", numbered=True)
    source, trace = folder / "run.jsonl", folder / "trace.json"
    source.write_bytes(RunBuilder().data() + as_line(fields) + bytes(text) + b"\n" + as_line(fields))
    exporter = ChromeExporter(str(trace))
    resource, batches = replay(source)
    exporter.open(resource)
    for batch in batches:
        with suppress(ExportError):
            exporter.export(batch)
    assert exporter.close(time.monotonic() + 60)
    events = events_of(trace)
    assert events[-1]["args"].get("unreadable", 0) <= 1
    assert len(of(events, "X")) + len(of(events, "b")) + len(of(events, "i")) >= 2


def test_lines_of_another_writer_are_read_too(trace):
    usual = of(converted(steps_run(), trace), "X")
    source = trace.parent / "other.jsonl"
    first, *others = steps_run().lines
    turned = [first, *(dict(reversed(fields.items())) for fields in others)]
    source.write_text("".join(json.dumps(fields) + "\n" for fields in turned))
    write(ChromeExporter(str(trace)), source)
    assert of(events_of(trace), "X") == usual


def test_lines_that_are_none_are_counted(trace):
    source = trace.parent / "run.jsonl"
    source.write_bytes(
        steps_run(totals=False).data() + b'{"type":"span","id":7}\n{"type":"mark","time":"x"}\n'
    )
    exporter = ChromeExporter(str(trace))
    resource, batches = replay(source)
    exporter.open(resource)
    with pytest.raises(ExportError) as caught:
        exporter.export(next(batches))
    assert (caught.value.reason, caught.value.count) == ("unreadable", 2)
    exporter.export(next(batches))
    exporter.close(time.monotonic() + 60)
    events = events_of(trace)
    assert len(of(events, "X")) == 25
    assert events[-1]["args"]["unreadable"] == 2


# ------------------------------------------------------------------ live


def test_a_live_trace_equals_one_made_from_the_run_file(tmp_path):
    live, run = tmp_path / "live.json", tmp_path / "run.jsonl"
    session = instrument.start(export=[f"chrome:{live}", f"json:{run}"])
    for number in range(50):
        with instrument.step(number), instrument.region("layer", index=number, name=ODD):
            instrument.mark("here", n=number)
            with pytest.raises(ValueError), instrument.region("bad"):
                raise ValueError
    instrument.count("tokens", 3)
    session.stop()
    write(ChromeExporter(str(tmp_path / "later.json")), run)
    one, other = events_of(live), events_of(tmp_path / "later.json")
    kinds = ("X", "i", "C")
    assert [e for e in one if e["ph"] in kinds] == [e for e in other if e["ph"] in kinds]
    assert len(of(one, "X")) == 150
    assert [e["name"] for e in one if e["ph"] == "M"] == [e["name"] for e in other if e["ph"] == "M"]


def test_a_forks_child_writes_a_trace_of_its_own(run_python, tmp_path):
    run_python(
        f"""
import instrument, os
instrument.start(export="chrome:{tmp_path}/trace.json")
with instrument.region("parent"): pass
pid = os.fork()
with instrument.region("child" if not pid else "after"): pass
if pid: os.waitpid(pid, 0)
instrument.stop()
if not pid: os._exit(0)
"""
    )
    mine, childs = sorted(tmp_path.glob("trace*.json"), key=lambda path: len(path.name))
    assert {event["name"] for event in of(events_of(mine), "X")} == {"parent", "after"}
    assert [event["name"] for event in of(events_of(childs), "X")] == ["child"]


def test_several_processes_share_a_trace_even_with_equal_pids(tmp_path):
    sources = [
        steps_run(host=host, rank=rank).write(tmp_path / f"{host}.jsonl")
        for rank, host in enumerate(("one", "two"))
    ]
    write(ChromeExporter(str(tmp_path / "trace.json")), *sources)
    events = events_of(tmp_path / "trace.json")
    names = {event["pid"]: event["args"]["name"] for event in of(events, "M", "process_name")}
    assert sorted(names.values()) == ["train.py (rank 0)", "train.py (rank 1)"]
    assert Counter(event["pid"] for event in of(events, "X")) == dict.fromkeys(names, 25)


def test_an_exporter_that_is_closed_says_what_it_did_not_take(tmp_path):
    exporter = ChromeExporter(str(tmp_path / "trace.json"))
    assert exporter.close(0)
    with pytest.raises(ExportError, match="closed"):
        exporter.export(Batch(1))
