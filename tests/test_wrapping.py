"""Which callables `kernel` and `region` decorate, how, and that they stay what they were."""

import abc
import doctest
import functools
import gc
import inspect
import pickle
import sys
import traceback
import types
import typing
import weakref

import pytest

import instrument
from instrument import wrapping
from instrument.recorder import _core

HERE = sys.modules[__name__]


@instrument.kernel
def at_module_level(a: int, b: "list[int]", /, c: float = 2.0, *rest: str, d: int = 4, **more: int) -> str:
    """Say what was passed.

    >>> at_module_level(1, 2)
    '1 2 2.0 () 4 {}'
    """
    return f"{a} {b} {c} {rest} {d} {more}"


def with_every_signature():
    """Functions of every shape of signature, with calls that work and calls that do not."""
    return [
        (lambda: "none", [((), {})], [((1,), {})]),
        (
            lambda a, b=2: (a, b),
            [((1,), {}), ((1, 3), {}), ((), {"b": 1, "a": 2})],
            [((), {}), ((1, 2, 3), {})],
        ),
        (lambda a, /, b: (a, b), [((1, 2), {}), ((1,), {"b": 3})], [((), {"a": 1, "b": 2})]),
        (lambda *args: args, [((), {}), ((1, 2, 3), {})], [((), {"x": 1})]),
        (lambda **kwargs: kwargs, [((), {}), ((), {"name": 1, "attrs": 2, "self": 3})], [((1,), {})]),
        (lambda *, key, other=1: (key, other), [((), {"key": 1})], [((), {}), ((1,), {})]),
        (
            lambda a, /, b=2, *args, c, d=4, **kwargs: (a, b, args, c, d, kwargs),
            [((1,), {"c": 3}), ((1, 2, 3, 4), {"c": 5, "a": 6, "z": 7})],
            [((1,), {}), ((), {"c": 3})],
        ),
        (
            lambda _call, _enter, _fail=3, *_leave, _result=5, **_error: (
                _call,
                _enter,
                _leave,
                _result,
                _error,
            ),
            [((1, 2), {}), ((1, 2, 3, 4), {"_result": 5, "_work": 6})],
            [((), {})],
        ),
        (lambda factory, wrapper=1, evaluate=2: (factory, wrapper, evaluate), [((0,), {})], [((), {})]),
    ]


def decorators():
    return [
        instrument.kernel,
        instrument.kernel(flops=3, attrs={"x": 1}),
        instrument.region("signature region"),
        instrument.region("signature region", a=1),
    ]


@pytest.mark.parametrize("on", [False, True], ids=["off", "on"])
@pytest.mark.parametrize("decorator", range(4))
def test_every_signature_is_called_as_before(recorder, decorator, on):
    if on:
        recorder.start()
    undecorated = with_every_signature()
    for (function, calls, wrong), (plain, _, _) in zip(with_every_signature(), undecorated, strict=True):
        decorated = decorators()[decorator](function)
        assert inspect.signature(decorated) == inspect.signature(plain)
        for args, kwargs in calls:
            assert decorated(*args, **kwargs) == plain(*args, **kwargs)
        for args, kwargs in wrong:
            with pytest.raises(TypeError) as without:
                plain(*args, **kwargs)
            with pytest.raises(TypeError) as with_us:
                decorated(*args, **kwargs)
            assert str(with_us.value) == str(without.value)
    if on:
        assert recorder.losses() == {}


def test_wrong_calls_do_not_switch_the_options_off(recording):
    kernel = instrument.kernel(flops=lambda x: x)(lambda x: x)
    for _ in range(5):
        with pytest.raises(TypeError):
            kernel()
    kernel(3)
    assert recording.losses() == {}
    assert recording.spans()[-1].measures == {"flops": 3.0}


def test_a_keyword_named_like_ours_passes_through(recording):
    @instrument.kernel
    def taking(**kwargs):
        return kwargs

    names = ("name", "flops", "bytes", "attrs", "fn", "function", "self", "args")
    assert taking(**dict.fromkeys(names, 1)) == dict.fromkeys(names, 1)


