"""count, gauge and observe: exact sums, bounded series, wrong values counted."""

import math
import threading

import pytest

from instrument.recorder import _core


def series():
    rows = _core.metrics()
    return {(kind, name, tuple(sorted(labels.items()))): tuple(rest) for kind, name, labels, *rest in rows}


def test_count_adds_up(recording):
    for n in (1, 2, 3.5):
        _core.count("tokens", n)
    _core.count("tokens")
    assert series() == {("count", "tokens", ()): (4, 7.5, 1.0, 3.5, 1.0)}


def test_gauge_keeps_the_last_and_the_extremes(recording):
    for value in (3, -1, 2):
        _core.gauge("level", value)
    assert series() == {("gauge", "level", ()): (3, 4.0, -1.0, 3.0, 2.0)}


def test_observe_keeps_count_and_sum(recording):
    for value in range(101):
        _core.observe("latency", value)
    assert series() == {("observe", "latency", ()): (101, 5050.0, 0.0, 100.0, 100.0)}


def test_kinds_names_and_labels_are_series_of_their_own(recording):
    _core.count("m", 1)
    _core.gauge("m", 2)
    _core.observe("m", 3)
    _core.count("m", 4, device=0)
    _core.count("m", 5, device=1, phase="decode")
    _core.count("m", 6, phase="decode", device=1)
    assert {key: value[1] for key, value in series().items()} == {
        ("count", "m", ()): 1.0,
        ("gauge", "m", ()): 2.0,
        ("observe", "m", ()): 3.0,
        ("count", "m", (("device", 0),)): 4.0,
        ("count", "m", (("device", 1), ("phase", "decode"))): 11.0,
    }


def test_labels_are_plain_values(recording):
    _core.count("typed", 1, i=1, f=2.5, s="x", b=True, n=None, o=object(), big=10**5000, nan=math.nan)
    ((_, _, labels, *_),) = _core.metrics()
    assert labels == {
        "i": 1,
        "f": 2.5,
        "s": "x",
        "b": True,
        "n": None,
        "o": "<object>",
        "big": "Infinity",
        "nan": "NaN",
    }


def test_labels_that_are_numbers_of_numpy_are_numbers(recording):
    np = pytest.importorskip("numpy")
    _core.count("rank", 1, rank=np.int64(3))
    _core.count("rank", 1, rank=3)
    more = {"on": np.bool_(True), "at": np.float32(1.5), "inf": np.float64("-inf"), "big": 2**64}
    _core.count("rank", 1, rank=np.int64(4), **more)
    (_, _, one, count, *_), (_, _, other, *_) = _core.metrics()
    assert (one, count) == ({"rank": 3}, 2)
    assert other == {"rank": 4, "on": True, "at": 1.5, "inf": "-Infinity", "big": 2.0**64}
    assert [type(other[name]) for name in ("rank", "on", "at")] == [int, bool, float]


def test_a_long_label_is_cut(recording):
    _core.count("long label", 1, text="x" * 100_000)
    ((_, _, labels, *_),) = _core.metrics()
    assert labels == {"text": "x" * 1024}


class Hostile:
    def __float__(self):
        raise RuntimeError("asked")

    __index__ = __int__ = __hash__ = __eq__ = __repr__ = __float__


