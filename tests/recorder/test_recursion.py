"""Recursion goes as deep as it does without us, for kernels, region decorators and `with`."""

import sys

import pytest

import instrument
from instrument.recorder import _core


@pytest.fixture
def recursion_limit():
    before = sys.getrecursionlimit()
    yield sys.setrecursionlimit
    sys.setrecursionlimit(before)


def depth_now():
    depth, frame = 0, sys._getframe(1)
    while frame:
        depth, frame = depth + 1, frame.f_back
    return depth


def plain(n):
    return 0 if n == 0 else 1 + plain(n - 1)


@instrument.kernel
def kernel(n):
    return 0 if n == 0 else 1 + kernel(n - 1)


@instrument.kernel(flops=lambda n: n, attrs=lambda n: {"n": n})
def measured(n):
    return 0 if n == 0 else 1 + measured(n - 1)


@instrument.region("recursive decorator", a=1)
def decorated(n):
    return 0 if n == 0 else 1 + decorated(n - 1)


def within(n):
    with instrument.region("recursive with"):
        return 0 if n == 0 else 1 + within(n - 1)


def within_attrs(n):
    with instrument.region("recursive with attrs", n=n):
        return 0 if n == 0 else 1 + within_attrs(n - 1)


@instrument.kernel
def even(n):
    return True if n == 0 else odd(n - 1)


@instrument.kernel
def odd(n):
    return False if n == 0 else even(n - 1)


class Tree:
    @instrument.kernel
    def down(self, n):
        return 0 if n == 0 else 1 + self.down(n - 1)


FUNCTIONS = [plain, kernel, measured, decorated, within, within_attrs, Tree().down]
IDS = ["plain", "kernel", "measured", "decorated", "within", "within_attrs", "method"]


@pytest.mark.parametrize("function", FUNCTIONS, ids=IDS)
@pytest.mark.parametrize("on", [False, True], ids=["off", "on"])
def test_nine_hundred_deep_at_a_limit_of_a_thousand(recorder, recursion_limit, function, on):
    if on:
        recorder.start()
    recursion_limit(depth_now() + 1000)
    for _ in range(3):
        assert function(900) == 900
    recursion_limit(10_000)
    if on:
        assert set(recorder.losses()) <= {"recursion"}


@pytest.mark.parametrize("function", FUNCTIONS, ids=IDS)
@pytest.mark.parametrize("on", [False, True], ids=["off", "on"])
def test_twenty_thousand_deep_at_a_raised_limit(recorder, recursion_limit, function, on):
    if on:
        recorder.start()
    recursion_limit(25_000)
    assert function(20_000) == 20_000
    assert function(20_000) == 20_000


def deepest(function, limit, recursion_limit):
    """The deepest recursion that still works a thousand frames below the limit."""
    low, high = 0, 2 * limit
    while high - low > 1:
        middle = (low + high) // 2
        recursion_limit(depth_now() + limit)
        try:
            function(middle)
            low = middle
        except RecursionError:
            high = middle
        finally:
            recursion_limit(10_000)
    return low


@pytest.mark.parametrize("function", [kernel, decorated, Tree().down], ids=["kernel", "decorated", "method"])
def test_the_limit_comes_where_it_comes_without_us(recording, recursion_limit, function):
    """To within the few frames that our own call needs at the very bottom."""
    alone = deepest(plain, 500, recursion_limit)
    assert alone - 3 <= deepest(function, 500, recursion_limit) <= alone + 1


@pytest.mark.parametrize("function", FUNCTIONS[1:], ids=IDS[1:])
def test_running_into_the_limit_is_a_recursion_error_and_nothing_stays_open(
    recorder, recursion_limit, function
):
    recorder.start(buffer_bytes=256 << 20)
    for _ in range(3):
        recursion_limit(depth_now() + 300)
        with pytest.raises(RecursionError):
            function(100_000)
        recursion_limit(10_000)
    assert function(50) == 50
    assert {total.open for total in recorder.totals().values()} == {0}
    assert recorder.losses().get("unmatched_exit", 0) == 0
    with _core.region("back at the root"):
        pass
    assert recorder.one("back at the root").parent == 0


def test_the_recursion_credit_is_given_back(recording, recursion_limit):
    before = deepest(plain, 200, recursion_limit)
    for _ in range(1000):
        decorated(5)
        kernel(5)
        recursion_limit(depth_now() + 100)
        with pytest.raises(RecursionError):
            decorated(1000)
        recursion_limit(10_000)
    assert deepest(plain, 200, recursion_limit) == before


@pytest.mark.parametrize("function", [decorated, within, within_attrs], ids=["decorated", "with", "attrs"])
def test_every_level_of_a_region_is_a_span(recording, recursion_limit, function):
    recursion_limit(25_000)
    assert function(5000) == 5000
    spans = sorted(recording.spans(), key=lambda span: (span.start, -span.end))
    assert len(spans) == 5001
    by_id = {span.id for span in spans}
    assert len(by_id) == 5001
    parents = [span.parent for span in spans]
    assert parents[0] == 0
    assert len(set(parents)) == 5001
    assert set(parents[1:]) < by_id


