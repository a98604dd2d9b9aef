"""Hooks in place (3.12+) and markers: what the recorder's own side of kernels does."""

import gc
import sys
import threading
import weakref

import pytest

from instrument.recorder import _core

needs_hooks = pytest.mark.skipif(not _core.HOOKS_IN_PLACE, reason="functions are hooked in place on 3.12+")


def site(name):
    return _core.kernel_site(name, __file__, 1)


def hooked(function, name, evaluate=None):
    _core.hook(function, site(name), evaluate)
    return function


def test_the_interpreter_decides_about_hooks():
    assert _core.HOOKS_IN_PLACE is (sys.version_info >= (3, 12))


@pytest.mark.skipif(_core.HOOKS_IN_PLACE, reason="the other way round")
def test_hooks_are_refused_where_there_are_none():
    with pytest.raises(RuntimeError, match=r"3\.12"):
        _core.hook(lambda: None, site("refused"), None)


@needs_hooks
def test_a_hooked_function_records_while_something_listens(recorder):
    def function(a, b=2, *args, c=3, **rest):
        return a, b, args, c, rest

    hooked(function, "hook one")
    assert function(1) == (1, 2, (), 3, {})
    recorder.start()
    assert function(1, 5, 6, c=7, d=8) == (1, 5, (6,), 7, {"d": 8})
    recorder.stop()
    assert function(1, b=9) == (1, 9, (), 3, {})
    span = recorder.one("hook one")
    assert (span.kind, span.parent, span.failed) == ("kernel", 0, False)


@needs_hooks
def test_hooks_go_in_and_out_with_every_session(recorder):
    def function():
        return 1

    hooked(function, "in and out")
    for _ in range(3):
        recorder.start()
        assert [function() for _ in range(5)] == [1] * 5
        recorder.stop()
        function()
        assert len(recorder.spans()) == 5


@needs_hooks
def test_a_function_hooked_while_recording_is_recorded_at_once(recording):
    def function():
        pass

    hooked(function, "hooked late")
    function()
    recording.one("hooked late")


@needs_hooks
def test_a_function_hooked_twice_keeps_its_first_site(recording):
    def function():
        pass

    hooked(function, "first site")
    hooked(function, "second site")
    function()
    assert [span.name for span in recording.spans()] == ["first site"]


@needs_hooks
def test_stopping_inside_a_hooked_call_leaves_the_call_alone(recorder):
    def function():
        recorder.stop()
        return "result"

    hooked(function, "stops itself")
    recorder.start()
    assert function() == "result"
    assert recorder.one("stops itself").flags == {"unfinished"}
    assert recorder.losses() == {}


@needs_hooks
def test_a_session_switched_inside_a_hooked_call_counts_the_half_span(recorder):
    def function():
        recorder.stop()
        recorder.start()
        return "result"

    hooked(function, "switches")
    recorder.start()
    assert function() == "result"
    assert recorder.losses() == {"unmatched_exit": 1}


@needs_hooks
def test_the_hook_goes_with_its_function(recording):
    gone = []
    for _ in range(1500):

        def function():
            pass

        hooked(function, "in a loop")
        function()
        gone.append(weakref.ref(function))
        del function
    gc.collect()
    assert sum(reference() is not None for reference in gone) <= 1
    assert len(recording.named("in a loop")) == 1500


@needs_hooks
def test_a_method_called_by_a_finalizer_of_its_dying_class_still_works(recording):
    calls = []

    def scene():
        class Resource:
            def close(self):
                calls.append("closed")

            def __del__(self):
                self.close()

        hooked(Resource.close, "dying close")
        resource = Resource()
        resource.me = resource
        resource.close()

    for _ in range(20):
        scene()
    gc.collect()
    assert calls == ["closed"] * 40
    assert 20 <= len(recording.named("dying close")) <= 40


@needs_hooks
def test_an_address_used_again_is_not_taken_for_the_old_function(recording):
    for index in range(2000):
        function = eval("lambda: index", {"index": index})
        if index % 2:
            hooked(function, "odd ones")
        assert function() == index
        del function
    assert len(recording.named("odd ones")) == 1000


@needs_hooks
def test_another_pointer_in_place_of_ours_is_left_alone(recorder):
    def function():
        return 1

    hooked(function, "code swapped")
    recorder.start()
    function.__code__ = (lambda: 2).__code__
    assert function() == 2
    recorder.stop()
    assert function() == 2
    assert len(recorder.named("code swapped")) == 1


def test_exceptions_pass_through_unchanged(recording):
    marker = _core.Marker(site("marker fails"))
    error = ValueError("x")
    marker.enter()
    marker.fail(error)
    marker.enter()
    marker.leave()
    first, second = recording.named("marker fails")
    assert (first.error, second.error) == ("ValueError", None)


def test_a_marker_of_a_region_carries_its_attributes(recording):
    marker = _core.Marker(_core.region("marked region", a=1))
    for _ in range(3):
        marker.enter()
        marker.leave()
    assert [span.attrs for span in recording.named("marked region")] == [{"a": 1}] * 3


