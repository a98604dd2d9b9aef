"""Chunks: what they hold, how they are handed over, and what happens when there are no more."""

import itertools
import os
import threading

import pytest

from instrument.recorder import _core


def spin(count, name="chunked"):
    region = _core.region(name)
    for _ in range(count):
        with region:
            pass


def test_take_answers_everything_once(recording):
    spin(10)
    assert len(recording.take()) == 10
    assert recording.take() == []
    spin(5)
    assert len(recording.take()) == 5


def test_records_come_in_order_of_completion_over_many_chunks(recorder):
    recorder.start(chunk_bytes=1024)
    for index in range(1000):
        with _core.region("ordered", index=index):
            pass
    chunks = _core.take()
    assert len(chunks) > 30
    rows = [row for chunk in chunks for row in chunk.decode()]
    assert [row[10]["index"] for row in rows] == list(range(1000))
    assert all(first[5] <= second[5] for first, second in itertools.pairwise(rows))


def test_a_parent_in_a_later_chunk_is_still_named(recorder):
    recorder.start(chunk_bytes=1024)
    with _core.step(9), _core.region("long parent"):
        spin(500, "many children")
    parent = recorder.one("long parent")
    children = recorder.named("many children")
    assert len(children) == 500
    assert {(child.parent, child.root, child.step) for child in children} == {(parent.id, parent.root, 9)}


def test_the_buffer_protocol_shows_the_events(recording):
    numpy = pytest.importorskip("numpy")
    spin(100)
    _core.mark("seen mark")
    (chunk,) = _core.take()
    view = memoryview(chunk)
    assert view.readonly
    assert view.nbytes == 32 * 101 == 32 * chunk.count
    assert chunk.marks == 1
    dtype = numpy.dtype(
        [
            ("start", "u8"),
            ("end", "u8"),
            ("path", "u4"),
            ("sequence", "u4"),
            ("attributes", "u4"),
            ("context", "u2"),
            ("flags", "u2"),
        ]
    )
    events = numpy.frombuffer(chunk, dtype)
    rows = chunk.decode()
    assert events["start"].tolist() == [row[4] for row in rows]
    assert events["end"].tolist() == [row[5] for row in rows]
    assert events["path"].tolist() == [row[3] for row in rows]
    assert events["flags"].tolist() == [row[6] for row in rows]
    assert len(set(events["sequence"].tolist())) == 101
    with pytest.raises((TypeError, ValueError, BufferError)):
        view[0] = 1


def test_a_view_keeps_its_chunk(recorder):
    recorder.start(buffer_bytes=2 << 20)
    spin(100)
    view = memoryview(_core.take()[0])
    before = bytes(view)
    spin(20_000)
    _core.take()
    recorder.stop()
    recorder.start(buffer_bytes=2 << 20)
    spin(20_000)
    assert bytes(view) == before


def test_a_chunk_outlives_the_session_and_the_next(recorder):
    recorder.start()
    for index in range(50):
        with _core.region("outliving", index=index):
            pass
    chunks = _core.take()
    decoded, lines = chunks[0].decode(), chunks[0].jsonl(0)
    recorder.stop()
    assert chunks[0].decode() == decoded
    recorder.start(chunk_bytes=2048, max_paths=1)
    for name in ("other path", "and another", "third"):
        spin(1000, name)
    _core.take()
    assert chunks[0].decode() == decoded
    assert chunks[0].jsonl(0) == lines
    used = _core.memory()[0]
    del chunks
    assert _core.memory()[0] < used


