"""Regions and steps as context managers: trees, statuses, odd ways in and out."""

import asyncio
import concurrent.futures
import contextlib
import contextvars
import gc
import threading

import pytest

from instrument.recorder import _core


def test_a_span_says_what_it_is(recording):
    with _core.region("only"):
        pass
    span = recording.one("only")
    assert (span.kind, span.path, span.parent, span.root) == ("region", "only", 0, span.id)
    assert (span.step, span.task, span.error, span.attrs, span.measures, span.flags) == (
        None, None, None, {}, {}, set(),
    )  # fmt: skip
    assert recording.losses() == {}


def test_children_name_their_parent_and_root(recording):
    with _core.region("a"):
        with _core.region("b"), _core.region("c"):
            pass
        with _core.region("d"):
            pass
    a, b, c, d = (recording.one(name) for name in "abcd")
    assert (b.parent, c.parent, d.parent) == (a.id, b.id, a.id)
    assert {a.root, b.root, c.root, d.root} == {a.id}
    assert len({a.id, b.id, c.id, d.id}) == 4


def test_a_step_is_a_root_and_numbers_what_it_holds(recording):
    with _core.region("loop"):
        with _core.step(7, loss=0.5), _core.region("in step"):
            _core.mark("tick of step")
        with _core.region("beside"):
            pass
    loop, step, inner, beside = (recording.one(n) for n in ("loop", "step", "in step", "beside"))
    mark = recording.one("tick of step")
    assert step.kind == "step"
    assert step.attrs == {"loss": 0.5}
    assert (step.parent, step.root, step.step) == (loop.id, step.id, 7)
    assert (inner.parent, inner.root, inner.step) == (step.id, step.id, 7)
    assert (mark.parent, mark.root, mark.step) == (inner.id, step.id, 7)
    assert (beside.root, beside.step) == (loop.id, None)


def test_a_step_within_a_step_is_a_root_of_its_own(recording):
    with _core.step(1, "epoch"), _core.step(20, "batch"), _core.region("leaf of batch"):
        pass
    epoch, batch, leaf = (recording.one(n) for n in ("epoch", "batch", "leaf of batch"))
    assert (batch.parent, batch.root, batch.step) == (epoch.id, batch.id, 20)
    assert (leaf.root, leaf.step) == (batch.id, 20)
    assert (epoch.root, epoch.step) == (epoch.id, 1)


def test_steps_without_a_number_count_on(recording):
    for _ in range(3):
        with _core.step(None, "counted"):
            pass
    first = recording.named("counted")[0].step
    with _core.step(100, "counted"):
        pass
    with _core.step(None, "counted"):
        pass
    assert [span.step for span in recording.named("counted")] == [first, first + 1, first + 2, 100, 101]


class Indexed:
    def __index__(self):
        return 41


class BadIndex:
    def __index__(self):
        raise ValueError("no")


@pytest.mark.parametrize("number", [0, -5, 2**62, True, Indexed()], ids=repr)
def test_a_step_takes_any_integer(recording, number):
    with _core.step(number, "integer step"):
        pass
    assert recording.one("integer step").step == number.__index__()


@pytest.mark.parametrize("number", [1.5, "3", [], 2**63, 10**400, BadIndex(), object()], ids=ascii)
def test_a_step_with_a_number_that_is_none_goes_on_counting(recording, number):
    with _core.step(50, "bad step"):
        pass
    with _core.step(number, "bad step"):
        pass
    assert [span.step for span in recording.named("bad step")] == [50, 51]
    assert recording.losses() == {"attributes": 1}


def test_wrong_calls_are_type_errors(recording):
    with pytest.raises(TypeError, match="one positional argument"):
        _core.region()
    with pytest.raises(TypeError, match="one positional argument"):
        _core.region("a", "b")
    with pytest.raises(TypeError, match="a number and a name"):
        _core.step(1, "a", 2)
    with pytest.raises(TypeError):
        _core.Region()