def test_the_function_keeps_its_looks():
    def function(a: int = 1) -> str:
        """What it does."""

    function.attribute = "kept"
    for decorated in (instrument.kernel(function), instrument.region("looks")(function)):
        assert decorated.__name__ == "function"
        assert decorated.__qualname__ == function.__qualname__
        assert decorated.__module__ == __name__
        assert decorated.__doc__ == "What it does."
        assert decorated.__annotations__ == {"a": int, "return": str}
        assert decorated.__defaults__ == (1,)
        assert decorated.attribute == "kept"
        assert inspect.isfunction(decorated)
        assert inspect.getsource(decorated) == inspect.getsource(function)


def test_type_hints_are_found():
    hints = typing.get_type_hints(at_module_level)
    assert hints["b"] == list[int]
    assert hints["return"] is str


def test_doctest_finds_the_examples_of_a_kernel():
    finder = doctest.DocTestFinder()
    (found,) = [test for test in finder.find(HERE) if test.name.endswith(".at_module_level")]
    assert len(found.examples) == 1
    result = doctest.DocTestRunner().run(found)
    assert (result.attempted, result.failed) == (1, 0)


def test_a_kernel_at_module_level_can_be_pickled(recording):
    copy = pickle.loads(pickle.dumps(at_module_level))
    assert copy is at_module_level
    copy(1, 2)
    recording.one("at_module_level")


@pytest.mark.skipif(not _core.HOOKS_IN_PLACE, reason="functions are hooked in place on 3.12+")
class TestInPlace:
    def test_a_function_of_this_module_is_returned_itself(self):
        def function():
            pass

        assert instrument.kernel(function) is function
        assert instrument.kernel(flops=1)(function) is function

    def test_somebody_elses_function_is_copied(self, recording):
        kept = textwrap_dedent = __import__("textwrap").dedent
        mine = instrument.kernel(textwrap_dedent)
        assert mine is not kept
        assert mine("  x") == "x"
        kept("  y")
        assert len(recording.named("dedent")) == 1


@pytest.mark.skipif(_core.HOOKS_IN_PLACE, reason="functions are wrapped on 3.11")
def test_the_function_itself_is_not_changed_by_a_wrapper(recording):
    def function():
        return 1

    decorated = instrument.kernel(function)
    function()
    assert recording.spans() == []
    decorated()
    assert len(recording.spans()) == 1


# ------------------------------------------------------------------ methods


class Base:
    @instrument.kernel
    def method(self, x):
        return type(self), x

    @classmethod
    @instrument.kernel
    def class_inside(cls, x):
        return cls, x

    @instrument.kernel
    @classmethod
    def class_outside(cls, x):
        return cls, x

    @staticmethod
    @instrument.kernel
    def static_inside(x):
        return x

    @instrument.kernel
    @staticmethod
    def static_outside(x):
        return x

    @property
    @instrument.kernel
    def value(self):
        return 42

    @instrument.region("region method", a=1)
    def in_region(self, x):
        return type(self), x

    @instrument.region("region class method")
    @classmethod
    def class_in_region(cls, x):
        return cls, x

    @instrument.kernel
    def __call__(self, x):
        return x

    @instrument.kernel
    def private(self, __hidden=1):
        return __hidden


class Derived(Base):
    @instrument.kernel
    def method(self, x):
        return super().method(x)


