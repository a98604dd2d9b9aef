import gzip
import json
import tracemalloc

import pytest
from run_builder import WALL, RunBuilder, as_line, small_run

from instrument.errors import RunFileError
from instrument.runs.run import load_run, run_from_records


def rows(run):
    return {
        path: (s.count, s.errors, s.sum_ns, s.self_ns, s.measures.get("flops", 0))
        for path, s in run.stats.items()
    }


def expected(*builders):
    whole = {}
    for builder in builders:
        for path, row in builder.sums().items():
            here = [row[key] for key in ("count", "errors", "sum_ns", "self_ns", "flops")]
            whole[path] = tuple(a + b for a, b in zip(whole.get(path, (0,) * 5), here, strict=True))
    return whole


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
@pytest.mark.parametrize("totals", [True, False])
def test_numbers_are_what_the_spans_sum_to(tmp_path, name, totals):
    builder = small_run(30, totals=totals)
    run = load_run([builder.write(tmp_path / name)])
    assert rows(run) == expected(builder)
    assert run.processes[0].from_totals is totals
    assert run.spans == len(builder.spans)
    assert run.marks == 1
    assert run.threads == 1


def test_totals_and_spans_give_the_same_histogram(tmp_path):
    builder = small_run(50)
    with_totals = load_run([builder.write(tmp_path / "a.jsonl")])
    builder.lines = [line for line in builder.lines if line["type"] not in ("total", "end")]
    without = load_run([builder.write(tmp_path / "b.jsonl")])
    assert with_totals.stats == without.stats or rows(with_totals) == rows(without)
    for path, stats in with_totals.stats.items():
        assert stats.histogram == without.stats[path].histogram
        assert (stats.min_ns, stats.max_ns) == (without.stats[path].min_ns, without.stats[path].max_ns)
        assert stats.rate("flops") == pytest.approx(without.stats[path].rate("flops"))


def test_totals_win_over_spans_that_were_dropped(tmp_path):
    builder = small_run(10)
    kept = [line for line in builder.lines if line["type"] != "span"]
    spans = [line for line in builder.lines if line["type"] == "span"][:7]
    builder.lines = kept[:1] + spans + kept[1:]
    builder.lines[-1]["spans"] = 7
    run = load_run([builder.write(tmp_path / "run.jsonl")])
    assert rows(run) == expected(builder)
    assert run.spans == 7


def test_totals_that_were_cut_off_are_not_trusted(tmp_path):
    builder = small_run(10)
    builder.lines = builder.lines[:-3]  # the end and two totals
    assert builder.lines[-1]["type"] == "total"
    run = load_run([builder.write(tmp_path / "run.jsonl")])
    assert rows(run) == expected(builder)
    assert not run.processes[0].from_totals
    assert not run.processes[0].state.ended


def test_totals_without_any_span_are_better_than_nothing(tmp_path):
    builder = RunBuilder()
    builder.total("a", [5, 6])
    run = load_run([builder.write(tmp_path / "run.jsonl")])
    assert run.stats["a"].sum_ns == 11


def test_totals_of_one_path_add_up(tmp_path):
    builder = RunBuilder()
    builder.total("a", [5, 6], by={"shape": "2x2"})
    builder.total("a", [100], by={"shape": "4x4"})
    builder.end(spans=0)
    path = builder.write(tmp_path / "run.jsonl")
    assert rows(load_run([path])) == {"a": (3, 0, 111, 111, 0)}
    split = load_run([path], by="shape").groups["a"]
    assert {value: s.sum_ns for value, s in split.items()} == {"2x2": 11, "4x4": 100}


def test_processes_add_up(tmp_path):
    parent, child = small_run(10), small_run(4, pid=200, parent_pid=100)
    child.add("thread", pid=200, tid=201, name="worker")
    child.loss("buffer_full", 3)
    child.lines.append(child.lines.pop(-3))  # the end last
    main = parent.write(tmp_path / "run.jsonl")
    child.write(tmp_path / "run.box-200-ab12.jsonl")
    run = load_run([main])
    assert rows(run) == expected(parent, child)
    assert run.losses == {("recorder", "buffer_full"): 3}
    assert (run.threads, run.marks, len(run.processes)) == (3, 2, 2)
    assert [(m.name, m.count, m.sum, m.min) for m in run.metrics] == [("tokens", 10, 100.0, 10.0)]


def test_a_file_with_and_one_without_totals_add_up(tmp_path):
    parent, child = small_run(10), small_run(4, pid=200, totals=False)
    main = parent.write(tmp_path / "run.jsonl")
    child.write(tmp_path / "run.box-200-ab12.jsonl")
    assert rows(load_run([main])) == expected(parent, child)


def test_the_last_line_of_a_metric_and_of_a_loss_holds(tmp_path):
    builder = RunBuilder()
    builder.metric("tokens", count=1, sum=1.0)
    builder.metric("tokens", count=9, sum=20.0)
    builder.metric("tokens", count=4, sum=4.0, labels={"m": 1})
    builder.metric("loss", kind="gauge", last="NaN", sum="Infinity", max="Infinity")
    builder.loss("buffer_full", 1)
    builder.loss("buffer_full", 7)
    run = load_run([builder.write(tmp_path / "run.jsonl")])
    assert [(m.name, m.count) for m in run.metrics] == [("loss", 1), ("tokens", 9), ("tokens", 4)]
    assert run.metrics[0].last != run.metrics[0].last
    assert run.losses == {("recorder", "buffer_full"): 7}


