"""A thousand sessions, one after the other, leave nothing behind."""

import contextlib
import gc
import threading
import tracemalloc

import pytest

import instrument
from instrument.recorder import _core
from instrument.testing import InMemoryExporter


@instrument.kernel(flops=lambda x: x)
def kernel(x):
    return x


def work():
    for number in range(10):
        with instrument.region("outer", number=number), instrument.step(number):
            kernel(number)
            instrument.mark("mark", text="x" * number)
            instrument.count("counted", part=number % 3)
            with contextlib.suppress(ValueError), instrument.region("fails"):
                raise ValueError


def session(number, folder):
    """Into a file, into memory, or into nothing; ended by stop or by its block; with a thread, or without."""
    target = (f"json:{folder}/run.jsonl", f"json:{folder}/run.jsonl.gz", InMemoryExporter(), None)[number % 4]
    with instrument.session(export=target, buffer_mib=2, interval=60) as running:
        work()
        if number % 3 == 0:
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        if number % 2:
            instrument.flush()
    assert running.stop().spans >= 40
    assert not running.losses()


def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def level():
    """What the recorder uses after an empty session: totals stay readable after `stop`."""
    with instrument.session():
        pass
    return _core.memory()[0]


@pytest.mark.parametrize("times", [100, pytest.param(1_000, marks=pytest.mark.slow)])
def test_many_sessions_leave_no_memory_and_no_thread_behind(tmp_path, times):
    for number in range(60):
        session(number, tmp_path)
    threads, used, at_first = threading.active_count(), level(), resident()
    gc.collect()
    tracemalloc.start(1)
    try:
        for number in range(24):  # what is kept once is now known to tracemalloc too
            session(number, tmp_path)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for number in range(times):
            session(number, tmp_path)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert level() == used
    assert threading.active_count() == threads
    assert grown < 20_000 + 50 * times, f"{grown / times:.0f} bytes a session"
    assert resident() - at_first < 16 << 20
