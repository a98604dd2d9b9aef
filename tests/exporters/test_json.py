import contextlib
import gzip
import json
import math
import os
import subprocess
import sys
import time
import zlib
from collections import Counter
from pathlib import Path

import jsonschema
import pytest

import instrument
from instrument import ConfigError
from instrument.records import Batch, ExportError, Loss, Metric, Resource, SiteInfo, Thread, Total
from instrument.testing import InMemoryExporter
from instrument_exporters.json import JsonExporter

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "run-file.schema.json").read_text())
LONG = 60.0
ODD = 'q"\\\n\U0001f600'


@pytest.fixture(scope="module")
def validate():
    return jsonschema.Draft202012Validator(SCHEMA).validate


def refuse(word):
    raise AssertionError(f"{word} is no JSON")


def lines_of(path):
    """The lines of a whole run file, strictly parsed."""
    data = path.read_bytes()
    if path.name.endswith(".gz"):
        data = gzip.decompress(data)
    assert data.endswith(b"\n")
    # Not `splitlines`: it also splits at U+2028 and the like, which names that other tests left behind have.
    lines = data.decode("utf-8").split("\n")
    return [json.loads(line, parse_constant=refuse) for line in lines if line]


def of_type(lines, kind):
    return [line for line in lines if line["type"] == kind]


def python(code, cwd):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=env,
        timeout=LONG,
        check=False,
    )


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
def test_each_line_fits_the_schema_and_says_what_was_recorded(tmp_path, validate, name):
    memory = InMemoryExporter()
    with instrument.session(
        export=[f"json:{tmp_path}/{name}", memory], labels={"model": "small", "lr": 0.1}, rank=2, run_id="r1"
    ):
        with contextlib.suppress(KeyError), instrument.step(7), instrument.region("load", n=1, text=ODD):
            instrument.mark("seen", ok=True)
            raise KeyError
        instrument.count("tokens", 5, kind="in")
        instrument.gauge("depth", math.inf)
        instrument.annotate(nothing="open")
        open_region = instrument.region("open").__enter__()
    del open_region
    lines = lines_of(tmp_path / name)
    for line in lines:
        validate(line)
    run, end = lines[0], lines[-1]
    assert (run["type"], run["schema"], run["run_id"], run["rank"]) == ("run", 1, "r1", 2)
    assert (run["pid"], run["labels"]) == (os.getpid(), {"model": "small", "lr": 0.1})
    spans = of_type(lines, "span")
    assert [span["name"] for span in spans] == ["load", "step", "open"]
    load, step, still_open = spans
    assert load["attrs"] == {"n": 1, "text": ODD}
    assert (load["status"], load["error"], load["step"], load["parent"]) == (
        "error",
        "KeyError",
        7,
        step["id"],
    )
    assert still_open["flags"] == ["unfinished"]
    for line, span in zip(spans, memory.spans, strict=True):
        assert int(line["id"], 16) == span.id
        assert (line["start"], line["dur"], line["path"], line["tid"]) == (
            span.start,
            span.dur,
            span.path,
            span.tid,
        )
    (mark,) = of_type(lines, "mark")
    assert (mark["path"], mark["attrs"], mark["parent"]) == ("step/load/seen", {"ok": True}, load["id"])
    assert {(x["kind"], x["name"]): x["sum"] for x in of_type(lines, "metric")}[("count", "tokens")] == 5
    totals = {x["path"]: (x["count"], x["errors"], x["open"]) for x in of_type(lines, "total")}
    assert totals == {"step": (1, 1, 0), "step/load": (1, 1, 0), "open": (0, 0, 1)}
    assert ("recorder", "set_without_span", 1) in {
        (x["where"], x["reason"], x["count"]) for x in of_type(lines, "loss")
    }
    assert {line["name"] for line in of_type(lines, "site")} >= {"load", "step", "seen", "open"}
    assert [line["tid"] for line in of_type(lines, "thread")] == [load["tid"]]
    assert (end["type"], end["spans"], end["marks"]) == ("end", 3, 1)
    assert end["lost"] == sum(line["count"] for line in of_type(lines, "loss"))