def test_methods_of_every_kind_are_recorded(recording):
    base = Base()
    assert base.method(1) == (Base, 1)
    assert Base.class_inside(1) == base.class_inside(1) == (Base, 1)
    assert Derived.class_outside(2) == Derived().class_outside(2) == (Derived, 2)
    assert Base.static_inside(3) == base.static_inside(3) == 3
    assert Base.static_outside(4) == base.static_outside(4) == 4
    assert base.value == 42
    assert base.in_region(5) == (Base, 5)
    assert Derived.class_in_region(6) == (Derived, 6)
    assert base(7) == 7
    assert base.private() == 1
    counts = {path: total.count for path, total in recording.totals().items()}
    assert counts == {
        "Base.method": 1,
        "Base.class_inside": 2,
        "Base.class_outside": 2,
        "Base.static_inside": 2,
        "Base.static_outside": 2,
        "Base.value": 1,
        "region method": 1,
        "region class method": 1,
        "Base.__call__": 1,
        "Base.private": 1,
    }


def test_super_in_a_kernel_works(recording):
    assert Derived().method(1) == (Derived, 1)
    assert recording.one("Base.method").parent == recording.one("Derived.method").id


def test_an_abstract_method_stays_abstract():
    class Abstract(abc.ABC):
        @instrument.kernel
        @abc.abstractmethod
        def must(self): ...

        @classmethod
        @instrument.region("abstract")
        @abc.abstractmethod
        def must_too(cls): ...

    assert Abstract.__abstractmethods__ == {"must", "must_too"}


# ------------------------------------------------------------------ again and again


def test_a_function_decorated_twice_records_once(recording):
    @instrument.kernel
    @instrument.kernel
    def twice():
        return 1

    assert twice() == 1
    assert len(recording.spans()) == 1


def test_a_function_under_two_names_is_one_site(recording):
    @instrument.kernel
    def first():
        return 1

    second = first
    first()
    second()
    assert [span.path for span in recording.spans()] == [recording.records[0].path] * 2


def test_a_kernel_inside_a_region_decorator_records_both(recording):
    @instrument.region("outside it")
    @instrument.kernel(name="inside it")
    def both():
        return 1

    assert both() == 1
    assert recording.one("inside it").parent == recording.one("outside it").id


def test_a_region_decorator_inside_a_kernel_records_both(recording):
    @instrument.kernel(name="kernel outside")
    @instrument.region("region inside")
    def both():
        return 1

    assert both() == 1
    assert recording.one("region inside").parent == recording.one("kernel outside").id


def test_somebodys_decorator_between_two_kernels_keeps_both(recording):
    def doubling(function):
        @functools.wraps(function)
        def inner(x):
            return 2 * function(x)

        return inner

    @instrument.kernel(name="outer kernel")
    @doubling
    @instrument.kernel(name="inner kernel")
    def sandwich(x):
        return x

    assert sandwich(4) == 8
    assert recording.one("inner kernel").parent == recording.one("outer kernel").id


def test_a_region_may_decorate_many_functions(recording):
    region = instrument.region("shared decorator", a=1)
    functions = [region(lambda index=index: index) for index in range(5)]
    assert [function() for function in functions] == list(range(5))
    assert [span.attrs for span in recording.named("shared decorator")] == [{"a": 1}] * 5


@pytest.mark.parametrize("on", [False, True], ids=["off", "on"])
def test_closures_made_in_a_loop_do_not_grow_anything(recorder, on):
    if on:
        recorder.start()

    def make(index):
        @instrument.kernel(flops=lambda x: x, attrs=lambda x: {"index": index})
        def closure(x):
            return x + index

        @instrument.region("closure region")
        def other(x):
            return x - index

        return closure, other

    references, sites = [], None
    for index in range(1500):
        closure, other = make(index)
        assert (closure(1), other(1)) == (1 + index, 1 - index)
        references += [weakref.ref(closure), weakref.ref(other)]
        sites = sites or len(_core.sites())
    del closure, other
    gc.collect()
    assert sum(reference() is not None for reference in references) == 0
    assert len(_core.sites()) == sites
    if on:
        name = "test_closures_made_in_a_loop_do_not_grow_anything.make.closure"
        spans = recorder.named(name)
        assert [span.attrs["index"] for span in spans] == list(range(1500))


