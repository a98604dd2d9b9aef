import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_builder import RunBuilder, as_line, small_run

from instrument.histogram import bucket_low
from instrument.runs import scan
from instrument.runs.scan import ABSENT, OTHER_PATHS, OTHERS, SpanSums, is_span


def sums_of(lines, by=None):
    sums = SpanSums(by)
    others, bad = sums.add_block(b"".join(lines))
    return sums, others, bad


def span_lines(run):
    return [as_line(line) for line in run.lines if line["type"] == "span"]


def as_rows(sums):
    return {
        path: (s.count, s.errors, s.sum_ns, s.self_ns, s.measures.get("flops", 0), s.measured)
        for path, s in sums.by_path().items()
    }


def expected(run):
    return {
        path: (row["count"], row["errors"], row["sum_ns"], row["self_ns"], row["flops"], row["measured"])
        for path, row in run.sums().items()
    }


def test_sums_are_those_of_an_independent_loop():
    run = small_run(40)
    sums, others, bad = sums_of(span_lines(run))
    assert as_rows(sums) == expected(run)
    assert (others, bad, sums.spans) == ([], [], len(run.spans))


def test_histograms_hold_every_duration_in_its_bucket():
    run = RunBuilder()
    durations = [0, 1, 31, 32, 63, 64, 65, 127, 128, 1000, 123456, 10**12, 2**63]
    for ns in durations:
        run.span("a", ns)
    stats = sums_of(span_lines(run))[0].by_path()["a"]
    wanted = {}
    for ns in durations:
        wanted[bucket_low(ns)] = wanted.get(bucket_low(ns), 0) + 1
    assert stats.histogram == wanted
    assert (stats.min_ns, stats.max_ns) == (0, 2**63)


def test_a_span_in_any_spelling_counts_the_same():
    run = small_run(20)
    shuffled = []
    for number, line in enumerate(line for line in run.lines if line["type"] == "span"):
        items = list(line.items())
        random.Random(number).shuffle(items)
        shuffled.append(json.dumps(dict(items)).encode() + b"\n")
    slow, others, bad = sums_of(shuffled)
    fast = sums_of(span_lines(run))[0]
    assert (others, bad) == ([], [])
    assert as_rows(slow) == as_rows(fast)
    assert slow.by_path()["step"].histogram == fast.by_path()["step"].histogram
    mixed = sums_of(
        [a if i % 2 else b for i, (a, b) in enumerate(zip(span_lines(run), shuffled, strict=True))]
    )[0]
    assert as_rows(mixed) == as_rows(fast)


NAMES = st.text(max_size=12)
ATTRS = st.dictionaries(NAMES, st.one_of(st.none(), st.booleans(), st.integers(), NAMES), max_size=3)


@given(
    st.lists(
        st.tuples(NAMES, st.integers(0, 2**63), ATTRS, st.sampled_from(["ok", "error"]), st.integers(0, 3)),
        max_size=20,
    )
)
def test_whatever_names_and_attributes_hold_both_ways_agree(rows):
    """The fast way sees the bytes, the slow way the values; the number of spans is never in doubt."""
    run = RunBuilder()
    for name, dur, attrs, status, tid in rows:
        path = name.replace("%", "%25").replace("/", "%2F")
        run.span(path, dur, attrs=attrs, status=status, tid=tid)
    lines = [json.dumps(s, separators=(",", ":"), ensure_ascii=i % 2 == 0).encode() + b"\n"
             for i, s in enumerate({"type": "span", **s} for s in run.spans)]  # fmt: skip
    sums, others, bad = sums_of(lines)
    assert (others, bad, sums.spans) == ([], [], len(rows))
    assert as_rows(sums) == expected(run)
    spaced = [json.dumps({"type": "span", **s}).encode() + b"\n" for s in run.spans]
    assert as_rows(sums_of(spaced)[0]) == expected(run)


def test_children_in_another_thread_or_task_do_not_shorten_self():
    run = RunBuilder()
    parent = run.new_id()
    run.span("a/b", 10, parent=parent)
    run.span("a/b", 20, parent=parent, tid=7)
    run.span("a/b", 40, parent=parent, task="00000000000000aa")
    run.span("a", 100, id=parent)
    assert sums_of(span_lines(run))[0].by_path()["a"].self_ns == 90


def test_threads_may_alternate():
    run = RunBuilder()
    one, two = run.new_id(), run.new_id()
    run.span("a/b", 10, parent=one, tid=1)
    run.span("a/b", 20, parent=two, tid=2)
    run.span("a", 100, id=one, tid=1)
    run.span("a", 100, id=two, tid=2)
    assert sums_of(span_lines(run))[0].by_path()["a"].self_ns == 170


def test_self_is_right_across_blocks():
    run = RunBuilder()
    parent = run.new_id()
    run.span("a/b", 10, parent=parent)
    run.span("a", 100, id=parent)
    sums = SpanSums()
    for line in span_lines(run):
        sums.add_block(line)
    assert sums.by_path()["a"].self_ns == 90


def test_open_spans_are_in_no_sum():
    run = RunBuilder()
    outer = run.new_id()
    run.span("a/b", 10, parent=outer, flags=["unfinished"])
    run.span("a", 30, id=outer, flags=["async", "unfinished"])
    run.span("a", 5)
    stats = sums_of(span_lines(run))[0].by_path()
    assert (stats["a"].count, stats["a"].sum_ns, stats["a"].open, stats["a"].open_ns) == (1, 5, 1, 30)
    assert (stats["a/b"].count, stats["a/b"].open) == (0, 1)


