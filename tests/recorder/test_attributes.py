"""Attributes of any type: never raise, never keep an object alive, bounded, counted."""

import collections
import enum
import gc
import math
import sys
import weakref

import pytest

from instrument.recorder import _core


def kept(recorder, **attrs):
    """What one region's attributes become."""
    with _core.region("bearer", **attrs):
        pass
    return recorder.named("bearer")[-1].attrs


class Hostile:
    """Answers every question with an exception, as a tensor on a lost device would."""

    def refuse(self, *args, **kwargs):
        raise RuntimeError("asked")

    __repr__ = __str__ = __index__ = __int__ = __float__ = __len__ = __iter__ = __bool__ = refuse
    __hash__ = __eq__ = __getitem__ = __getattr__ = __format__ = __complex__ = __array__ = refuse


class Colour(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    HIGH = 3


class Mode(enum.StrEnum):
    FAST = "fast"


class Text(str):
    __slots__ = ()


class Whole(int):
    def __index__(self):
        raise RuntimeError("asked")

    __int__ = __index__


class Real(float):
    def __float__(self):
        raise RuntimeError("asked")


Point = collections.namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (False, False),
        (0, 0),
        (-1, -1),
        (2**63 - 1, 2**63 - 1),
        (-(2**63), -(2**63)),
        (0.0, 0.0),
        (-0.5, -0.5),
        (0.1, 0.1),
        (1e300, 1e300),
        (5e-324, 5e-324),
        (sys.float_info.max, sys.float_info.max),
        (1.0, 1.0),
        (math.inf, math.inf),
        (-math.inf, -math.inf),
        ("", ""),
        ("text", "text"),
        ('quotes " and \\ and \n and \x00', 'quotes " and \\ and \n and \x00'),
        ("日本 🚀", "日本 🚀"),
        ((), []),
        ([1, 2.5, "x", None, True], [1, 2.5, "x", None, True]),
        ((32, 128, 768), [32, 128, 768]),
        (['q"', "\\", "\n"], ['q"', "\\", "\n"]),
        (Point(1, 2), [1, 2]),
        (Level.HIGH, 3),
        (Mode.FAST, "fast"),
        (Text("subclass"), "subclass"),
        (Text("sübclass"), "sübclass"),
        (Whole(12), 12),
        (Real(1.5), 1.5),
        (Colour.RED, "<Colour>"),
        (b"bytes", "<bytes>"),
        ({"a": 1}, "<dict>"),
        ({1, 2}, "<set>"),
        (3 + 4j, "<complex>"),
        (object(), "<object>"),
        (int, "<type>"),
        (len, "<builtin_function_or_method>"),
        (Hostile(), "<Hostile>"),
        ([Hostile(), [1], {}], ["<Hostile>", "<list>", "<dict>"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_is_kept_as(recording, value, expected):
    got = kept(recording, value=value)["value"]
    assert type(got) is type(expected)
    assert got == expected
    assert recording.losses() == {}


def test_nan_is_kept_and_is_text_in_the_file(recording):
    value = kept(recording, value=math.nan)["value"]
    assert math.isnan(value)
    assert recording.lines[-1]["attrs"] == {"value": "NaN"}


def test_infinities_within_an_array_are_text(recording):
    assert kept(recording, value=[math.nan, math.inf, -math.inf])["value"] == ["NaN", "Infinity", "-Infinity"]


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 2**100, 10**300])
def test_a_huge_integer_is_rounded_as_a_reader_of_json_would(recording, value):
    assert kept(recording, value=value)["value"] == float(value)
    assert kept(recording, value=[value])["value"] == [float(value)]


@pytest.mark.parametrize("sign", [1, -1])
def test_an_integer_beyond_any_float_is_infinite(recording, sign):
    assert kept(recording, value=sign * 10**5000)["value"] == sign * math.inf
    assert kept(recording, value=[sign * 10**5000])["value"] == ["Infinity" if sign > 0 else "-Infinity"]


def test_numbers_of_numpy_are_numbers(recording):
    numpy = pytest.importorskip("numpy")
    for name in ("int8", "int16", "int32", "int64", "uint8", "uint64", "intc", "longlong"):
        got = kept(recording, value=getattr(numpy, name)(7))["value"]
        assert got == 7, name
        assert type(got) is int, name
    for name in ("float16", "float32", "float64", "longdouble"):
        got = kept(recording, value=getattr(numpy, name)(1.5))["value"]
        assert got == 1.5, name
        assert type(got) is float, name
    assert kept(recording, value=numpy.uint64(2**64 - 1))["value"] == float(2**64 - 1)
    assert kept(recording, value=numpy.bool_(True))["value"] is True
    assert kept(recording, value=numpy.bool_(False))["value"] is False
    assert kept(recording, value=numpy.str_("text"))["value"] == "text"
    assert kept(recording, value=(numpy.int64(3), numpy.float32(0.5)))["value"] == [3, 0.5]


def test_arrays_of_numpy_are_not_asked(recording):
    numpy = pytest.importorskip("numpy")
    assert kept(recording, value=numpy.zeros(3))["value"] == "<ndarray>"
    assert kept(recording, value=numpy.zeros(()))["value"] == "<ndarray>"
    assert kept(recording, value=numpy.datetime64("2020-01-01"))["value"] == "<datetime64>"
    assert kept(recording, value=numpy.dtype("f4"))["value"].startswith("<")


def test_a_tensor_is_shown_by_its_type_and_its_shape_as_numbers(recording):
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(2, 3)
    attrs = kept(recording, tensor=tensor, shape=tensor.shape, scalar=torch.tensor(1.0))
    assert attrs == {"tensor": "<Tensor>", "shape": [2, 3], "scalar": "<Tensor>"}


@pytest.mark.parametrize(
    "name", ['qu"ote', "back\\slash", "日" * 60, "new\nline", "x" * 5000], ids=lambda name: ascii(name)[:9]
)
def test_odd_names_of_types_stay_json(recording, name):
    odd = type(name, (), {})()
    got = kept(recording, alone=odd, listed=[odd])
    assert got["alone"].startswith("<" + name[:10])
    assert got["listed"][0].startswith("<" + name[:10])
    assert len(got["alone"].encode()) <= 130


def test_dotted_types_show_their_last_part(recording):
    assert kept(recording, value=collections.deque())["value"] == "<deque>"


# ------------------------------------------------------------------ bounds


def test_a_long_text_is_cut_and_counted(recording):
    assert kept(recording, value="x" * 1_000_000)["value"] == "x" * 1024
    assert recording.losses() == {"attribute_size": 1}


@pytest.mark.parametrize(
    "text", ["x" * 1023 + "é", "é" * 1000, "a" + "日" * 1000, "🚀" * 300, "ab" + "🚀" * 300], ids=ascii
)
def test_a_text_is_cut_between_characters(recording, text):
    got = kept(recording, value=text)["value"]
    assert text.startswith(got)
    assert 1024 - 4 < len(got.encode()) <= 1024
    assert recording.losses() == {"attribute_size": 1}


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 1023, 1024])
def test_a_text_up_to_the_bound_is_whole(recording, length):
    assert kept(recording, value="x" * length)["value"] == "x" * length
    assert kept(recording, value=Text("x" * length))["value"] == "x" * length
    assert recording.losses() == {}