@pytest.mark.parametrize("name", [None, 3, b"bytes", ["list"], {}, object()], ids=lambda n: type(n).__name__)
def test_a_name_that_is_no_string_is_shown_by_its_type(recording, name):
    with _core.region(name):
        pass
    assert recording.spans()[0].name == f"({type(name).__name__})"


def test_a_subclass_of_str_is_the_name_it_spells(recording):
    class Name(str):
        __slots__ = ()

    with _core.region(Name("sub name")):
        pass
    with _core.region("sub name"):
        pass
    spans = recording.named("sub name")
    assert len(spans) == 2
    assert spans[0].path_index == spans[1].path_index


# ------------------------------------------------------------------ exceptions


class Unusual(BaseException):
    pass


@pytest.mark.parametrize(
    ("exception", "error"),
    [
        (ValueError("x"), "ValueError"),
        (Unusual(), "Unusual"),
        (UnicodeDecodeError("utf-8", b"", 0, 1, "x"), "UnicodeDecodeError"),
        (TimeoutError(), "TimeoutError"),
        (ExceptionGroup("g", [ValueError()]), "ExceptionGroup"),
        (StopIteration(), "StopIteration"),
        (json_error := __import__("json").JSONDecodeError("m", "d", 0), type(json_error).__name__),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_exception_passes_and_names_the_error(recording, exception, error):
    with pytest.raises(type(exception)) as caught, _core.region("raising"):
        raise exception
    assert caught.value is exception
    span = recording.one("raising")
    assert (span.failed, span.error, span.flags) == (True, error, set())
    assert recording.totals()["raising"].errors == 1


@pytest.mark.parametrize("exception", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=repr)
def test_leaving_on_purpose_is_no_error(recording, exception):
    with pytest.raises(type(exception)), _core.region("leaving"):
        raise exception
    span = recording.one("leaving")
    assert (span.failed, span.error, span.flags) == (False, None, set())
    assert recording.totals()["leaving"].errors == 0


@pytest.mark.parametrize("kind", [asyncio.CancelledError, concurrent.futures.CancelledError])
def test_cancellation_is_a_flag_and_no_error(recording, kind):
    with pytest.raises(kind), _core.region("cancelling"):
        raise kind
    span = recording.one("cancelling")
    assert (span.failed, span.error, span.flags) == (False, None, {"cancelled"})


def test_the_name_of_an_error_is_cut_at_a_character(recording):
    kind = type("日" * 100, (Exception,), {})
    with pytest.raises(kind), _core.region("long error"):
        raise kind
    error = recording.one("long error").error
    assert error == "日" * (128 // 3)
    assert recording.losses() == {"attribute_size": 1}


def test_an_error_that_was_caught_inside_is_none_of_the_span(recording):
    with _core.region("catcher"), contextlib.suppress(ValueError), _core.region("thrower"):
        raise ValueError
    assert recording.one("thrower").failed
    assert not recording.one("catcher").failed


# ------------------------------------------------------------------ ways in and out


def test_an_exit_stack_enters_and_leaves(recording):
    with contextlib.ExitStack() as stack:
        stack.enter_context(_core.region("stack one"))
        stack.enter_context(_core.region("stack two", a=1))
        stack.push(_core.region("stack three").__enter__())
        stack.enter_context(_core.step(5))
    names = [span.name for span in recording.spans()]
    assert names == ["step", "stack three", "stack two", "stack one"]
    assert recording.one("step").parent == recording.one("stack three").id
    assert recording.one("stack two").attrs == {"a": 1}
    assert recording.losses() == {}


def test_an_exit_stack_passes_the_exception_on(recording):
    with pytest.raises(LookupError), contextlib.ExitStack() as stack:  # noqa: PT012
        stack.enter_context(_core.region("stack error", a=1))
        raise LookupError
    assert recording.one("stack error").error == "LookupError"


@pytest.mark.parametrize("attrs", [{}, {"a": 1}], ids=["shared", "carrier"])
def test_enter_and_exit_through_the_type(recording, attrs):
    region = _core.region("through type", **attrs)
    assert type(region).__enter__(region) is region
    type(region).__exit__(region, None, None, None)
    type(region).__enter__(region)
    type(region).__exit__(region, ValueError, ValueError("v"), None)
    first, second = recording.named("through type")
    assert (first.error, second.error) == (None, "ValueError")
    assert first.attrs == second.attrs == attrs


@pytest.mark.parametrize("arguments", [(), (None,), (None,) * 2, (None,) * 3, (1, 2, 3, 4, 5)], ids=len)
def test_exit_takes_any_number_of_arguments(recording, arguments):
    region = _core.region("odd exit")
    region.__enter__()
    region.__exit__(*arguments)
    assert recording.one("odd exit").error is None


def test_the_base_class_enters_and_leaves_too(recording):
    region = _core.region("by base")
    _core.Region.__enter__(region)
    _core.Region.__exit__(region, None, None, None)
    assert recording.one("by base").parent == 0


def test_a_region_is_a_context_manager_to_isinstance():
    assert isinstance(_core.region("manager"), contextlib.AbstractContextManager)


def test_as_gives_the_region_itself(recording):
    region = _core.region("as itself")
    with region as handle:
        assert handle is region
    with _core.region("as itself", a=1) as handle:
        assert handle.name == "as itself"


def test_one_object_entered_recursively_makes_a_span_each_time(recording):
    region = _core.region("re-entered", depth=1)
    with region, region, region:
        pass
    spans = sorted(recording.named("re-entered"), key=lambda span: (span.start, -span.end))
    assert [span.parent for span in spans] == [0, spans[0].id, spans[1].id]
    assert all(span.attrs == {"depth": 1} for span in spans)


def test_threads_share_one_region_object(recording):
    region = _core.region("shared object", who="all")
    barrier = threading.Barrier(4)

    def work():
        barrier.wait()
        for _ in range(500):
            with region, region:
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spans = recording.named("shared object")
    assert len(spans) == 4 * 1000
    by_id = {span.id: span for span in spans}
    assert len(by_id) == 4000
    assert sum(span.parent == 0 for span in spans) == 2000
    assert all(by_id[span.parent].thread == span.thread for span in spans if span.parent)
    assert all(span.attrs == {"who": "all"} for span in spans)
    assert recording.losses() == {}


def test_leaving_what_was_never_entered_is_counted(recording):
    _core.region("never entered").__exit__(None, None, None)
    with _core.region("entered"):
        _core.region("never entered").__exit__(None, None, None)
    assert [span.name for span in recording.spans()] == ["entered"]
    assert recording.losses() == {"unmatched_exit": 2}


def test_leaving_twice_is_counted_once(recording):
    region = _core.region("left twice", a=1)
    region.__enter__()
    region.__exit__(None, None, None)
    region.__exit__(None, None, None)
    assert len(recording.named("left twice")) == 1
    assert recording.losses() == {"unmatched_exit": 1}


def test_leaving_in_another_thread_is_counted_and_the_span_stays_open(recording):
    region = _core.region("other thread", a=1)
    region.__enter__()
    thread = threading.Thread(target=region.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    assert recording.losses() == {"unmatched_exit": 1}
    assert recording.totals()["other thread"].open == 1
    region.__exit__(None, None, None)
    assert len(recording.named("other thread")) == 1
    assert recording.totals()["other thread"].open == 0


def test_generators_leave_their_regions_out_of_order(recording):
    def generator(name):
        with _core.region(name, who=name):
            yield

    one, two = generator("first"), generator("second")
    next(one)
    next(two)
    with pytest.raises(StopIteration):
        next(one)
    with _core.region("while second"):
        pass
    with pytest.raises(StopIteration):
        next(two)
    first, second, during = (recording.one(name) for name in ("first", "second", "while second"))
    assert first.end <= during.start <= second.end
    assert second.parent == first.id
    assert during.parent == second.id
    assert (first.attrs, second.attrs) == ({"who": "first"}, {"who": "second"})
    assert recording.losses() == {}
    with _core.region("afterwards"):
        pass
    assert recording.one("afterwards").parent == 0


def test_generators_of_one_region_end_each_span_once(recording):
    def generator():
        with _core.region("same site"):
            yield

    generators = [generator() for _ in range(10)]
    for each in generators:
        next(each)
    for each in generators[::2] + generators[1::2]:
        with pytest.raises(StopIteration):
            next(each)
    assert len(recording.named("same site")) == 10
    assert recording.totals()[recording.records[0].path].open == 0
    assert recording.losses() == {}
    with _core.region("clean again"):
        pass
    assert recording.one("clean again").parent == 0


def test_a_closed_generator_ends_its_span_without_error(recording):
    def generator():
        with _core.region("closed early"):
            yield

    each = generator()
    next(each)
    each.close()
    span = recording.one("closed early")
    assert (span.failed, span.error) == (False, None)


def test_a_session_switched_within_a_region_counts_the_half_span(recorder):
    recorder.start()
    with _core.region("half", a=1):
        recorder.stop()
        assert recorder.one("half").flags == {"unfinished"}
        recorder.start()
    assert recorder.spans() == []
    assert recorder.losses() == {"unmatched_exit": 1}


def test_a_session_begun_within_a_region_counts_its_exit(recorder):
    with _core.region("begun before", a=1):
        recorder.start()
        with _core.region("begun within"):
            pass
    assert [span.name for span in recorder.spans()] == ["begun within"]
    assert recorder.losses() == {"unmatched_exit": 1}


def test_a_session_ended_within_a_region_harms_nobody(recorder):
    recorder.start()
    with _core.region("ended within"), _core.region("inner one", b=2):
        recorder.stop()
    spans = recorder.spans()
    assert {span.name for span in spans} == {"ended within", "inner one"}
    assert all(span.flags == {"unfinished"} and not span.failed for span in spans)
    assert recorder.one("inner one").attrs == {"b": 2}
    assert recorder.losses() == {}


def test_stop_ends_the_open_spans_of_every_thread(recorder):
    recorder.start()
    entered, leave = threading.Barrier(5), threading.Event()

    def work():
        with _core.region("held open"), _core.region("held inside"):
            entered.wait()
            leave.wait()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    entered.wait()
    recorder.stop()
    leave.set()
    for thread in threads:
        thread.join()
    spans = recorder.spans()
    assert len(spans) == 8
    assert all(span.flags == {"unfinished"} for span in spans)
    totals = recorder.totals()
    assert totals["held open"].open == totals["held open/held inside"].open == 4
    assert totals["held open"].count == 0


# ------------------------------------------------------------------ carriers


def test_forty_regions_with_attributes_may_be_open_at_once(recording):
    def nest(index):
        if index < 40:
            with _core.region("carrier", index=index):
                nest(index + 1)

    nest(0)
    nest(0)
    assert [span.attrs["index"] for span in recording.named("carrier")] == list(range(39, -1, -1)) * 2


def test_a_carrier_that_is_held_is_not_used_for_another_call(recording):
    held = [_core.region("held", index=index) for index in range(40)]
    for _ in range(100):
        with _core.region("passing", other=True):
            pass
    for region in held:
        with region:
            pass
    assert [span.attrs for span in recording.named("held")] == [{"index": index} for index in range(40)]


def test_a_carrier_entered_by_a_kept_method_is_not_used_for_another_call(recording):
    ways = [_core.region("kept method", index=index).__enter__ for index in range(40)]
    for _ in range(100):
        with _core.region("passing method", other=True):
            pass
    for enter in ways:
        enter().__exit__(None, None, None)
    kept = [span.attrs for span in recording.named("kept method")]
    assert kept == [{"index": index} for index in range(40)]


def test_carriers_are_not_made_anew_for_every_call(recording):
    seen = set()
    for index in range(1000):
        with _core.region("reused", index=index) as handle:
            seen.add(id(handle))
            del handle
    assert len(seen) <= 16
    assert [span.attrs["index"] for span in recording.named("reused")] == list(range(1000))


def test_the_types_of_regions_do_not_multiply(recording):
    gc.collect()
    before = len(_core.Region.__subclasses__())
    for index in range(500):
        with _core.region("one type", index=index), contextlib.ExitStack() as stack:
            for _ in range(20):
                stack.enter_context(_core.region("one type", index=index))
    gc.collect()
    assert len(_core.Region.__subclasses__()) - before <= 17


# ------------------------------------------------------------------ the handle


def test_recording_tells_whether_the_site_is_open_here(recorder):
    region = _core.region("is recording")
    with region:
        assert region.recording is False
    recorder.start()
    assert region.recording is False
    with region:
        assert region.recording is True
        seen = []
        thread = threading.Thread(target=lambda: seen.append(region.recording))
        thread.start()
        thread.join()
        assert seen == [False]
    assert region.recording is False


def test_seconds_is_the_length_of_the_last_span(recording):
    region = _core.region("measured seconds")
    with region:
        during = region.seconds
    assert 0 <= during <= region.seconds
    assert region.seconds == recording.one("measured seconds").ns / 1e9
    with region:
        with region:
            pass
        inner = recording.named("measured seconds")[1].ns
        assert region.seconds >= inner / 1e9


def test_seconds_before_any_span_is_zero():
    assert _core.region("no span yet").seconds == 0.0


def test_a_region_shows_its_name():
    region = _core.region('shown "so"')
    assert region.name == 'shown "so"'
    assert repr(region) == "<instrument region 'shown \"so\"'>"
    assert repr(_core.step(1)) == "<instrument step 'step'>"


def test_a_region_costs_no_memory_while_nothing_records(recorder):
    def work():
        for index in range(2000):
            with _core.region("off", index=index) as handle:
                handle.set(more=index)
                _core.annotate(more=index)
                _core.mark("off mark", more=index)

    work()
    before = _core.memory()[0]
    work()
    assert _core.memory()[0] == before
    assert recorder.spans() == []


def test_a_steps_name_is_positional_so_that_name_can_be_an_attribute(recording):
    with _core.step(3, "train", name="warm"):
        pass
    span = recording.one("train")
    assert (span.kind, span.step, span.attrs) == ("step", 3, {"name": "warm"})


def test_tasks_that_take_turns_keep_their_own_times_and_attributes(recording):
    """Their parents are not told apart yet, and the flag says so."""

    async def request(index: int, before: asyncio.Event, after: asyncio.Event) -> None:
        with _core.region("request", index=index) as region:
            await before.wait()
            region.set(late=index)
            after.set()

    async def main() -> None:
        gates = [asyncio.Event() for _ in range(5)]
        tasks = [asyncio.create_task(request(i, gates[i], gates[i + 1])) for i in range(4)]
        await asyncio.sleep(0)
        gates[0].set()
        await asyncio.gather(*tasks)

    asyncio.run(main())
    spans = recording.named("request")
    assert [span.attrs for span in spans] == [{"index": i, "late": i} for i in range(4)]
    assert sorted(span.start for span in spans) == [span.start for span in spans]
    assert sorted(span.end for span in spans) == [span.end for span in spans]
    assert all("shared_context" in span.flags for span in spans)
    assert recording.losses() == {}


def test_a_context_that_begins_inside_a_region_does_not_disturb_its_end(recording):
    with _core.region("outer"):
        contextvars.ContextVar("first").set(1)
        with _core.region("inner"):
            pass
    outer, inner = recording.one("outer"), recording.one("inner")
    assert inner.parent == outer.id
    assert outer.flags == inner.flags == set()
    assert recording.losses() == {}
