"""One bound for everything, and a level that it comes back to."""

import contextlib
import gc
import os
import threading
import tracemalloc

import pytest

import instrument
from instrument.recorder import _core


def busy(rounds=300):
    for index in range(rounds):
        with _core.region("m outer", text="x" * (index % 200)) as outer, _core.step(None, "m step"):
            outer.set(late=index)
            _core.annotate(more=[1, 2, 3])
            _core.mark("m mark", index=index)
            with contextlib.suppress(ValueError), _core.region(f"m {index % 30}"):
                raise ValueError


def level(recorder):
    """What is in use after an empty session: totals stay readable after `stop`, and their size varies."""
    recorder.start()
    recorder.stop()
    return _core.memory()[0]


def test_two_hundred_sessions_end_at_the_same_level(recorder):
    levels = []
    for _ in range(200):
        recorder.start()
        busy(50)
        _core.take()
        recorder.stop()
        levels.append(level(recorder))
    assert max(levels[5:]) == min(levels[5:])


def test_fifty_sessions_in_a_file_end_at_the_same_level(recorder, tmp_path):
    levels = []
    for _ in range(50):
        recorder.start(directory=str(tmp_path))
        busy(50)
        _core.take()
        recorder.stop()
        levels.append(level(recorder))
    assert max(levels[5:]) == min(levels[5:])


def test_what_is_in_use_stays_within_the_bound(recorder):
    recorder.start(buffer_bytes=1 << 20, chunk_bytes=1 << 13)
    for _ in range(100):
        busy(100)
        used, bound = _core.memory()
        assert used <= bound == 1 << 20
    losses = recorder.losses()
    kept = len(recorder.spans()) + len(recorder.marks())
    assert kept + losses["buffer_full"] == 100 * 100 * 4


def test_a_bound_too_small_for_totals_counts_what_is_missing(recorder):
    recorder.start(buffer_bytes=300_000, chunk_bytes=1024)
    regions = [_core.region(f"small {index}") for index in range(400)]
    for _ in range(3):
        for region in regions:
            with region:
                pass
    used, bound = _core.memory()
    assert used <= bound
    losses = recorder.losses()
    assert losses.get("memory", 0) + losses.get("paths", 0) > 0
    assert recorder.totals()
    spans = recorder.spans()
    assert len(spans) + losses.get("buffer_full", 0) == 1200


def test_memory_comes_back_when_chunks_are_freed(recording):
    before = _core.memory()[0]
    busy(3000)
    chunks = _core.take()
    held = _core.memory()[0]
    assert held > before + sum(memoryview(chunk).nbytes for chunk in chunks[:-1]) // 2
    recording.stop()
    del chunks
    assert _core.memory()[0] < held


def test_bytes_of_an_event_are_thirty_two(recorder):
    """And 64 with two small attributes."""
    for attrs, size in (({}, 32), ({"a": 1, "b": 2.5}, 64)):
        recorder.start(chunk_bytes=65536)
        for _ in range(20_000):
            with _core.region("sized", **attrs):
                pass
        chunk = max(_core.take(), key=len)
        assert 65536 / len(chunk) < size + 1
        recorder.stop()


def everything():
    """Every verb, every odd turn, and every reader."""
    _core.start(chunk_bytes=2048)
    busy(20)

    @instrument.kernel(flops=lambda x: {"fp16": x}, bytes=lambda x: "wrong", attrs=lambda x: {"x": x})
    def kernel(x):
        if x == 3:
            raise ValueError

    @instrument.region("leak region", a=1)
    def decorated(x):
        kernel(x)

    for x in range(5):
        with contextlib.suppress(ValueError):
            decorated(x)
    with contextlib.suppress(TypeError):
        kernel()
    _core.region("leak unmatched").__exit__(None, None, None)
    _core.region(3, value=object(), text="é" * 5000, items=["x" * 500, 2**70, object()])
    _core.step("no number", 4, name=1)
    for verb in (_core.count, _core.gauge, _core.observe):
        verb("leak metric", 1.5, a="x" * 5000, b=object(), c=2**70)
        verb(3, "wrong")
    thread = threading.Thread(target=busy, args=(5,))
    thread.start()
    thread.join()
    for chunk in _core.take():
        chunk.decode()
        chunk.jsonl(0)
        memoryview(chunk).tobytes()
        assert min(chunk.thread, chunk.tid, chunk.count) > 0 <= chunk.marks
    for index in range(1, _core.path_count()):
        _core.path(index)
    for read in (
        _core.totals,
        _core.metrics,
        _core.losses,
        _core.threads,
        _core.sites,
        _core.tick,
        _core.memory,
    ):
        read()
    for arguments in ({"overflow": "x"}, {"chunk_bytes": 3}, {}):
        with contextlib.suppress(ValueError, RuntimeError):
            _core.start(**arguments)
    _core.stop()
    for arguments in (
        {"overflow": "x"},
        {"chunk_bytes": 3},
        {"directory": "/does/not/exist"},
        {"buffer_bytes": 1},
    ):
        with contextlib.suppress(ValueError, OSError):
            _core.start(**arguments)


def test_doing_everything_again_and_again_leaks_nothing(recorder):
    for _ in range(60):  # until the caches of names, which are bounded, are full
        everything()
    gc.collect()
    tracemalloc.start(8)
    try:
        everything()
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(30):
            everything()
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 30 * 1000, f"{grown / 30:.0f} bytes a round"


@pytest.mark.slow
@pytest.mark.skipif(
    os.environ.get("INSTRUMENT_TEST_SANITIZED") == "1", reason="the address sanitizer keeps what is freed"
)
def test_resident_memory_stays_flat_over_millions_of_spans(recorder):
    def resident():
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * 4096

    recorder.start(buffer_bytes=8 << 20)
    region = _core.region("flat")
    levels = []
    for _ in range(40):
        for _ in range(50_000):
            with region:
                pass
        for chunk in _core.take():
            chunk.jsonl(0)
        levels.append(resident())
    assert max(levels[20:]) - levels[10] < 8 << 20
    assert recorder.totals()["flat"].count == 2_000_000
