"""Threads: each has its own stack, ids and name; nothing is lost when they end."""

import collections
import contextvars
import threading
import time

import pytest

from instrument.recorder import _core


def run_threads(count, target, *args):
    threads = [
        threading.Thread(target=target, args=(index, *args), name=f"worker {index}") for index in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def nest(index, rounds):
    for round_ in range(rounds // 4):
        with _core.region("n outer", thread=index, round=round_):
            with _core.region("n middle", round=round_), _core.region("n inner", thread=index):
                pass
            with _core.region("n second"):
                pass


def drain_while(thread_count, rounds, take):
    """Run the threads while the main thread takes chunks as the drain does."""
    stop = threading.Event()

    def drain():
        while not stop.wait(0.002):
            take()

    drainer = threading.Thread(target=drain)
    drainer.start()
    run_threads(thread_count, nest, rounds)
    stop.set()
    drainer.join()
    take()


@pytest.mark.parametrize(
    "rounds", [4000, pytest.param(100_000, marks=pytest.mark.slow)], ids=["short", "long"]
)
def test_every_span_of_eight_threads_is_present_once_with_its_parent(recorder, rounds):
    recorder.start(buffer_bytes=256 << 20)
    rows = []
    drain_while(8, rounds, lambda: rows.extend(row for chunk in _core.take() for row in chunk.decode()))
    assert recorder.losses() == {}
    assert len(rows) == 8 * rounds
    by_id = {row[0]: row for row in rows}
    assert len(by_id) == len(rows)
    name = {index: _core.path(index)[2] for index in range(1, _core.path_count())}
    seen = collections.Counter()
    for row in rows:
        path, attrs = name[row[3]], row[10] or {}
        seen[path] += 1
        if path == "n outer":
            assert row[1] == 0
            assert set(attrs) == {"thread", "round"}
            continue
        parent = by_id[row[1]]
        assert name[parent[3]] == path.rpartition("/")[0]
        assert parent[4] <= row[4] <= row[5] <= parent[5]
        assert by_id[row[2]][1] == 0
        if path.endswith("middle"):
            assert attrs == {"round": parent[10]["round"]}
        elif path.endswith("inner"):
            assert attrs == {"thread": by_id[row[2]][10]["thread"]}
        else:
            assert attrs == {}
    quarter = 8 * rounds // 4
    paths = ("n outer", "n outer/n middle", "n outer/n middle/n inner", "n outer/n second")
    assert seen == dict.fromkeys(paths, quarter)
    outers = {(row[10]["thread"], row[10]["round"]) for row in rows if name[row[3]] == "n outer"}
    assert outers == {(thread, round_) for thread in range(8) for round_ in range(rounds // 4)}
    assert {path: total.count for path, total in recorder.totals().items()} == seen


@pytest.mark.parametrize("overflow", ["newest", "oldest"])
@pytest.mark.parametrize(
    "rounds", [4000, pytest.param(100_000, marks=pytest.mark.slow)], ids=["short", "long"]
)
def test_with_a_small_buffer_kept_and_lost_are_all(recorder, rounds, overflow):
    recorder.start(buffer_bytes=(1 << 20) + (256 << 10), chunk_bytes=4096, overflow=overflow)
    run_threads(8, nest, rounds)
    kept = recorder.spans()
    lost = recorder.losses()
    assert set(lost) <= {"buffer_full", "overwritten"}
    assert len(kept) + sum(lost.values()) == 8 * rounds
    assert 0 < len(kept) < 8 * rounds
    assert len({span.id for span in kept}) == len(kept)
    assert sum(total.count for total in recorder.totals().values()) == 8 * rounds
    used, bound = _core.memory()
    assert used <= bound


def test_threads_are_listed_with_name_and_id(recording):
    ids = {}

    def work(index):
        with _core.region("listed"):
            ids[f"worker {index}"] = threading.get_native_id()

    run_threads(3, work)
    with _core.region("listed"):
        ids["MainThread"] = threading.get_native_id()
    chunks = _core.take()
    rows = _core.threads()
    assert {name: tid for _, tid, name in rows} == ids
    assert {serial for serial, _, _ in rows} == {chunk.thread for chunk in chunks}
    assert {chunk.tid for chunk in chunks} == set(ids.values())
    assert _core.threads(2) == rows[2:]
    assert _core.threads(100) == []


def test_a_thread_that_python_does_not_know_has_an_empty_name(recording):
    import _thread

    done = threading.Event()

    def work():
        with _core.region("foreign"):
            pass
        done.set()

    _thread.start_new_thread(work, ())
    assert done.wait(10)
    recording.one("foreign")
    assert [name for _, _, name in _core.threads()] == [""]
    assert all(type(thread).__name__ != "_DummyThread" for thread in threading.enumerate())


def test_threads_that_record_nothing_are_not_listed(recording):
    run_threads(3, lambda index: None)
    run_threads(3, lambda index: _core.region("made only"))
    assert _core.threads() == []


def test_each_session_lists_its_own_threads(recorder):
    for _ in range(3):
        recorder.start()
        with _core.region("main again"):
            pass
        run_threads(2, lambda index: _core.mark("from thread"))
        recorder.take()
        assert [name for _, _, name in _core.threads()] == ["MainThread", "worker 0", "worker 1"]
        recorder.stop()


def test_ids_are_unique_over_hundreds_of_threads(recording):
    def work(index):
        for _ in range(20):
            with _core.region("short lived"):
                pass

    for _ in range(10):
        run_threads(30, work)
    spans = recording.spans()
    assert len(spans) == 6000
    assert len({span.id for span in spans}) == 6000
    assert 0 not in {span.id for span in spans}


def test_threads_that_end_give_their_memory_back(recording):
    run_threads(10, nest, 400)
    _core.take()
    before = _core.memory()[0]
    for _ in range(20):
        run_threads(10, nest, 400)
        _core.take()
    assert _core.memory()[0] - before < 256 << 10  # some spare chunks more or less; the threads took more
    assert recording.totals()["n outer"].count == 21 * 10 * 100


def test_spans_that_a_thread_left_open_when_it_ended_are_unfinished(recording):
    def work(index):
        _core.region("never left", index=index).__enter__()

    run_threads(5, work)
    deadline = time.monotonic() + 10  # join() returns a moment before the thread is gone
    while len(recording.named("never left")) < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    spans = recording.named("never left")
    assert sorted(span.attrs["index"] for span in spans) == list(range(5))
    assert all(span.flags == {"unfinished"} for span in spans)
    total = recording.totals()["never left"]
    assert (total.count, total.open) == (0, 5)


def test_a_context_of_contextvars_changes_nothing(recording):
    with _core.region("around context"):
        contextvars.copy_context().run(lambda: _core.region("in context").__enter__())
        _core.region("in context").__exit__(None, None, None)
    assert recording.one("in context").parent == recording.one("around context").id
