"""The recorder's clock follows CLOCK_MONOTONIC and never runs backwards."""

import os
import shutil
import subprocess
import sys
import time

import pytest

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
    before = time.monotonic_ns()
    now = _core.now()
    after = time.monotonic_ns()
    assert before - 1_000_000 <= now <= after + 1_000_000


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


CLOCK_THAT_SLEEPS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
static long long slept, asleep_since;
static int (*real)(clockid_t, struct timespec *);
static long long now(void)
{
    struct timespec ts;
    real(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * 1000000000ll + ts.tv_nsec;
}
void fall_asleep(void) { asleep_since = now(); }
void wake_up(void) { slept += now() - asleep_since; asleep_since = 0; }
int clock_gettime(clockid_t id, struct timespec *ts)
{
    if (!real) /* others may ask before any constructor of ours would run */
        *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    if (id != CLOCK_MONOTONIC)
        return real(id, ts);
    long long ns = (asleep_since ? asleep_since : now()) - slept;
    ts->tv_sec = ns / 1000000000;
    ts->tv_nsec = ns % 1000000000;
    return 0;
}
"""

SLEEPY_PROGRAM = """
import ctypes, select, sys, time
from instrument.recorder import _core

machine = ctypes.CDLL(sys.argv[1])
_core.start()
for seconds in (0.02, 0.3, 1.0):
    for _ in range(3):
        select.select([], [], [], 0.02)
        _core.tick()
    machine.fall_asleep()
    select.select([], [], [], seconds)
    machine.wake_up()
    _core.tick()
    for _ in range(8):
        outer = time.monotonic_ns()
        with _core.region("after waking") as region:
            inner = time.monotonic_ns()
            select.select([], [], [], 0.02)
            inner = time.monotonic_ns() - inner
        outer = time.monotonic_ns() - outer
        measured = region.seconds * 1e9
        assert 0.99 * inner <= measured <= 1.01 * outer, (seconds, inner, measured, outer)
        _core.tick()
    before = time.monotonic_ns()
    now = _core.now()
    assert before - 1_000_000 <= now <= time.monotonic_ns() + 1_000_000
"""


@pytest.mark.skipif(_core.clock_source() != "tsc", reason="the recorder reads CLOCK_MONOTONIC itself here")
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_durations_are_right_after_the_machine_slept_while_the_counter_ran_on(tmp_path):
    (tmp_path / "clock.c").write_text(CLOCK_THAT_SLEEPS)
    library = str(tmp_path / "clock.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, str(tmp_path / "clock.c"), "-ldl"], check=True)
    path = os.pathsep.join(filter(None, sys.path))
    preload = os.pathsep.join(filter(None, [os.environ.get("LD_PRELOAD"), library]))
    environ = {**os.environ, "PYTHONPATH": path, "LD_PRELOAD": preload}
    done = subprocess.run(
        [sys.executable, "-c", SLEEPY_PROGRAM, library],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
