"""Totals per path equal what the spans say, to the nanosecond."""

import collections
import contextlib
import threading
import time

import pytest

from instrument.recorder import _core


def bucket(ns):
    """The lowest value of the bucket of a duration: exact below 32 ns, then 32 buckets an octave."""
    if ns < 32:
        return ns
    shift = ns.bit_length() - 6
    return ns >> shift << shift


def expected_totals(spans):
    children = collections.Counter()
    for span in spans:
        children[span.parent] += span.ns
    rows = {}
    for span in spans:
        rows.setdefault(span.path, []).append(span)
    return {
        path: {
            "count": len(group),
            "errors": sum(span.failed for span in group),
            "sum_ns": sum(span.ns for span in group),
            "self_ns": sum(span.ns - children[span.id] for span in group),
            "min_ns": min(span.ns for span in group),
            "max_ns": max(span.ns for span in group),
            "histogram": sorted(collections.Counter(bucket(span.ns) for span in group).items()),
        }
        for path, group in rows.items()
    }


def assert_totals_match(recorder):
    expected = expected_totals(recorder.spans())
    totals = recorder.totals()
    assert set(totals) == set(expected)
    for path, values in expected.items():
        for field, value in values.items():
            assert getattr(totals[path], field) == value, (path, field)
        assert totals[path].open == 0


def work(rounds):
    for index in range(rounds):
        with _core.region("t outer", index=index):
            with _core.region("t leaf"):
                pass
            with contextlib.suppress(ValueError), _core.region("t leaf"):
                if index % 3 == 0:
                    raise ValueError
            if index % 100 == 0:
                with _core.region("t slow"):
                    time.sleep(0.0005)
        with _core.step(None, "t step"), _core.region("t leaf"):
            pass


def test_totals_are_the_sums_over_the_spans(recording):
    work(2000)
    assert_totals_match(recording)


def test_totals_of_threads_add_up_while_they_live_and_after(recording):
    done, leave = threading.Barrier(5), threading.Event()

    def run():
        work(500)
        done.wait()
        leave.wait()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    work(100)
    done.wait()
    assert_totals_match(recording)
    alive = _core.totals()
    leave.set()
    for thread in threads:
        thread.join()
    assert _core.totals() == alive


def test_totals_stay_exact_when_the_buffer_is_full(recorder):
    recorder.start(buffer_bytes=2 << 20, chunk_bytes=65536)
    for _ in range(200_000):
        with _core.region("uncounted"):
            pass
    assert recorder.totals()["uncounted"].count == 200_000
    kept = len(recorder.spans())
    assert kept < 200_000
    assert recorder.losses() == {"buffer_full": 200_000 - kept}


def test_totals_stay_readable_after_stop_and_begin_anew_at_start(recorder):
    recorder.start()
    with _core.region("readable"):
        pass
    before = _core.totals()
    recorder.stop()
    assert _core.totals() == before
    recorder.start()
    assert _core.totals() == []


def test_open_spans_are_shown_as_open(recording):
    with _core.region("open one"), _core.region("open two"):
        with _core.region("open two"):
            totals = recording.totals()
        assert totals["open one"].open == 1
        assert totals["open one"].count == totals["open one"].min_ns == 0
        assert totals["open one/open two"].open == 1
        assert totals["open one/open two/open two"].open == 1
    assert {total.open for total in recording.totals().values()} == {0}


def test_buckets_hold_every_duration():
    """The bounds that the C code uses, checked through one octave at a time."""
    assert [bucket(ns) for ns in (0, 31, 32, 63, 64, 65, 66, 127, 128, 131, 132)] == [
        0, 31, 32, 63, 64, 64, 66, 126, 128, 128, 132,
    ]  # fmt: skip


def test_the_histogram_widens_in_both_directions(recording):
    region = _core.region("widening")
    with region:
        time.sleep(0.02)
    for _ in range(50):
        with region:
            pass
    with region:
        time.sleep(0.1)
    assert_totals_match(recording)
    histogram = recording.totals()["widening"].histogram
    assert histogram[0][0] < 1_000_000
    assert histogram[-1][0] >= 90_000_000
    assert sum(count for _, count in histogram) == 52


def test_unfinished_spans_count_as_open_and_not_as_time(recorder):
    recorder.start()
    with _core.region("unfinished one"):
        with _core.region("unfinished one"):
            pass
        recorder.stop()
    totals = recorder.totals()
    assert (totals["unfinished one"].count, totals["unfinished one"].open) == (0, 1)
    assert totals["unfinished one/unfinished one"].count == 1


@pytest.mark.parametrize("order", [1, -1])
def test_a_generator_left_below_others_keeps_the_totals_exact(recording, order):
    def generator(name):
        with _core.region(name):
            yield

    generators = [generator(f"gen {index}") for index in range(5)]
    for each in generators:
        next(each)
    for each in generators[::order]:
        with pytest.raises(StopIteration):
            next(each)
    spans = recording.spans()
    totals = recording.totals()
    for span in spans:
        total = totals[span.path]
        assert (total.count, total.sum_ns, total.open) == (1, span.ns, 0)
        assert 0 <= total.self_ns <= span.ns