def test_a_long_list_is_cut_and_counted(recording):
    assert kept(recording, value=list(range(1000)))["value"] == list(range(16))
    assert kept(recording, value=tuple(range(16)))["value"] == list(range(16))
    assert recording.losses() == {"attribute_size": 1}


def test_long_texts_in_a_list_are_cut_and_counted(recording):
    got = kept(recording, value=["a" * 50, "b" * 5000])["value"]
    assert got[0] == "a" * 50
    assert got[1] == "b" * len(got[1])
    assert 10 <= len(got[1]) <= 1000
    assert recording.losses() == {"attribute_size": 1}


def test_a_list_that_is_too_long_as_text_is_still_a_list(recording):
    got = kept(recording, value=["\x01" * 60] * 16)["value"]
    assert set(got) <= {"\x01" * 60}
    assert recording.losses() == {"attribute_size": 1}


def test_lone_surrogates_are_escaped(recording):
    got = kept(recording, value="a\ud800b", listed=["\udc80"])
    assert got == {"value": "a\\ud800b", "listed": ["\\udc80"]}


def test_a_text_of_surrogates_is_cut_within_the_bound(recording):
    got = kept(recording, value="\ud800" * 2000)["value"]
    assert 0 < len(got) <= 1024
    assert recording.losses() == {"attribute_size": 1}


def test_two_hundred_keywords_are_bounded_and_counted(recording):
    attrs = {f"key{index:03}": index for index in range(200)}
    got = kept(recording, **attrs)
    assert got == {f"key{index:03}": index for index in range(64)}
    assert recording.losses() == {"attributes": 136}


def test_many_long_texts_stay_within_the_bound_of_a_span(recording):
    attrs = {f"text{index:02}": f"{index:02}" * 512 for index in range(60)}
    got = kept(recording, **attrs)
    assert all(attrs[key].startswith(value) for key, value in got.items())
    assert 0 < sum(len(value) for value in got.values()) <= 16384
    assert sum(recording.losses().values()) >= 60 - 16