def test_open_spans_are_told_whether_or_not_totals_know_them(tmp_path):
    builder = RunBuilder()
    builder.span("main/work", 5)
    builder.totals()
    builder.span("main", 100, flags=["unfinished"])
    builder.total("poll", [], open=2)
    builder.end()
    run = load_run([builder.write(tmp_path / "run.jsonl")])
    assert {path: (s.count, s.open) for path, s in run.stats.items()} == {
        "main/work": (1, 0),
        "main": (0, 1),
        "poll": (0, 2),
    }
    assert run.stats["main"].open_ns == 100


def test_splitting_by_an_attribute_keeps_the_totals(tmp_path):
    builder = small_run(10)
    run = load_run([builder.write(tmp_path / "run.jsonl")], by="batch")
    assert rows(run) == expected(builder)
    assert {value: s.count for value, s in run.groups["step/attention"].items()} == {"0": 5, "1": 5}
    assert run.attributes == {"batch", "text"}


def test_wall_time_comes_from_the_end_or_the_last_span(tmp_path):
    builder = RunBuilder()
    builder.span("a", 500, start=WALL + 1500)
    assert load_run([builder.write(tmp_path / "a.jsonl")]).wall_ns == 2000
    builder.totals()
    builder.end(9000)
    assert load_run([builder.write(tmp_path / "b.jsonl")]).wall_ns == 9000
    assert load_run([RunBuilder().write(tmp_path / "c.jsonl")]).wall_ns is None


def test_unreadable_lines_are_skipped_and_the_first_is_named(tmp_path):
    builder = small_run(3)
    lines = [as_line(line) for line in builder.lines]
    lines.insert(4, b"garbage\n")
    lines.insert(9, b'{"type":"loss","where":"x"}\n')
    lines.insert(9, b"\n")
    lines.insert(9, lines[0])
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"".join(lines))
    for by in (None, "batch"):
        run = load_run([path], by=by)
        assert rows(run) == expected(builder)
        state = run.processes[0].state
        assert (state.skipped, state.first_skipped) == (4, 5)


@pytest.mark.parametrize(
    "line",
    [
        {"type": "total"},
        {"type": "total", "path": "a", "count": -1, "sum_ns": 1},
        {"type": "total", "path": "a", "count": 1, "sum_ns": 1, "min_ns": 1, "max_ns": 1, "histogram": [[1]]},
        {"type": "total", "path": "a", "count": True, "sum_ns": 1},
        {"type": "total", "path": "a", "count": 1, "sum_ns": 1, "min_ns": None, "max_ns": 2},
        {"type": "loss", "where": "a", "reason": "b", "count": "many"},
        {"type": "metric", "name": "m"},
        {"type": "end", "time": None},
        {"type": "thread"},
    ],
)
def test_a_line_without_what_its_type_requires_is_skipped(tmp_path, line):
    builder = small_run(3)
    builder.lines.insert(2, line)
    run = load_run([builder.write(tmp_path / "run.jsonl")])
    assert rows(run) == expected(builder)
    assert run.processes[0].state.first_skipped == 3


def test_line_types_of_later_versions_are_ignored(tmp_path):
    builder = small_run(3)
    builder.lines.insert(2, {"type": "wave", "x": 1})
    builder.lines.insert(2, {"type": "lines", "name": "f", "lines": []})
    run = load_run([builder.write(tmp_path / "run.jsonl")])
    assert run.processes[0].state.skipped == 0


def test_a_run_in_memory_reads_like_one_on_disk(tmp_path):
    builder = small_run(5)
    on_disk = load_run([builder.write(tmp_path / "run.jsonl")])
    in_memory = run_from_records(line for line in builder.lines if line["type"] != "span")
    assert rows(in_memory) == rows(on_disk)
    assert (in_memory.spans, in_memory.marks, in_memory.wall_ns) == (on_disk.spans, 1, on_disk.wall_ns)


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz"])
def test_memory_does_not_grow_with_the_file(tmp_path, monkeypatch, ending):
    monkeypatch.setattr("instrument.runs.load.BLOCK_BYTES", 1 << 14)
    data = small_run(100, totals=False).data()
    pack = gzip.compress if ending.endswith("gz") else bytes
    (tmp_path / f"small.{ending}").write_bytes(pack(data))
    (tmp_path / f"large.{ending}").write_bytes(pack(data + data[data.index(b"\n") + 1 :] * 9))

    def peak(name):
        tracemalloc.start()
        try:
            load_run([tmp_path / name])
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(f"small.{ending}")  # caches of regular expressions and the like
    assert peak(f"large.{ending}") < 1.5 * peak(f"small.{ending}")


def test_nothing_to_read_is_an_error(tmp_path):
    with pytest.raises(RunFileError):
        load_run([tmp_path / "no.jsonl"])


def test_progress_goes_up_to_the_size_of_all_files(tmp_path):
    main = small_run(100).write(tmp_path / "run.jsonl")
    child = small_run(100, pid=200).write(tmp_path / "run.box-200-ab.jsonl")
    told = []
    load_run([main], progress=lambda done, whole: told.append((done, whole)))
    size = main.stat().st_size + child.stat().st_size
    assert told[-1] == (size, size)
    assert json.dumps(told)
