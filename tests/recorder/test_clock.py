"""The recorder's clock follows CLOCK_MONOTONIC and never runs backwards."""

import time

from instrument.recorder import _core


def test_now_lies_between_two_readings_of_the_monotonic_clock(recording):
    for _ in range(100):
        before = time.monotonic_ns()
        now = _core.now()
        after = time.monotonic_ns()
        assert before - 1_000_000 <= now <= after + 1_000_000


def test_time_never_runs_backwards_over_many_ticks(recording):
    last = _core.now()
    for round_ in range(2000):
        if round_ % 20 == 0:
            _core.tick()
        now = _core.now()
        assert now >= last
        last = now


def test_a_tick_reads_the_monotonic_and_the_wall_clock(recording):
    before = time.monotonic_ns(), time.time_ns()
    _, monotonic, wall = _core.tick()
    after = time.monotonic_ns(), time.time_ns()
    slack = 1_000_000
    assert before[0] - slack <= monotonic <= after[0] + slack
    assert before[1] - slack <= wall <= after[1] + slack


def test_ticks_keep_the_clock_within_a_millisecond_after_a_pause(recording):
    time.sleep(0.05)
    _core.tick()
    time.sleep(0.05)
    _core.tick()
    assert abs(_core.now() - time.monotonic_ns()) < 1_000_000


def test_the_source_is_named():
    assert _core.clock_source() in {"tsc", "monotonic"}


def test_a_span_lasts_as_long_as_its_body_slept(recording):
    before = time.monotonic_ns()
    with _core.region("sleeper"):
        time.sleep(0.01)
    elapsed = time.monotonic_ns() - before
    span = recording.one("sleeper")
    assert 10_000_000 * 0.999 <= span.ns <= elapsed * 1.001 + 1_000


def test_a_child_lies_within_its_parent_to_the_nanosecond(recording):
    for _ in range(200):
        with _core.region("outer"), _core.region("inner"):
            pass
    outer = {span.id: span for span in recording.named("outer")}
    inner = [span for span in recording.records if span.name == "inner"]
    assert len(inner) == len(outer) == 200
    for span in inner:
        parent = outer[span.parent]
        assert parent.start <= span.start <= span.end <= parent.end