def test_functions_alike_in_two_modules_are_not_confused(recording):
    source = "import instrument\n@instrument.kernel\ndef alike():\n    return __name__\n"
    modules = []
    for name in ("alike_one", "alike_two"):
        module = types.ModuleType(name)
        exec(compile(source, f"{name}.py", "exec"), module.__dict__)
        modules.append(module)
    assert [module.alike() for module in modules] == ["alike_one", "alike_two"]
    one, two = recording.named("alike")
    files = {_core.sites(_core.path(span.path_index)[4])[0].file for span in (one, two)}
    assert files == {"alike_one.py", "alike_two.py"}


# ------------------------------------------------------------------ exceptions


def shape(error):
    """The frames of a traceback: function and line."""
    return [(frame.name, frame.lineno, frame.filename) for frame in traceback.extract_tb(error.__traceback__)]


def raiser(kind):
    def raising(depth=2):
        if depth:
            return raising(depth - 1)
        raise kind("deep")

    return raising


@pytest.mark.parametrize("on", [False, True], ids=["off", "on"])
@pytest.mark.parametrize("decorator", range(4))
def test_the_traceback_is_as_without_us(recorder, decorator, on):
    if on:
        recorder.start()

    def caught(function):
        try:
            function()
        except ValueError as error:
            return error

    plain, decorated = raiser(ValueError), decorators()[decorator](raiser(ValueError))
    without, with_us = caught(plain), caught(decorated)
    assert shape(with_us) == shape(without)
    assert with_us.__context__ is with_us.__cause__ is None
    assert str(with_us) == "deep"
    if on:
        assert all(span.error == "ValueError" for span in recorder.spans())


def test_causes_and_contexts_are_kept(recording):
    @instrument.kernel
    def chained():
        try:
            raise KeyError("first")
        except KeyError as error:
            raise ValueError("second") from error

    with pytest.raises(ValueError, match="second") as caught:
        chained()
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.__context__ is caught.value.__cause__


def test_handling_another_exception_while_calling_changes_nothing(recording):
    @instrument.kernel
    def inner():
        return sys.exc_info()[0]

    try:
        raise KeyError
    except KeyError:
        assert inner() is KeyError
        with pytest.raises(LookupError):
            raise LookupError from None
    assert recording.spans()[0].error is None


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
@pytest.mark.parametrize("decorator", [0, 2])
def test_leaving_on_purpose_is_no_error_of_a_function(recording, kind, decorator):
    decorated = decorators()[decorator](raiser(kind))
    with pytest.raises(kind):
        decorated(0)
    span = recording.spans()[0]
    assert (span.failed, span.error) == (False, None)


def test_no_reference_to_the_exception_is_kept(recording):
    class Payload(Exception):
        pass

    @instrument.kernel
    def failing():
        raise Payload

    try:
        failing()
    except Payload as error:
        gone = weakref.ref(error)
    gc.collect()
    assert gone() is None


def test_an_interrupt_in_an_option_reaches_the_program_and_ends_each_span_once(recording):
    interrupted = []

    def flops(n):
        if n == 0 and not interrupted:
            interrupted.append(1)
            raise KeyboardInterrupt
        return n

    @instrument.kernel(name="interrupted kernel", flops=flops)
    def recursive(n):
        if n:
            recursive(n - 1)
        for _ in range(1000):
            pass

    with pytest.raises(KeyboardInterrupt):
        recursive(5)
    recursive(0)
    assert recording.losses() == {"evaluate": 1}
    assert {total.open for total in recording.totals().values()} == {0}
    assert recording.named("interrupted kernel")[-1].parent == 0
    assert len(recording.named("interrupted kernel")) in (6, 7)


# ------------------------------------------------------------------ what is refused


def generator():
    yield


async def coroutine():
    pass


async def async_generator():
    yield


@types.coroutine
def old_coroutine():
    yield


class Callable_:
    def __call__(self):
        pass


REFUSED = [
    generator, coroutine, async_generator, old_coroutine, Callable_(), Callable_, len, print, [].append, 3,
    functools.partial(print), property(lambda self: 1), Base().method, functools.lru_cache(lambda: 1), "name",
    None,
]  # fmt: skip