def test_markers_refuse_what_is_no_site():
    with pytest.raises(TypeError, match="site or a region"):
        _core.Marker("name")
    with pytest.raises(TypeError, match="exception"):
        _core.Marker(site("m")).fail("not an exception")
    with pytest.raises(TypeError):
        _core.Marker()


def test_a_marker_in_a_cycle_is_collected():
    class Evaluate:
        def __call__(self):
            return (None, None, None)

    evaluate = Evaluate()
    evaluate.marker = _core.Marker(site("cyclic"), evaluate)
    gone = weakref.ref(evaluate)
    del evaluate
    gc.collect()
    assert gone() is None


# ------------------------------------------------------------------ evaluating


def marked(recorder, evaluate, *args, **kwargs):
    """The span of one call measured by `evaluate`."""
    marker = _core.Marker(site("evaluated"), evaluate)
    marker.enter(marker.measure(*args, **kwargs))
    marker.leave()
    return recorder.named("evaluated")[-1]


def test_numbers_become_measures_and_totals(recording):
    span = marked(recording, lambda n: (2 * n, 3.5, {"n": n}), 10)
    assert (span.measures, span.attrs) == ({"flops": 20.0, "bytes": 3.5}, {"n": 10})
    total = recording.totals()["evaluated"]
    assert (total.measured, total.flops, total.bytes) == (1, 20.0, 3.5)


def test_a_dict_is_kept_per_dtype_and_summed(recording):
    span = marked(recording, lambda: ({"fp16": 2, "fp32": 3.5}, None, None))
    assert span.measures == {"flops": 5.5, "flops.fp16": 2.0, "flops.fp32": 3.5}
    total = recording.totals()["evaluated"]
    assert (total.measured, total.flops, total.bytes) == (1, 5.5, 0.0)


def test_numbers_of_numpy_count(recording):
    numpy = pytest.importorskip("numpy")
    span = marked(recording, lambda: (numpy.int64(7), numpy.float32(1.5), None))
    assert span.measures == {"flops": 7.0, "bytes": 1.5}


class Hostile:
    def __float__(self):
        raise RuntimeError("asked")

    __index__ = __bool__ = __len__ = __float__


@pytest.mark.parametrize(
    "answer",
    [
        ("text", None, None),
        (None, "text", None),
        (Hostile(), None, None),
        ({"fp16": "text"}, None, None),
        ({"fp32": 1.0, "fp16": Hostile()}, None, None),
        ({3: 1.0}, None, None),
        ({"\ud800": 1.0}, None, None),
        (None, None, ["attrs"]),
        (None, None, 3),
        (1.0, 10**400, None),
        (float("nan"), None, None),
        (float("inf"), None, None),
        (1.0, {"x": float("-inf")}, None),
        (None, None),
        "not a tuple",
        None,
    ],
    ids=repr,
)
def test_a_wrong_answer_is_counted_and_measures_nothing(recording, answer):
    span = marked(recording, lambda: answer)
    assert recording.losses() == {"evaluate": 1}
    assert span.measures == {}
    total = recording.totals()["evaluated"]
    assert (total.count, total.measured, total.flops, total.bytes) == (1, 0, 0.0, 0.0)


def test_three_failures_switch_it_off(recording):
    calls = []

    def evaluate():
        calls.append(1)
        raise ValueError("no")

    marker = _core.Marker(site("switched off"), evaluate)
    for _ in range(10):
        marker.enter(marker.measure())
        marker.leave()
    assert len(calls) == 3
    assert recording.losses() == {"evaluate": 3}
    assert len(recording.named("switched off")) == 10


def test_an_interrupt_during_an_evaluation_is_not_swallowed(recording):
    def evaluate():
        raise KeyboardInterrupt

    marker = _core.Marker(site("interrupted"), evaluate)

    def program():
        marker.measure()
        for _ in range(1000):
            pass

    with pytest.raises(KeyboardInterrupt):
        program()
    assert recording.losses() == {"evaluate": 1}


def test_nothing_is_evaluated_while_nothing_records(recorder):
    def evaluate():
        raise AssertionError("called")

    marker = _core.Marker(site("not evaluated"), evaluate)
    assert marker.measure() is None
    marker.enter(None)
    marker.leave()


def test_a_dtype_of_many_letters_is_kept_or_counted(recording):
    span = marked(recording, lambda: ({"d" * 500: 1.0, "日" * 50: 2.0}, None, None))
    assert span.measures["flops"] == 3.0


def test_many_dtypes_are_bounded(recording):
    span = marked(recording, lambda: ({f"dtype{index}": 1.0 for index in range(200)}, None, None))
    assert len(span.measures) <= 64
    assert recording.losses()["attributes"] >= 100
    assert recording.totals()["evaluated"].flops == 200.0


# ------------------------------------------------------------------ threads


@needs_hooks
def test_threads_call_one_hooked_function(recording):
    def function(depth):
        return 0 if depth == 0 else 1 + function(depth - 1)

    hooked(function, "many threads")
    barrier = threading.Barrier(4)

    def work():
        barrier.wait()
        for _ in range(500):
            assert function(5) == 5

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(recording.named("many threads")) == 4 * 500 * 6