def test_attributes_that_no_chunk_can_hold_are_dropped_and_the_span_kept(recorder):
    recorder.start(chunk_bytes=1024)
    with _core.region("too large", text="x" * 1000, more="y" * 1000):
        pass
    with _core.region("fits", text="x"):
        pass
    assert recorder.one("too large").attrs == {}
    assert recorder.one("fits").attrs == {"text": "x"}
    assert recorder.losses() == {"attribute_size": 1}


def test_odd_names_of_attributes_go_round(recording):
    names = ['qu"ote', "back\\slash", "日本", "", "new\nline", "self", "name", "k" * 10_000]
    attrs = {name: index for index, name in enumerate(names)}
    assert kept(recording, **attrs) == attrs


def test_the_same_name_twice_keeps_the_last_value(recording):
    with _core.region("twice", a=1, b=2) as region:
        region.set(a=3)
        _core.annotate(a=4, c=5)
    assert recording.one("twice").attrs == {"a": 4, "b": 2, "c": 5}
    assert recording.lines[-1]["attrs"] == {"a": 4, "b": 2, "c": 5}


def test_an_attribute_set_a_thousand_times_keeps_the_last_value(recording):
    with _core.region("often") as region:
        for index in range(1000):
            region.set(progress=index, text="x" * 100)
            _core.annotate(other=-index)
    assert recording.one("often").attrs == {"progress": 999, "text": "x" * 100, "other": -999}
    assert recording.losses() == {}


# ------------------------------------------------------------------ lifetime


class Tracked:
    pass


class TrackedText(str):
    pass


class TrackedList(list):
    pass


@pytest.mark.parametrize("make", [Tracked, lambda: TrackedText("x" * 5000), lambda: TrackedList([Tracked()])])
def test_no_object_is_kept_alive(recording, make):
    value = make()
    gone = weakref.ref(value)
    region = _core.region("keeper", value=value)
    with region:
        region.set(late=value)
        _core.annotate(more=value)
        _core.mark("keeper mark", value=value)
        _core.count("keeper count", 1, value=value)
        del value
        gc.collect()
        assert gone() is None


def test_reference_counts_do_not_change(recording):
    value, name = Tracked(), "a name made at run time"[2:]
    before = sys.getrefcount(value), sys.getrefcount(None)
    for _ in range(1000):
        with _core.region("counting", value=value, listed=[value], nothing=None):
            pass
    for chunk in _core.take():
        chunk.decode()
    assert sys.getrefcount(value) == before[0]
    assert abs(sys.getrefcount(None) - before[1]) < 200
    assert name


# ------------------------------------------------------------------ set and annotate


def test_set_acts_on_its_own_site_and_annotate_on_the_innermost(recording):
    outer = _core.region("set outer")
    with outer, _core.region("set inner"):
        outer.set(to="outer")
        _core.annotate(to="inner")
    assert recording.one("set outer").attrs == {"to": "outer"}
    assert recording.one("set inner").attrs == {"to": "inner"}


def test_set_acts_on_the_innermost_span_of_a_recursive_site(recording):
    region = _core.region("set deep")
    with region:
        with region:
            region.set(level=2)
        region.set(level=1)
    assert [span.attrs for span in recording.named("set deep")] == [{"level": 2}, {"level": 1}]


def test_without_an_open_span_they_are_counted(recording):
    _core.region("not open").set(a=1)
    _core.annotate(a=1)
    _core.annotate()
    with _core.region("open"):
        _core.region("not open").set(b=1)
    assert recording.losses() == {"set_without_span": 3}
    assert recording.one("open").attrs == {}


def test_while_nothing_records_they_do_nothing(recorder):
    _core.region("off").set(a=1)
    _core.annotate(a=1)
    _core.mark("off", a=1)
    recorder.start()
    assert recorder.losses() == {}


def test_positional_arguments_are_type_errors(recording):
    with pytest.raises(TypeError, match="keywords only"):
        _core.annotate(1)
    with pytest.raises(TypeError, match="keywords only"):
        _core.region("r").set(1)


def test_attributes_of_a_span_and_of_its_entry_are_bounded_each(recording):
    entry = {f"entry{index:02}": index for index in range(64)}
    later = {f"later{index:02}": index for index in range(64)}
    with _core.region("both", **entry) as region:
        region.set(**later)
    assert recording.one("both").attrs == entry | later
    assert recording.losses() == {}


def test_too_many_names_of_attributes_are_counted(run_python):
    out = run_python(
        "from instrument.recorder import _core as c\n"
        "c.start()\n"
        "for i in range(5000):\n"
        "    with c.region('r', **{f'k{i}': i}): pass\n"
        "rows = [row for chunk in c.take() for row in chunk.decode()]\n"
        "kept = sum(1 for row in rows if row[10])\n"
        "print(len(rows), kept, c.losses())\n"
    )
    assert out == "5000 4096 {'attributes': 904}\n"