@pytest.mark.parametrize("thing", REFUSED, ids=lambda thing: type(thing).__name__)
@pytest.mark.parametrize("verb", ["kernel", "region"])
def test_what_would_be_measured_wrongly_is_refused_with_a_clear_text(verb, thing):
    decorate = instrument.kernel(flops=1) if verb == "kernel" else instrument.region("refusing")
    with pytest.raises(TypeError, match=f"^{verb}: ") as caught:
        decorate(thing)
    text = str(caught.value)
    if inspect.isfunction(thing):
        assert thing.__name__ in text
        assert "generator or coroutine" in text
        assert "with instrument.region" in text
    else:
        assert "is not a plain function or method" in text


def test_a_static_generator_is_refused_too():
    for wrap in (staticmethod, classmethod):
        with pytest.raises(TypeError, match="generator or coroutine"):
            instrument.kernel(wrap(generator))


def test_wrong_arguments_of_kernel_are_type_errors():
    with pytest.raises(TypeError):
        instrument.kernel(print, print)
    with pytest.raises(TypeError, match="flop"):
        instrument.kernel(flop=1)
    with pytest.raises(TypeError, match="name= is a string, not int"):
        instrument.kernel(name=3)(lambda: 1)


# ------------------------------------------------------------------ options


def call(recorder, decorated, *args, **kwargs):
    recorder.take()
    decorated(*args, **kwargs)
    (span,) = recorder.take()
    return span


def test_flops_and_bytes_may_be_numbers(recording):
    span = call(recording, instrument.kernel(flops=7, bytes=2.5)(lambda: 1))
    assert span.measures == {"flops": 7.0, "bytes": 2.5}


def test_numbers_of_numpy_are_numbers(recording):
    numpy = pytest.importorskip("numpy")
    span = call(recording, instrument.kernel(flops=numpy.prod((2, 3)), bytes=numpy.float32(2.5))(lambda: 1))
    assert span.measures == {"flops": 6.0, "bytes": 2.5}


def test_flops_may_be_a_dict_per_dtype(recording):
    span = call(recording, instrument.kernel(flops={"fp16": 4, "fp32": 1})(lambda: 1))
    assert span.measures == {"flops": 5.0, "flops.fp16": 4.0, "flops.fp32": 1.0}


def test_a_function_is_bound_by_name_and_not_by_place(recording):
    @instrument.kernel(flops=lambda k, q: 2 * q + k, bytes=lambda: 5, attrs=lambda heads: {"heads": heads})
    def scores(q, k, *, heads=8):
        return q

    assert call(recording, scores, 10, 3).measures == {"flops": 23.0, "bytes": 5.0}
    assert call(recording, scores, k=1, q=2, heads=4).attrs == {"heads": 4}


def test_a_function_sees_defaults_varargs_and_keywords(recording):
    @instrument.kernel(
        attrs=lambda a, b, args, c, d, kwargs: {"all": [a, b, len(args), c, d, len(kwargs)]},
        flops=lambda *args, **kwargs: sum(args) + kwargs.get("z", 0),
        bytes=lambda a, /, d=100, *, c=100, missing=7: a + c + d + missing,
    )
    def everything(a, /, b=2, *args, c, d=4, **kwargs):
        return None

    span = call(recording, everything, 1, 2, 30, 40, c=5, z=6)
    assert span.attrs == {"all": [1, 2, 2, 5, 4, 1]}
    assert span.measures == {"flops": 76.0, "bytes": 1.0 + 5 + 4 + 7}


def test_options_with_varargs_that_the_kernel_has_not_get_nothing(recording):
    kernel = instrument.kernel(flops=lambda x, *rest, **more: x + len(rest) + len(more))(lambda x: 1)
    span = call(recording, kernel, 3)
    assert span.measures == {"flops": 3.0}


