"""The lines of the run file as the C writer makes them."""

import contextlib
import json
import math
import os
import struct
import threading

import pytest

from instrument.recorder import _core


def lines(offset=0):
    return [json.loads(line) for chunk in _core.take() for line in chunk.jsonl(offset).splitlines()]


def test_a_plain_span_has_exactly_these_fields(recording):
    with _core.region("plain line"):
        pass
    (line,) = lines()
    assert list(line) == ["type", "id", "name", "kind", "path", "start", "dur", "pid", "tid"]
    assert line["type"] == "span"
    assert (line["name"], line["kind"], line["path"]) == ("plain line", "region", "plain line")
    assert (line["pid"], line["tid"]) == (os.getpid(), threading.get_native_id())
    assert len(line["id"]) == 16
    assert int(line["id"], 16) > 0


def test_a_full_span_has_all_of_them(recording):
    with _core.region("line root"), contextlib.suppress(KeyError), _core.step(4, a=1, b="x") as step:
        step.set(c=None)
        raise KeyError
    step, root = lines()
    fields = "type id parent name kind path start dur pid tid step status error attrs"
    assert list(step) == fields.split()
    assert step["parent"] == root["id"]
    assert (step["kind"], step["step"], step["status"], step["error"]) == ("step", 4, "error", "KeyError")
    assert step["attrs"] == {"a": 1, "b": "x", "c": None}


def test_a_mark_has_a_time_and_no_id(recording):
    with _core.step(2):
        _core.mark("line mark", a=1)
    _core.mark("bare mark")
    mark, step, bare = lines()
    assert list(mark) == ["type", "parent", "name", "kind", "path", "time", "pid", "tid", "step", "attrs"]
    assert (mark["type"], mark["name"], mark["path"]) == ("mark", "line mark", "step/line mark")
    assert step["start"] <= mark["time"] <= step["start"] + step["dur"]
    assert mark["parent"] == step["id"]
    assert list(bare) == ["type", "name", "kind", "path", "time", "pid", "tid"]


def test_the_offset_turns_monotonic_into_wall_time(recording):
    with _core.region("offset"):
        pass
    (chunk,) = _core.take()
    without, with_ = (json.loads(chunk.jsonl(offset)) for offset in (0, 1_700_000_000_000_000_000))
    assert with_["start"] - without["start"] == 1_700_000_000_000_000_000
    assert with_["dur"] == without["dur"]
    assert json.loads(chunk.jsonl(-1000))["start"] == without["start"] - 1000


@pytest.mark.parametrize("offset", ["0", 1.5, None, 2**64])
def test_an_offset_that_is_none_raises(recording, offset):
    with _core.region("no offset"):
        pass
    (chunk,) = _core.take()
    with pytest.raises((TypeError, OverflowError)):
        chunk.jsonl(offset)


def floats():
    values = [0.0, -0.0, 1.0, 0.1, 1 / 3, 1e21, 1e22, 1e16, 1e-5, 1.5e300, 5e-324, 2.2250738585072014e-308]
    values += [math.pi * 10**exponent for exponent in range(-300, 300, 7)]
    state = 12345
    for _ in range(300):
        state = state * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
        (value,) = struct.unpack("d", struct.pack("Q", state))
        if math.isfinite(value):
            values.append(value)
    return values


def test_floats_read_back_equal_and_stay_floats(recording):
    values = floats()
    for value in values:
        with _core.region("float line", value=value):
            pass
    got = [line["attrs"]["value"] for line in lines()]
    assert all(type(value) is float for value in got)
    assert [value.hex() for value in got] == [value.hex() for value in values]


def test_integers_read_back_equal(recording):
    powers = [2**bits + delta for bits in range(63) for delta in (-1, 0, 1)]
    values = [sign * value for value in powers for sign in (1, -1)]
    values += [0, 9, 10, 99, 100, 101, 999, 1000, 2**63 - 1, -(2**63)]
    for value in values:
        with _core.region("int line", value=value):
            pass
    assert [line["attrs"]["value"] for line in lines()] == values


ODD_CHARACTERS = [chr(code) for code in (*range(0x24), 0x5C, 0x7F, 0x80, 0x2028, 0xFFFF, 0x10FFFF)]


@pytest.mark.parametrize("character", ODD_CHARACTERS, ids=ascii)
def test_every_character_goes_round(recording, character):
    text = f"<{character}>"
    with _core.region("character line", **{text: text}):
        _core.mark(text)
    mark, span = lines()
    assert span["attrs"] == {text: text}
    assert mark["name"] == text


def test_the_locale_does_not_matter(run_python):
    out = run_python(
        "import locale, json\n"
        "for name in ('de_DE.UTF-8', 'fr_FR.UTF-8', 'C.UTF-8'):\n"
        "    try: locale.setlocale(locale.LC_ALL, name); break\n"
        "    except locale.Error: pass\n"
        "from instrument.recorder import _core as c\n"
        "c.start()\n"
        "with c.region('r', v=1.5, w=[2.5]): pass\n"
        "print(json.loads(c.take()[0].jsonl(0))['attrs'])\n"
    )
    assert out == "{'v': 1.5, 'w': [2.5]}\n"


def test_every_line_ends_in_one_newline(recording):
    for _ in range(100):
        with _core.region("ended line", text="a\nb"):
            pass
    (chunk,) = _core.take()
    data = chunk.jsonl(0)
    assert data.endswith(b"}\n")
    assert data.count(b"\n") == 100 == chunk.count


def test_writing_and_recording_at_once_do_not_disturb_each_other(recorder):
    recorder.start(buffer_bytes=256 << 20)
    stop = threading.Event()
    written = []

    def write():
        while not stop.is_set():
            written.extend(lines())

    writer = threading.Thread(target=write)
    writer.start()
    for index in range(30_000):
        with _core.region("concurrent", index=index), _core.region("concurrent inner"):
            pass
    stop.set()
    writer.join()
    written.extend(lines())
    assert recorder.losses() == {}
    outer = [line["attrs"]["index"] for line in written if line["name"] == "concurrent"]
    assert outer == list(range(30_000))
    assert sum(line["name"] == "concurrent inner" for line in written) == 30_000