@pytest.mark.parametrize("nested", [False, True])
def test_the_newest_are_dropped_and_counted_exactly(recorder, nested):
    recorder.start(buffer_bytes=1 << 20, chunk_bytes=1 << 14)
    total = 60_000
    for index in range(total // 2):
        if nested:
            with _core.region("full outer", index=index), _core.region("full inner"):
                pass
        else:
            with _core.region("full outer", index=index):
                pass
            with _core.region("full inner"):
                pass
    spans = recorder.spans()
    assert 0 < len(spans) < total
    assert recorder.losses() == {"buffer_full": total - len(spans)}
    kept = [span.attrs["index"] for span in spans if span.name == "full outer"]
    assert kept[:100] == list(range(100))
    assert kept == sorted(set(kept))


def test_the_oldest_are_overwritten_and_counted_exactly(recorder):
    recorder.start(buffer_bytes=1 << 20, chunk_bytes=1 << 14, overflow="oldest")
    total = 60_000
    for index in range(total):
        with _core.region("overwritten", index=index):
            pass
    spans = recorder.spans()
    kept = [span.attrs["index"] for span in spans]
    assert 0 < len(kept) < total
    assert kept == list(range(total - len(kept), total))
    assert recorder.losses() == {"overwritten": total - len(kept)}


def test_marks_are_counted_among_the_lost(recorder):
    recorder.start(buffer_bytes=1 << 20, chunk_bytes=1 << 14)
    for index in range(40_000):
        _core.mark("lost mark", index=index)
    kept = len(recorder.marks())
    assert recorder.losses() == {"buffer_full": 40_000 - kept}


def test_room_comes_back_when_chunks_are_taken(recorder):
    recorder.start(buffer_bytes=1 << 20, chunk_bytes=1 << 14)
    for _ in range(20):
        spin(5000)
        assert len(recorder.take()) == 5000
    assert recorder.losses() == {}


def test_chunks_that_are_held_count_against_the_buffer(recorder):
    recorder.start(buffer_bytes=1 << 20, chunk_bytes=1 << 14)
    held = []
    for _ in range(20):
        spin(5000)
        held += _core.take()
        used, bound = _core.memory()
        assert used <= bound == 1 << 20
    lost = recorder.losses()["buffer_full"]
    assert lost + sum(len(chunk) for chunk in held) == 100_000
    del held
    spin(5000)
    assert len(recorder.take()) == 5000
    assert recorder.losses()["buffer_full"] == lost


@pytest.mark.parametrize("threads", [1, 8])
def test_threads_and_a_small_buffer_lose_exactly_what_is_missing(recorder, threads):
    recorder.start(buffer_bytes=2 << 20, chunk_bytes=1 << 12)
    each = 40_000 // threads
    workers = [threading.Thread(target=spin, args=(each,)) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    kept = len(recorder.spans())
    assert kept + recorder.losses().get("buffer_full", 0) == 40_000
    assert recorder.totals()["chunked"].count == 40_000


def test_sessions_follow_one_another(recorder):
    ids = set()
    for round_ in range(3):
        recorder.start()
        spin(10 + round_, "in turn")
        recorder.stop()
        spin(5, "in turn")
        spans = recorder.spans()
        assert len(spans) == 10 + round_
        ids |= {span.id for span in spans}
    assert len(ids) == 10 + 11 + 12


def test_what_nobody_took_is_gone_at_the_next_start(recorder):
    recorder.start()
    spin(10)
    recorder.stop()
    recorder.start()
    assert recorder.take() == []
    assert recorder.losses() == {}


def test_starting_twice_is_refused_and_harms_nothing(recording):
    spin(3)
    with pytest.raises(RuntimeError, match="already recording"):
        _core.start()
    assert _core.active()
    assert len(recording.spans()) == 3


def test_stopping_twice_does_nothing(recorder):
    recorder.stop()
    recorder.start()
    recorder.stop()
    recorder.stop()
    assert not _core.active()


@pytest.mark.parametrize(
    "options",
    [
        {"buffer_bytes": 0},
        {"buffer_bytes": -1},
        {"buffer_bytes": 4096},
        {"chunk_bytes": 0},
        {"chunk_bytes": -16},
        {"chunk_bytes": 1000},
        {"chunk_bytes": 1025},
        {"chunk_bytes": (1 << 20) + 16},
        {"overflow": "middle"},
        {"overflow": ""},
    ],
    ids=str,
)
def test_options_out_of_range_are_value_errors(recorder, options):
    with pytest.raises(ValueError, match=next(iter(options))):
        _core.start(**options)
    assert not _core.active()
    recorder.start()
    spin(3)
    assert len(recorder.spans()) == 3


def test_unknown_options_are_type_errors():
    with pytest.raises(TypeError):
        _core.start(size=3)
    with pytest.raises(TypeError):
        _core.start(1 << 20)


@pytest.mark.parametrize("chunk_bytes", [1024, 4096, 1 << 20])
def test_every_size_of_chunk_holds_the_same(recorder, chunk_bytes):
    recorder.start(chunk_bytes=chunk_bytes)
    for index in range(300):
        with _core.region("any size", text="x" * (index % 50)), _core.step(index):
            _core.mark("any mark", index=index)
    assert len(recorder.spans()) == 600
    assert [mark.attrs["index"] for mark in recorder.marks()] == list(range(300))
    assert [span.attrs["text"] for span in recorder.named("any size")] == ["x" * (i % 50) for i in range(300)]
    assert recorder.losses() == {}


# ------------------------------------------------------------------ a file behind the chunks


def test_chunks_live_in_a_file_without_a_name(recorder, tmp_path):
    recorder.start(directory=str(tmp_path), chunk_bytes=4096)
    for index in range(2000):
        with _core.region("in a file", index=index):
            pass
    assert os.listdir(tmp_path) == []
    with open("/proc/self/maps") as maps:
        assert str(tmp_path) in maps.read()
    chunks = _core.take()
    recorder.stop()
    recorder.start()
    rows = [row for chunk in chunks for row in chunk.decode()]
    assert [row[10]["index"] for row in rows] == list(range(2000))


def test_a_file_backed_session_is_bounded_and_leaves_nothing_behind(recorder, tmp_path):
    def mappings():
        with open("/proc/self/maps") as maps:
            return maps.read().count(str(tmp_path))

    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        recorder.start(directory=str(tmp_path), buffer_bytes=1 << 20, chunk_bytes=1 << 14)
        spin(60_000)
        assert len(recorder.spans()) + recorder.losses()["buffer_full"] == 60_000
        recorder.stop()
    recorder.start()
    recorder.stop()
    assert mappings() == 0
    assert len(os.listdir("/proc/self/fd")) <= descriptors


@pytest.mark.parametrize("directory", ["/does/not/exist", "/proc/version", "/proc"])
def test_a_directory_that_cannot_be_used_is_an_os_error(recorder, directory):
    with pytest.raises(OSError):
        _core.start(directory=directory)
    assert not _core.active()
    recorder.start()
    spin(1)
    assert len(recorder.spans()) == 1


# ------------------------------------------------------------------ the first record


def test_the_first_record_is_reported_once(recorder):
    calls = []
    _core.on_first_record(lambda: calls.append(_core.active()))
    recorder.start()
    assert calls == []
    spin(1)
    for _ in range(10):
        pass
    assert calls == [True]
    spin(10_000)
    assert calls == [True]


def test_a_failing_report_of_the_first_record_is_swallowed(recorder):
    calls = []

    def fail():
        calls.append(1)
        raise RuntimeError("in the callback")

    _core.on_first_record(fail)
    recorder.start(chunk_bytes=1024)
    spin(1000)
    assert calls == [1]


def test_the_report_of_the_first_record_can_be_taken_back(recorder):
    calls = []
    _core.on_first_record(lambda: calls.append(1))
    _core.on_first_record(None)
    recorder.start()
    spin(10)
    assert calls == []