def test_totals_of_the_file_equal_what_its_spans_sum_to(tmp_path):
    with instrument.session(export=f"json:{tmp_path}/run.jsonl", interval=0.01):
        for i in range(200):
            with instrument.region("outer"):
                for _ in range(i % 3):
                    with instrument.region("inner"):
                        pass
    lines = lines_of(tmp_path / "run.jsonl")
    spans = of_type(lines, "span")
    for total in of_type(lines, "total"):
        durations = [span["dur"] for span in spans if span["path"] == total["path"]]
        assert total["count"] == len(durations)
        assert total["sum_ns"] == sum(durations)
        assert (total["min_ns"], total["max_ns"]) == (min(durations), max(durations))
        assert sum(count for _, count in total["histogram"]) == len(durations)
        median = sorted(durations)[(len(durations) - 1) // 2]
        assert abs(total["p50_ns"] - median) <= median / 32 + 1


def test_an_existing_run_file_of_ours_is_replaced(tmp_path):
    for name in ("first", "second"):
        with instrument.session(export=f"json:{tmp_path}/run.jsonl"), instrument.region(name):
            pass
    assert [span["name"] for span in of_type(lines_of(tmp_path / "run.jsonl"), "span")] == ["second"]
    assert [path.name for path in tmp_path.iterdir()] == ["run.jsonl"]


@pytest.mark.parametrize(
    "content",
    [
        b"hello\n",
        b'{"type":"span"}\n',
        b'{"type":"run","schema":2}\n',
        b'{"type":"run"',
        b"[1]\n",
        b"\x00\xff" * 100,
        b"\x1f\x8bnot gzip",
        b"[" * 100_000,
    ],
)
def test_an_existing_file_that_is_not_ours_is_an_error_and_stays_as_it_is(tmp_path, content):
    path = tmp_path / "run.jsonl"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="exists and is not a run file") as caught:
        instrument.start(export=f"json:{path}")
    assert str(path) in str(caught.value)
    assert path.read_bytes() == content
    assert [found.name for found in tmp_path.iterdir()] == ["run.jsonl"]


def test_an_empty_file_is_free_to_use(tmp_path):
    (tmp_path / "run.jsonl").touch()
    with instrument.session(export=f"json:{tmp_path}/run.jsonl"):
        pass
    assert lines_of(tmp_path / "run.jsonl")[0]["type"] == "run"


@pytest.mark.parametrize("path", ["nowhere/run.jsonl", ".", "/dev/full", "/proc/run.jsonl", "name\0"])
def test_a_path_that_cannot_be_written_is_an_error_at_start(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="option 'export'"):
        instrument.start(export=f"json:{path}")
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_that_nobody_reads_is_an_error_not_a_wait(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="option 'export'"):
        instrument.start(export=f"json:{tmp_path}/pipe")


def test_a_pipe_can_be_written_to(tmp_path):
    done = python(
        "import instrument\nwith instrument.session(export='json:/dev/stdout'), instrument.region('a'): pass",
        tmp_path,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert (lines[0]["type"], lines[-1]["type"], done.stderr) == ("run", "end", "")


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "target").mkdir()
    for target in ("target/new.jsonl", "target/new.jsonl"):
        link = tmp_path / "run.jsonl"
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        with instrument.session(export=f"json:{link}"):
            pass
        assert link.is_symlink()
        assert lines_of(link)[-1]["type"] == "end"


def test_a_file_that_another_process_writes_is_left_to_it(tmp_path):
    code = (
        "import instrument, sys\n"
        "with instrument.session(export='json:run.jsonl'), instrument.region('other'):\n"
        "    print('ready', flush=True); sys.stdin.readline()\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    other = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env=env,
        text=True,
    )
    try:
        assert other.stdout.readline() == "ready\n"
        with instrument.session(export=f"json:{tmp_path}/run.jsonl") as session, instrument.region("mine"):
            pass
    finally:
        other.communicate("\n", timeout=LONG)
    (beside,) = tmp_path.glob("run.?*.jsonl")
    assert session.stop().outputs == (str(beside),)
    assert [span["name"] for span in of_type(lines_of(beside), "span")] == ["mine"]
    assert [span["name"] for span in of_type(lines_of(tmp_path / "run.jsonl"), "span")] == ["other"]


def test_a_file_removed_meanwhile_is_a_loss_of_all_that_was_in_it(tmp_path):
    with instrument.session(export=f"json:{tmp_path}/run.jsonl") as session:
        for _ in range(3):
            with instrument.region("a"):
                instrument.mark("m")
        os.unlink(tmp_path / "run.jsonl")
    assert session.stop().losses == (Loss("json", "file_removed", 6),)


