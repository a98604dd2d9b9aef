import pytest

from instrument.runs.units import cells, clean, duration, number, percent, quantity


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (None, "–"),
        (0, "0 ns"),
        (7, "7 ns"),
        (3.25, "3.25 ns"),
        (999, "999 ns"),
        (999.7, "1.00 µs"),
        (1000, "1.00 µs"),
        (12_345, "12.3 µs"),
        (999_600, "1.00 ms"),
        (1_234_567, "1.23 ms"),
        (99_960_000, "100 ms"),
        (2_500_000_000, "2.50 s"),
        (123e9, "123 s"),
        (599e9, "599 s"),
        (600e9, "10.0 min"),
        (7200e9, "2.00 h"),
        (3600e9 * 5000, "5000 h"),
    ],
)
def test_durations_have_three_digits_and_a_unit(ns, text):
    assert duration(ns) == text


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (1234567, "1,234,567"), (99.6, "100")])
def test_quantities_have_their_thousands_apart(value, text):
    assert quantity(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (5, "5"),
        (5.0, "5"),
        (0.0675, "0.0675"),
        (1.234, "1.23"),
        (12.34, "12.3"),
        (1234.5, "1,234"),
        (-2.5, "-2.50"),
        (1e12, "1.00e+12"),
        (1e-7, "1.00e-07"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
    ],
)
def test_numbers_have_three_digits(value, text):
    assert number(value) == text


def test_shares_are_percents():
    assert percent(0.1234) == "12.3%"


def test_control_characters_cannot_reach_a_terminal():
    assert clean("a\x1b[31mb\nc\x07\u202e") == r"a\x1b[31mb\nc\x07\u202e"


def test_long_text_is_cut_with_an_ellipsis():
    assert clean("abcdef", 4) == "abc…"
    assert clean("abcd", 4) == "abcd"
    assert cells(clean("語" * 50, 11)) <= 11
    assert len(clean("x" * 10_000, 100)) == 100


def test_wide_and_combining_letters_are_measured():
    assert cells("a語é") == 4
    assert cells("e\u0301") == 1