def test_sampled_spans_count_by_their_weight():
    run = RunBuilder()
    run.span("a", 10, weight=100.0, measures={"flops": 5.0}, status="error")
    run.span("a", 30, weight=0.5)
    run.span("a", 99, weight=0, flags=["tail"])
    sums = sums_of(span_lines(run))[0]
    stats = sums.by_path()["a"]
    assert (stats.count, stats.sum_ns, stats.errors, stats.measures) == (100.5, 1015, 100, {"flops": 500.0})
    assert (stats.measured, stats.measured_ns, stats.max_ns) == (100, 1000, 30)
    assert stats.estimated
    assert sums.sampled == 3


def test_warm_up_is_left_out():
    run = RunBuilder()
    run.span("a", 10, flags=["warmup"])
    run.span("a", 30)
    sums = sums_of(span_lines(run))[0]
    assert (sums.by_path()["a"].count, sums.warmup, sums.spans) == (1, 1, 2)


def test_an_attribute_splits_a_path_into_its_values():
    run = RunBuilder()
    for number in range(6):
        run.span("a", 10 + number, attrs={"batch": number % 2})
    run.span("a", 5)
    run.span("b", 5, attrs={"other": None})
    sums = sums_of(span_lines(run), "batch")[0]
    split = {value: (s.count, s.sum_ns) for value, s in sums.by_value()["a"].items()}
    assert split == {"0": (3, 36), "1": (3, 39), ABSENT: (1, 5)}
    assert set(sums.by_value()) == {"a"}
    assert sums.attributes == {"batch", "other"}
    assert sums.by_path()["a"].count == 7


@pytest.mark.parametrize(
    ("value", "text"),
    [("x", "x"), (None, "null"), (True, "true"), ([1, "a"], '[1, "a"]'), (1.5, "1.5"), ("NaN", "NaN")],
)
def test_values_are_shown_as_people_write_them(value, text):
    run = RunBuilder()
    run.span("a", 1, attrs={"v": value})
    assert list(sums_of(span_lines(run), "v")[0].by_value()["a"]) == [text]


def test_values_beyond_the_cap_share_a_row():
    run = RunBuilder()
    for number in range(scan.MAX_VALUES + 10):
        run.span("a", 1, attrs={"v": number})
    values = sums_of(span_lines(run), "v")[0].by_value()["a"]
    assert len(values) == scan.MAX_VALUES + 1
    assert values[OTHERS].count == 10


def test_memory_is_bounded_whatever_a_file_says(monkeypatch):
    monkeypatch.setattr(scan, "MAX_GROUPS", 10)
    monkeypatch.setattr(scan, "MAX_WAITING", 50)
    monkeypatch.setattr(scan, "MAX_SPELLINGS", 20)
    run = RunBuilder()
    for number in range(300):
        run.span(f"p{number}", 1, parent=f"{number:016x}", tid=number % 7, attrs={"v": number})
    sums = SpanSums()
    for line in span_lines(run):
        sums.add_block(line)
    assert sums.by_path()[OTHER_PATHS].count == 290
    assert sum(s.count for s in sums.by_path().values()) == 300
    assert sums.orphaned
    assert sum(map(len, sums._waiting.values())) <= 50
    assert len(sums._extras) <= 20


@pytest.mark.parametrize(
    "wrong",
    [
        {"dur": -5},
        {"dur": "x"},
        {"dur": 1.5},
        {"start": None},
        {"path": 3},
        {"id": None},
        {"weight": "x"},
        {"weight": -1},
        {"attrs": [1]},
        {"measures": 3},
        {"measures": {"flops": None}},
        {"flags": "x"},
        {"pid": "x"},
    ],
)
def test_a_span_that_cannot_be_read_is_told_by_its_index(wrong):
    good = small_run(1).spans
    lines = [as_line({"type": "span", **line}) for line in good]
    lines.insert(1, as_line({"type": "span", **good[0], **wrong}))
    lines.insert(3, b'{"type":"loss"}\n')
    sums, others, bad = sums_of(lines)
    assert bad == [1]
    assert others == [(3, b'{"type":"loss"}')]
    assert sums.spans == len(good)


@pytest.mark.parametrize(
    "line", [b'{"type":"span","id":', b'{"type":"span"}', b'{"type":"span",}', b'{"dur":1,"type":"span"}']
)
def test_a_broken_span_is_bad_and_not_another_line(line):
    _, others, bad = sums_of([line + b"\n"])
    assert (others, bad) == ([], [0])


def test_a_line_that_mentions_spans_is_none():
    assert not is_span(b'{"type":"end","spans":3}')
    assert not is_span(b'{"kind": "span", "type": "site"}')
    assert is_span(b'{"kind": "region", "type": "span"}')


def test_the_end_of_the_last_span_is_known():
    run = RunBuilder()
    run.span("a", 100, start=1000, tid=1)
    run.span("a", 7, start=2000, tid=2)
    run.span("a", 5, start=1500, tid=1)
    assert sums_of(span_lines(run))[0].last_ns == 2007