DISK = """
import instrument, resource, signal, sys
def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
session = instrument.start(export="json:{name}", interval=60)
with instrument.region("before"): pass
assert instrument.flush()
import os
limit(os.path.getsize("{name}") + 1000)
for i in range(500):
    with instrument.region("lost"): pass
    if i % 100 == 99: instrument.flush()
limit(resource.RLIM_INFINITY)
with instrument.region("after"): pass
print(session.stop().losses)
"""


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
def test_a_full_disk_is_counted_and_said_once_and_writing_goes_on_when_there_is_room(
    tmp_path, validate, name
):
    done = python(DISK.format(name=name), tmp_path)
    assert done.returncode == 0
    assert done.stderr.count("\n") == 1
    assert "json: disk_full" in done.stderr
    lines = lines_of(tmp_path / name)
    for line in lines:
        validate(line)
    names = Counter(span["name"] for span in of_type(lines, "span"))
    assert names["before"] == names["after"] == 1
    (loss,) = [line for line in of_type(lines, "loss") if line["where"] == "json"][-1:]
    assert loss["reason"] == "disk_full"
    assert names["lost"] + loss["count"] == 500
    assert loss["count"] >= 300
    assert {x["path"]: x["count"] for x in of_type(lines, "total")} == {"before": 1, "lost": 500, "after": 1}
    assert {site["name"] for site in of_type(lines, "site")} == {"before", "lost", "after"}
    assert lines[-1]["spans"] == len(of_type(lines, "span"))
    assert lines[-1]["lost"] == loss["count"]


CLOSED = """
import instrument, os
session = instrument.start(export="json:run.jsonl", interval=60)
with instrument.region("before"): pass
assert instrument.flush()
os.closerange(3, 100)
theirs = [os.open(f"theirs{i}", os.O_RDWR | os.O_CREAT) for i in range(20)]
with instrument.region("after"): pass
instrument.stop()
for file in theirs: os.write(file, b"theirs")
print(session.stop().losses)
"""


def test_a_program_that_closes_all_descriptors_keeps_its_own_files(tmp_path):
    done = python(CLOSED, tmp_path)
    assert done.returncode == 0
    assert "json: file_closed" in done.stderr
    assert done.stdout == "(Loss(where='json', reason='file_closed', count=1),)\n"
    assert {(tmp_path / f"theirs{i}").read_bytes() for i in range(20)} == {b"theirs"}
    lines = (tmp_path / "run.jsonl").read_text().splitlines()
    assert [json.loads(line)["name"] for line in lines if '"span"' in line] == ["before"]


def test_what_the_last_batch_loses_is_in_a_loss_line_too(tmp_path):
    done = python(DISK_AT_THE_END, tmp_path)
    assert done.returncode == 0
    lines = lines_of(tmp_path / "run.jsonl")
    assert [line["count"] for line in of_type(lines, "loss")][-1] == 1000
    assert lines[-1]["lost"] == 1000
    assert of_type(lines, "span") == []


DISK_AT_THE_END = """
import instrument, os, resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
session = instrument.start(export="json:run.jsonl", interval=60)
resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize("run.jsonl") + 5000, resource.RLIM_INFINITY))
for _ in range(2):
    for i in range(500):
        with instrument.region("lost"): pass
    if _ == 0: instrument.flush()
instrument.stop()
"""