@pytest.mark.parametrize(
    "value",
    ["3", None, math.nan, math.inf, -math.inf, 10**400, [], Hostile(), b"1", 1j],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("verb", [_core.count, _core.gauge, _core.observe], ids=lambda verb: verb.__name__)
def test_what_is_no_finite_number_is_counted(recording, verb, value):
    verb("wrong", value)
    assert _core.metrics() == []
    assert recording.losses() == {"metrics": 1}


@pytest.mark.parametrize("name", [None, 3, b"x", [], Hostile(), "x" * 2000], ids=lambda n: type(n).__name__)
def test_what_is_no_name_is_counted(recording, name):
    _core.count(name, 1)
    assert _core.metrics() == []
    assert recording.losses() == {"metrics": 1}


def test_labels_that_cannot_be_hashed_are_shown_by_type(recording):
    _core.count("unhashable", 1, value=[1], other=Hostile(), more={})
    ((_, _, labels, *_),) = _core.metrics()
    assert labels == {"value": "<list>", "other": "<Hostile>", "more": "<dict>"}


def test_numbers_of_numpy_count_and_arrays_do_not(recording):
    numpy = pytest.importorskip("numpy")
    _core.count("of numpy", numpy.int64(3))
    _core.count("of numpy", numpy.float32(0.5))
    _core.count("of numpy", True)
    for wrong in (numpy.zeros(1), numpy.array(2.0), numpy.complex64(1)):
        _core.count("of numpy", wrong)
    assert series()[("count", "of numpy", ())][:2] == (3, 4.5)
    assert recording.losses() == {"metrics": 3}


def test_sixty_four_sets_of_labels_a_name_and_no_more(recording):
    for index in range(100):
        _core.count("many sets", 1, index=index)
    _core.count("many sets", 1, index=5)
    assert len(_core.metrics()) == 64
    assert recording.losses() == {"metrics": 36}


def test_a_thousand_names_and_no_more(recording):
    for index in range(1100):
        _core.gauge(f"name {index}", index)
    assert len(_core.metrics()) == 1024
    assert recording.losses() == {"metrics": 76}


def test_sixteen_labels_a_point_and_no_more(recording):
    _core.count("few labels", 1, **{f"l{index}": index for index in range(16)})
    _core.count("many labels", 1, **{f"l{index}": index for index in range(17)})
    assert [row[1] for row in _core.metrics()] == ["few labels"]
    assert recording.losses() == {"metrics": 1}


def test_wrong_calls_are_type_errors_also_when_off(recorder):
    for _ in range(2):
        with pytest.raises(TypeError, match="count"):
            _core.count()
        with pytest.raises(TypeError, match="gauge"):
            _core.gauge("g")
        with pytest.raises(TypeError, match="observe"):
            _core.observe("o", 1, 2)
        recorder.start()
        recorder.stop()


def test_nothing_is_kept_while_off_and_each_session_begins_anew(recorder):
    _core.count("off", 1)
    recorder.start()
    assert _core.metrics() == []
    _core.count("on", 1)
    recorder.stop()
    _core.count("on", 1)
    assert series() == {("count", "on", ()): (1, 1.0, 1.0, 1.0, 1.0)}
    recorder.start()
    assert _core.metrics() == []


def test_threads_count_together(recording):
    def work():
        for _ in range(5000):
            _core.count("together", 1, who="all")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert series()[("count", "together", (("who", "all"),))][:2] == (20_000, 20_000.0)


def test_odd_names_and_labels_are_kept_as_they_are(recording):
    _core.count('qu"ote\n', 1, **{"la bel": '"', "": "\ud800"})
    ((_, name, labels, *_),) = _core.metrics()
    assert (name, labels) == ('qu"ote\n', {"la bel": '"', "": "\ud800"})


def test_labels_of_different_types_are_series_of_their_own(recording):
    _core.count("typed label", 1, flag=1)
    _core.count("typed label", 1, flag=True)
    _core.count("typed label", 1, flag=1.0)
    _core.count("typed label", 1, flag=True)
    assert [(labels["flag"], type(labels["flag"]), count) for _, _, labels, count, *_ in _core.metrics()] == [
        (1, int, 1),
        (True, bool, 2),
        (1.0, float, 1),
    ]


def test_four_thousand_and_ninety_six_series_and_no_more(recording):
    for name in range(100):
        for label in range(64):
            _core.count(f"many {name}", 1, label=label)
    assert len(series()) == 4096
    assert recording.losses() == {"metrics": 100 * 64 - 4096}
