"""`after_fork` alone: new ids, nothing inherited, open spans of the parent left in silence."""

import json
import os
import threading
from types import SimpleNamespace

import pytest

from instrument import lifecycle
from instrument.recorder import _core


@pytest.fixture(autouse=True)
def no_hook_of_a_session(monkeypatch):
    """One that another test's session has left in this process would call `after_fork` before we do."""
    monkeypatch.setattr(lifecycle, "_core", SimpleNamespace(after_fork=lambda: 0))


def in_child(work):
    """Fork, run `work` in the child, and answer what it returned, as JSON."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(reading)
            os.write(writing, json.dumps(work()).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        data = stream.read()
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    return json.loads(data)


def decoded():
    return [row[:9] for chunk in _core.take() for row in chunk.decode()]


def spin(count, name="forked"):
    for index in range(count):
        with _core.region(name, index=index):
            pass


def test_what_was_inherited_is_discarded_and_counted(recording):
    spin(9)

    def work():
        discarded = _core.after_fork()
        spin(100)
        return discarded, len(decoded()), _core.losses(), _core.active()

    assert in_child(work) == [9, 100, {"inherited": 9}, True]
    assert len(recording.spans()) == 9


def test_sealed_chunks_are_inherited_too(recorder):
    recorder.start(chunk_bytes=1024)
    spin(500)
    assert in_child(_core.after_fork) == 500
    assert len(recorder.spans()) == 500


def test_ids_are_new_in_the_child(recording):
    spin(10)

    def work():
        _core.after_fork()
        spin(1000)
        return [row[0] for row in decoded()]

    ids = in_child(work) + in_child(work)
    spin(1000)
    ids += [span.id for span in recording.spans()]
    assert len(ids) == 2 * 1000 + 1010
    assert len(set(ids)) == len(ids)


def test_random_seed_neither_repeats_ids_nor_is_used(recording):
    import random

    def work():
        random.seed(0)
        _core.after_fork()
        spin(10)
        return [row[0] for row in decoded()], random.random()

    first, second = in_child(work), in_child(work)
    assert not set(first[0]) & set(second[0])
    assert first[1] == second[1] == random.Random(0).random()


def test_open_spans_of_the_parent_are_left_in_silence(recording):
    with _core.region("opened by the parent", a=1), _core.step(5), _core.region("inner of the parent"):

        def work():
            _core.after_fork()
            with _core.region("c outer"), _core.region("c inner"), _core.region("c leaf"):
                pass
            _core.mark("c mark")
            _core.region("opened by the parent").set(late=1)
            _core.annotate(late=1)
            for name in ("inner of the parent", "opened by the parent"):
                _core.region(name).__exit__(None, None, None)
            with _core.region("c after"):
                pass
            names = {index: _core.path(index)[2] for index in range(1, _core.path_count())}
            rows = [(names[row[3]], *row[:3], row[7]) for row in decoded()]
            return rows, _core.losses(), [(names[row[0]], row[1], row[3]) for row in _core.totals()]

        rows, losses, totals = in_child(work)
    leaf, inner, outer, mark, after = rows
    assert [row[0] for row in rows[:3]] == ["c outer/c inner/c leaf", "c outer/c inner", "c outer"]
    assert [row[0] for row in rows[3:]] == ["c mark", "c after"]
    assert (outer[2], inner[2], leaf[2], mark[2], after[2]) == (0, outer[1], inner[1], 0, 0)
    assert outer[3] == inner[3] == leaf[3] == outer[1]
    assert all(row[4] is None for row in rows)
    assert losses == {"set_without_span": 2}
    assert {tuple(total) for total in totals} == {
        ("c outer", 1, 0),
        ("c outer/c inner", 1, 0),
        ("c outer/c inner/c leaf", 1, 0),
        ("c after", 1, 0),
    }
    assert recording.one("opened by the parent").attrs == {"a": 1}
    assert recording.losses() == {}


def test_totals_metrics_and_threads_begin_anew(recording):
    spin(7)
    _core.count("before fork", 3)
    stay = threading.Event()
    entered = threading.Event()

    def hold():
        with _core.region("held by a thread"):
            entered.set()
            stay.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait()

    def work():
        _core.after_fork()
        before = len(_core.totals()), len(_core.metrics()), len(_core.threads())
        spin(3)
        _core.count("after fork", 1)
        decoded()
        rows = _core.threads()
        totals = [(row[1], row[3]) for row in _core.totals()]
        return before, totals, len(_core.metrics()), len(rows), rows[0][1] == threading.get_native_id()

    assert in_child(work) == [[0, 0, 0], [[3, 0]], 1, 1, True]
    stay.set()
    thread.join()
    assert recording.totals()["held by a thread"].count == 1


def test_memory_comes_back_and_a_session_works_in_the_child(recording):
    spin(20_000)

    def work():
        held = _core.memory()[0]
        _core.after_fork()
        after = _core.memory()[0]
        _core.stop()
        _core.start()
        spin(5)
        return held > after, len(decoded()), _core.losses()

    assert in_child(work) == [True, 5, {}]


def test_while_nothing_records_it_does_nothing(recorder):
    def work():
        discarded = _core.after_fork()
        spin(3)
        return discarded, len(decoded()), _core.active()

    assert in_child(work) == [0, 0, False]


def test_a_file_behind_the_chunks_stays_the_parents(recorder, tmp_path):
    recorder.start(directory=str(tmp_path), chunk_bytes=4096)
    spin(50)

    def work():
        _core.after_fork()
        spin(5000, "written by the child")
        return len(decoded())

    assert in_child(work) == 5000
    spin(50)
    assert [span.attrs["index"] for span in recorder.spans()] == [*range(50), *range(50)]


def test_chunks_that_python_holds_survive_the_fork(recording):
    spin(10)
    chunks = _core.take()

    def work():
        _core.after_fork()
        spin(1000)
        before = len(chunks[0].decode())
        chunks.clear()
        return before, len(decoded())

    assert in_child(work) == [10, 1000]
    assert len(chunks[0].decode()) == 10


@pytest.mark.skipif(not _core.HOOKS_IN_PLACE, reason="functions are hooked in place on 3.12+")
def test_hooks_stay_in_the_child(recording):
    def function():
        pass

    _core.hook(function, _core.kernel_site("forked kernel", __file__, 1), None)

    def work():
        _core.after_fork()
        function()
        return len(decoded())

    assert in_child(work) == 1