KILLED = """
import instrument, os, signal
instrument.start(export="json:{name}", interval=60)
for i in range(1000):
    with instrument.region("a", i=i): pass
assert instrument.flush()
for i in range(10):
    with instrument.region("never_drained"): pass
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
def test_a_killed_process_leaves_whole_lines(tmp_path, name):
    assert python(KILLED.format(name=name), tmp_path).returncode == -9
    data = (tmp_path / name).read_bytes()
    if name.endswith(".gz"):
        data = zlib.decompressobj(31).decompress(data)
    lines = [json.loads(line) for line in data.splitlines()]
    assert data.endswith(b"\n")
    assert [span["attrs"]["i"] for span in of_type(lines, "span")] == list(range(1000))


def test_names_of_any_kind_come_back_as_they_were(tmp_path, validate):
    names = [
        "a/b",
        "50%",
        'quo"te',
        "back\\slash",
        "new\nline",
        "\x00\x1f\x7f",
        "\U0001f600",
        "x" * 10_000,
        "",
        "</script>",
    ]
    with instrument.session(export=f"json:{tmp_path}/run.jsonl"):
        for name in names:
            with instrument.region(name):
                instrument.mark(name)
                instrument.count(name)
    lines = lines_of(tmp_path / "run.jsonl")
    for line in lines:
        validate(line)
    assert [span["name"] for span in of_type(lines, "span")] == names
    assert [mark["name"] for mark in of_type(lines, "mark")] == names
    short = {name for name in names if len(name) < 1000}  # a metric's name is bounded, and counted beyond
    assert {metric["name"] for metric in of_type(lines, "metric")} >= short
    assert {total["name"] for total in of_type(lines, "total")} == set(names)
    assert of_type(lines, "span")[0]["path"] == "a%2Fb"


@pytest.fixture
def opened(tmp_path):
    exporter = JsonExporter(str(tmp_path / "run.jsonl"))
    exporter.open(Resource("r", None, 5, "h", argv=("\udc80",), clock={"monotonic_ns": 0, "wall_ns": 0}))
    yield exporter
    exporter.close(time.monotonic() + LONG)


def test_lines_of_every_kind_of_record(opened, tmp_path, validate):
    opened.export(
        Batch(
            sequence=1,
            threads=[Thread(5, 6, 1, "main")],
            sites=[SiteInfo(0, "s", "region", "", "f.py", 3)],
            metrics=[Metric("observe", "m", {"l": 1}, 10, 1, math.nan, -math.inf, math.inf, 2.5)],
            totals=[
                Total(
                    "p",
                    "p",
                    "region",
                    {},
                    2,
                    1,
                    0,
                    300,
                    200,
                    100,
                    200,
                    ((100, 1), (200, 1)),
                    {"flops": 8.0},
                    1,
                ),
                Total("q", "q", "kernel", {}, 0, 0, 1, 0, 0, 0, 0, ()),
            ],
            losses=[Loss("recorder", "paths", 2)],
            final=True,
            clock={"monotonic_ns": 5, "wall_ns": 9},
        )
    )
    assert opened.close(time.monotonic() + LONG)
    lines = lines_of(tmp_path / "run.jsonl")
    for line in lines:
        validate(line)
    run, *rest, end = lines
    assert run["argv"] == ["\udc80"]
    assert rest == [
        {"type": "thread", "pid": 5, "tid": 6, "name": "main"},
        {"type": "site", "name": "s", "kind": "region", "scope": "", "file": "f.py", "line": 3},
        {
            "type": "metric",
            "kind": "observe",
            "name": "m",
            "labels": {"l": 1},
            "time": 10,
            "count": 1,
            "sum": "NaN",
            "min": "-Infinity",
            "max": "Infinity",
            "last": 2.5,
        },
        {
            "type": "total",
            "path": "p",
            "name": "p",
            "kind": "region",
            "by": {},
            "count": 2,
            "errors": 1,
            "open": 0,
            "sum_ns": 300,
            "self_ns": 200,
            "min_ns": 100,
            "max_ns": 200,
            "p50_ns": 102,
            "p90_ns": 200,
            "p99_ns": 200,
            "histogram": [[100, 1], [200, 1]],
            "measured": 1,
            "measures": {"flops": 8.0},
        },
        {
            "type": "total",
            "path": "q",
            "name": "q",
            "kind": "kernel",
            "by": {},
            "count": 0,
            "errors": 0,
            "open": 1,
            "sum_ns": 0,
            "self_ns": 0,
            "min_ns": None,
            "max_ns": None,
            "p50_ns": None,
            "p90_ns": None,
            "p99_ns": None,
            "histogram": [],
            "measured": 0,
            "measures": {},
        },
        {"type": "loss", "where": "recorder", "reason": "paths", "count": 2},
    ]
    assert (end["spans"], end["marks"], end["lost"]) == (0, 0, 2)
    assert end["clock"] == {"monotonic_ns": 5, "wall_ns": 9}


def test_a_loss_is_written_when_it_changes_and_again_at_the_end(opened, tmp_path):
    for count in (1, 1, 2):
        opened.export(Batch(sequence=1, losses=[Loss("recorder", "paths", count)]))
    opened.export(Batch(sequence=2, losses=[Loss("recorder", "paths", 2)], final=True))
    opened.close(time.monotonic() + LONG)
    assert [line["count"] for line in of_type(lines_of(tmp_path / "run.jsonl"), "loss")] == [1, 2, 2]


def test_a_closed_exporter_counts_what_it_is_given():
    with pytest.raises(ExportError) as caught:
        JsonExporter("run.jsonl").export(Batch(sequence=1))
    assert (caught.value.reason, caught.value.count) == ("closed", 0)
    assert JsonExporter("run.jsonl").close(0.0)