def test_self_is_a_parameter_like_any_other(recording):
    class Layer:
        width = 6

        @instrument.kernel(flops=lambda self, x: self.width * x)
        def forward(self, x):
            return x

    assert call(recording, Layer().forward, 2).measures == {"flops": 12.0}


@pytest.mark.parametrize("option", ["flops", "bytes", "attrs"])
def test_a_parameter_that_the_kernel_has_not_is_named_at_decoration(option):
    def matmul(a, b):
        return a

    with pytest.raises(TypeError) as caught:
        instrument.kernel(**{option: lambda a, wrong: 1})(matmul)
    text = str(caught.value)
    assert f"{option}=" in text
    assert "'wrong'" in text
    assert "matmul(a, b)" in text


@pytest.mark.parametrize(
    "value", ["12", [1], (1,), object(), b"1", 1j], ids=lambda value: type(value).__name__
)
@pytest.mark.parametrize("option", ["flops", "bytes", "attrs"])
def test_an_option_of_a_wrong_type_is_named_at_decoration(option, value):
    with pytest.raises(TypeError, match=rf"{option}= is .*, not {type(value).__name__}"):
        instrument.kernel(**{option: value})(lambda: 1)


def test_a_number_is_no_attrs():
    with pytest.raises(TypeError, match="attrs= is a dict or a function, not int"):
        instrument.kernel(attrs=3)(lambda: 1)


@pytest.mark.parametrize("builtin", [dict, getattr, type])
def test_a_function_whose_parameters_are_unknown_is_refused(builtin):
    with pytest.raises(TypeError, match="flops="):
        instrument.kernel(flops=builtin)(lambda: 1)


def test_a_failing_function_is_switched_off_after_three_and_counted(recording):
    calls = []

    def flops(x):
        calls.append(x)
        raise RuntimeError("no flops")

    kernel = instrument.kernel(flops=flops)(lambda x: x)
    assert [kernel(index) for index in range(10)] == list(range(10))
    assert calls == [0, 1, 2]
    assert recording.losses() == {"evaluate": 3}
    assert len(recording.spans()) == 10
    assert all(span.measures == {} and not span.failed for span in recording.records)


def test_attributes_of_a_kernel_may_be_a_dict(recording):
    assert call(recording, instrument.kernel(attrs={"a": 1})(lambda: 1)).attrs == {"a": 1}


def test_options_are_not_evaluated_while_nothing_records(recorder):
    def flops():
        raise AssertionError("evaluated")

    kernel = instrument.kernel(flops=flops)(lambda: 5)
    assert kernel() == 5
    recorder.start()
    assert recorder.losses() == {}


def test_options_are_not_part_of_the_time(recording):
    import time

    def flops():
        time.sleep(0.05)
        return 1

    assert call(recording, instrument.kernel(flops=flops)(lambda: 1)).ns < 40_000_000


def test_an_option_that_calls_the_kernel_itself_ends(recording):
    def flops(n):
        return kernel(n - 1) if n > 0 else 0

    @instrument.kernel(name="calls itself", flops=flops)
    def kernel(n):
        return n

    assert kernel(3) == 3
    assert len(recording.spans()) == 4


def test_names_are_qualified_without_locals_or_given(recording):
    def outer():
        @instrument.kernel
        def inner():
            pass

        return inner

    outer()()
    instrument.kernel(name="given / name")(lambda: 1)()
    inner, given = recording.spans()
    assert inner.name == "test_names_are_qualified_without_locals_or_given.outer.inner"
    assert given.path == "given %2F name"


def test_a_site_says_where_the_kernel_is(recording):
    at_module_level(1, 2)
    span = recording.one("at_module_level")
    site = _core.sites(_core.path(span.path_index)[4])[0]
    assert site.file == __file__
    source, line = inspect.getsourcelines(at_module_level)
    assert site.line == line
    assert source[0].startswith("@instrument.kernel")


def test_compiled_wrappers_are_bounded():
    assert len(wrapping._compiled) <= 1000
