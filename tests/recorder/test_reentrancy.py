"""Finalizers and callbacks may record in the middle of our own work."""

import contextlib
import gc
import threading

import pytest

from instrument.recorder import _core


class Recording:
    """Garbage whose finalizer records, with names and paths that are new at that moment."""

    def __init__(self, number):
        self.number, self.me = number, self

    def __del__(self):
        with _core.region(f"finalizer {self.number % 40}", number=self.number):
            _core.mark("finalizer mark")
            for depth in range(3):
                with _core.region(f"finalizer inner {depth}"):
                    pass


@pytest.fixture(autouse=True)
def no_garbage_left(recorder):
    """Finalizers that run later would record into another test's session."""
    yield
    gc.collect()


@pytest.fixture
def eager_collector():
    """The cyclic collector runs at every few allocations."""
    before = gc.get_threshold()
    gc.collect()
    gc.set_threshold(1, 1, 1)
    yield
    gc.set_threshold(*before)


def assert_a_tree(spans):
    by_id = {span.id: span for span in spans}
    assert len(by_id) == len(spans)
    for span in spans:
        if not span.parent:
            assert "/" not in span.path
            continue
        parent = by_id[span.parent]
        assert span.path == f"{parent.path}/{span.name}"
        assert parent.start <= span.start <= span.end <= parent.end


def test_a_finalizer_that_records_does_not_disturb_new_paths(recorder, eager_collector):
    recorder.start()
    for number in range(400):
        Recording(number)
        with _core.region(f"r {number % 50}", number=number):
            Recording(1000 + number)
            with _core.region(f"inner {number % 20}"), _core.step(number, f"s {number % 5}"):
                _core.mark(f"mark {number % 30}", number=number)
    gc.collect()
    spans = recorder.spans()
    assert_a_tree(spans)
    assert sum(span.name.startswith("r ") for span in spans) == 400
    assert sum(span.name.startswith("inner ") for span in spans) == 400
    assert [span.attrs["number"] for span in spans if span.name.startswith("r ")] == list(range(400))
    assert recorder.losses() == {}
    totals = recorder.totals()
    assert sum(total.count for path, total in totals.items() if "mark" not in path) == len(spans)
    paths = [_core.path(index)[2] for index in range(1, _core.path_count())]
    assert len(paths) == len(set(paths))


def test_sites_keep_their_index_whatever_is_made_meanwhile(recorder, eager_collector):
    recorder.start()
    for number in range(60):
        Recording(2000 + number)
        with _core.region(f"indexed {number}"):
            pass
    sites = _core.sites()
    assert [site.index for site in sites] == list(range(len(sites)))


def test_threads_begun_under_an_eager_collector_have_one_state_each(recorder, eager_collector):
    recorder.start()

    def work(number):
        Recording(number)
        with _core.region("of thread", number=number):
            pass

    for number in range(50):
        Recording(number)
        thread = threading.Thread(target=work, args=(number,))
        thread.start()
        thread.join()
    spans = recorder.spans()
    assert_a_tree(spans)
    assert sorted(span.attrs["number"] for span in spans if span.name == "of thread") == list(range(50))


def test_a_finalizer_that_runs_while_a_path_is_made_leaves_both_paths_right(recorder):
    """On 3.11 the collector runs inside allocations, also inside ours; lists in use empty the free list."""
    recorder.start()
    fixed = _core.region("fixed leaf")
    parents = [_core.region(f"fixed parent {number}") for number in range(100)]
    before = gc.get_threshold()
    gc.collect()
    try:
        for number, parent in enumerate(parents):
            with parent:
                held = [[] for _ in range(100)]
                gc.set_threshold(1, 1, 1)
                Recording(number)
                with fixed:
                    pass
                gc.set_threshold(*before)
                del held
    finally:
        gc.set_threshold(*before)
    spans = recorder.spans()
    assert_a_tree(spans)
    assert sum(span.name == "fixed leaf" for span in spans) == 100
    assert sum(span.name.startswith("fixed parent ") for span in spans) == 100
    paths = [_core.path(index)[2] for index in range(1, _core.path_count())]
    assert len(paths) == len(set(paths))


class Deep:
    """Garbage whose finalizer opens more spans than the stack has room for."""

    def __init__(self, depth):
        self.depth, self.me = depth, self

    def __del__(self):
        with contextlib.ExitStack() as stack:
            for _ in range(self.depth):
                stack.enter_context(_core.region("deep"))


def test_paths_made_while_the_totals_are_read_do_not_disturb_them(recorder):
    """Lists in use empty the free list, so that the collector runs when the list of totals is made."""
    recorder.start()
    before = gc.get_threshold()
    gc.collect()
    try:
        with _core.region("known"):
            gc.set_threshold(10_000)
            [Recording(3000 + number) for number in range(40)]
            held = [[] for _ in range(100)]
            gc.set_threshold(1)
            rows = _core.totals()
    finally:
        gc.set_threshold(*before)
    del held
    assert [row[3] for row in rows if _core.path(row[0])[2] == "known"] == [1]
    assert {row[3] for row in rows if _core.path(row[0])[2] != "known"} <= {0}


def test_a_finalizer_that_grows_the_stack_does_not_disturb_a_measured_kernel(recorder, eager_collector):
    site = _core.kernel_site("measured while the stack grows", "x.py", 1)
    depths = iter(range(80, 10_000, 80))

    def evaluate():
        Deep(next(depths))
        return {"float16": 2, "float32": 3}, 7, {f"a{number}": number for number in range(10)}

    marker = _core.Marker(site, evaluate)
    recorder.start()
    for _ in range(20):
        marker.enter(marker.measure())
        marker.leave()
    total = recorder.totals()["measured while the stack grows"]
    assert (total.count, total.measured, total.flops, total.bytes) == (20, 20, 100.0, 140.0)
