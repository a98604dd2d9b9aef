import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import instrument
from instrument.histogram import bucket_bounds, bucket_low, merge, quantile
from instrument.testing import capture

nanoseconds = st.integers(min_value=0, max_value=2**62)


def counted(values):
    """A histogram made without the module: by dividing each octave into 32 with exact fractions."""
    counts = {}
    for value in values:
        if value < 32:
            low = value
        else:
            octave = 2 ** int(math.log2(value) + 1e-9) if value < 2**40 else 1 << (value.bit_length() - 1)
            low = octave + (value - octave) * 32 // octave * (octave // 32)
        counts[low] = counts.get(low, 0) + 1
    return sorted(counts.items())


@given(nanoseconds)
def test_a_value_lies_in_its_bucket_and_the_bucket_is_at_most_a_32nd_wide(value):
    low, high = bucket_bounds(bucket_low(value))
    assert low <= value < high
    assert high - low == 1 or (high - low) * 32 <= low


@given(nanoseconds)
def test_buckets_follow_one_another_without_gaps(value):
    low, high = bucket_bounds(bucket_low(value))
    assert bucket_low(high) == high
    assert low == 0 or bucket_low(low - 1) < low


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [(0, 0, 1), (31, 31, 32), (63, 63, 64), (65, 64, 66), (100, 100, 102), (1000, 992, 1008)],
)
def test_bounds_computed_by_hand(value, low, high):
    assert bucket_bounds(bucket_low(value)) == (low, high)


def test_the_recorder_in_c_uses_the_same_buckets():
    with capture() as got:
        for number in range(300):
            with instrument.region("loop"):
                sum(range(number * 5))
    (total,) = got.totals
    assert list(total.histogram) == counted(span.dur for span in got.spans)


@given(st.lists(st.integers(0, 10**10), min_size=1, max_size=200), st.floats(0, 1))
def test_a_quantile_is_within_a_32nd_of_the_sorted_value(values, q):
    values.sort()
    exact = values[min(max(math.ceil(q * len(values)) - 1, 0), len(values) - 1)]
    estimate = quantile(counted(values), q, least=values[0], most=values[-1])
    assert abs(estimate - exact) <= exact / 32 + 1


def test_quantiles_of_small_values_are_exact():
    values = [3, 3, 7, 20, 31]
    assert [quantile(counted(values), q) for q in (0.0, 0.4, 0.5, 0.8, 1.0)] == [3, 3, 7, 20, 31]


def test_a_quantile_is_interpolated_inside_its_bucket():
    assert quantile([(1024, 4)], 0.25) == 1024 + 32 / 4
    assert quantile([(1024, 2), (2048, 2)], 0.75) == 2048 + 64 / 2


def test_no_quantile_lies_outside_what_was_seen():
    assert quantile([(1024, 10)], 0.99, least=1030, most=1031) == 1031
    assert quantile([(1024, 10)], 0.01, least=1030, most=1031) == 1030


def test_a_histogram_without_values_has_no_quantile():
    assert math.isnan(quantile([], 0.5))
    assert math.isnan(quantile([(5, 0)], 0.5))


def test_merged_histograms_are_the_histogram_of_all_values():
    values = [random.Random(7).randrange(10**6) for _ in range(500)]
    assert list(merge(counted(values[:100]), counted(values[100:]))) == counted(values)