@pytest.mark.skipif(_core.HOOKS_IN_PLACE, reason="where kernels are wrapped")
def test_every_level_of_a_wrapped_kernel_is_a_span(recording, recursion_limit):
    recursion_limit(25_000)
    assert kernel(5000) == 5000
    assert len(recording.spans()) == 5001


@pytest.mark.skipif(not _core.HOOKS_IN_PLACE, reason="where kernels are hooked")
class TestHooks:
    def test_sixty_four_levels_are_recorded_one_by_one(self, recording):
        assert kernel(63) == 63
        assert len(recording.spans()) == 64
        assert recording.losses() == {}

    def test_deeper_levels_are_folded_into_the_last_and_said_so(self, recording):
        assert kernel(200) == 200
        spans = recording.spans()
        assert len(spans) == 65
        assert [span.flags for span in spans] == [{"truncated"}] + [set()] * 64
        assert recording.losses() == {"recursion": 1}

    def test_the_hook_is_back_after_it_lifted_itself(self, recording):
        for round_ in range(3):
            kernel(200)
            kernel(3)
            assert len(recording.take()) == 65 + 4
            assert recording.losses() == {"recursion": round_ + 1}

    def test_the_hook_is_back_after_an_exception_from_the_deep(self, recording):
        @instrument.kernel(name="deep failure")
        def failing(n):
            if n == 0:
                raise LookupError("deep")
            return failing(n - 1)

        with pytest.raises(LookupError, match="deep"):
            failing(100)
        with pytest.raises(LookupError):
            failing(0)
        spans = recording.named("deep failure")
        assert len(spans) == 66
        assert all(span.error == "LookupError" for span in spans)

    def test_mutual_recursion_lifts_both(self, recording):
        assert even(400) is True
        spans = recording.spans()
        assert len(spans) == 66
        assert sum("truncated" in span.flags for span in spans) == 2
        assert recording.losses() == {"recursion": 2}
        assert even(4) is True
        assert len(recording.take()) == 5

    def test_regions_inside_lifted_calls_are_recorded(self, recording):
        @instrument.kernel(name="with region inside")
        def inside(n):
            with instrument.region("inside region"):
                return 0 if n == 0 else 1 + inside(n - 1)

        assert inside(300) == 300
        assert len(recording.named("inside region")) == 301
        assert len(recording.named("with region inside")) == 65

    def test_stopping_in_the_deep_leaves_no_hook_behind(self, recorder):
        @instrument.kernel(name="stops deep")
        def stops(n):
            if n == 0:
                recorder.stop()
            else:
                stops(n - 1)

        recorder.start()
        stops(100)
        stops(0)
        assert len(recorder.named("stops deep")) == 65
        recorder.start()
        assert recorder.take() == []

    def test_a_new_session_in_the_deep_leaves_the_function_hooked(self, recorder):
        @instrument.kernel(name="restarts deep")
        def restarts(n):
            if n == 0:
                recorder.stop()
                recorder.start()
            elif n > 0:
                restarts(n - 1)

        recorder.start()
        restarts(100)
        _core.take()
        restarts(-1)
        assert len(recorder.named("restarts deep")) == 1
        recorder.stop()
        restarts(-1)
        assert recorder.take() == []

    def test_the_depth_is_counted_per_thread(self, recording):
        import threading

        def work():
            kernel(60)

        @instrument.kernel(name="starts threads")
        def deep(n):
            if n:
                deep(n - 1)
            else:
                thread = threading.Thread(target=work)
                thread.start()
                thread.join()

        deep(40)
        assert recording.losses() == {}
        assert len(recording.named("kernel")) == 61


def test_a_stack_that_finds_no_memory_ends_no_span_early(recorder, recursion_limit):
    recursion_limit(30_000)
    recorder.start(buffer_bytes=1 << 20, chunk_bytes=1024)
    assert within(20_000) == 20_000
    losses = recorder.losses()
    assert losses["depth"] > 0
    assert "unmatched_exit" not in losses
    spans = recorder.spans()
    assert len(spans) + losses["depth"] + losses.get("buffer_full", 0) == 20_001
    totals = recorder.totals()
    assert sum(total.count for total in totals.values()) + losses["depth"] == 20_001
    assert {total.open for total in totals.values()} == {0}
    longest = [total.max_ns for path, total in sorted(totals.items(), key=lambda item: len(item[0]))]
    assert longest == sorted(longest, reverse=True)
    with _core.region("sound again"):
        pass
    assert recorder.one("sound again").parent == 0


def test_a_mark_where_the_stack_is_full_swallows_no_exit(recorder, recursion_limit):
    recursion_limit(30_000)
    recorder.start(buffer_bytes=1 << 20, chunk_bytes=1024)

    def recurse(n):
        with _core.region("marked deep"):
            if n:
                recurse(n - 1)
            _core.mark("deep mark")

    recurse(20_000)
    losses = recorder.losses()
    assert "unmatched_exit" not in losses
    assert {total.open for total in recorder.totals().values()} == {0}
    recorder.take()
    with _core.region("sound after marks"):
        pass
    assert recorder.one("sound after marks").parent == 0
