"""Duration histograms with fixed boundaries, as the recorder keeps them for every path.

What
    Durations in ns. Below 32 ns each value has a bucket of its own; above, every octave (``[2**k,
    2**(k+1))``) is cut into 32 buckets of equal width, so a bucket is never wider than 1/32 of its lowest
    value.
Why
    The boundaries depend on nothing, so histograms of threads, processes, hosts and runs add up bucket by
    bucket.
How
    A histogram is a sequence of ``(lowest ns of the bucket, count)``; empty buckets are left out. All
    functions here are pure and cost microseconds.
"""

from collections.abc import Iterable
from typing import Final

__all__ = ["BUCKETS_PER_OCTAVE", "Histogram", "bucket_bounds", "bucket_low", "merge", "quantile"]

BUCKETS_PER_OCTAVE: Final = 32

_NAME_BITS: Final = (
    BUCKETS_PER_OCTAVE.bit_length() - 1
)  # 5: a bucket is named by so many bits below the first

Histogram = tuple[tuple[int, int], ...]
"""``(lowest ns of the bucket, count)``, ascending, without empty buckets."""


def bucket_low(ns: int) -> int:
    """The lowest value, in ns, of the bucket that holds a duration of ``ns``."""
    shift = _shift(ns)
    return ns >> shift << shift


def bucket_bounds(low: int) -> tuple[int, int]:
    """``[low, high)`` in ns of the bucket whose lowest value is ``low``."""
    return low, low + (1 << _shift(low))


def quantile(
    histogram: Iterable[tuple[int, int]], q: float, *, least: int | None = None, most: int | None = None
) -> float:
    """The ``q``-quantile in ns (``q`` from 0 to 1), interpolated inside its bucket; NaN for no values.

    ``least`` and ``most`` are the smallest and largest value seen, if known: no quantile lies outside them.
    Without rounding by other means the error is below 1/32 of the value.
    """
    buckets = sorted((low, count) for low, count in histogram if count > 0)
    total = sum(count for _, count in buckets)
    if not total:
        return float("nan")
    wanted = min(max(q, 0.0), 1.0) * total
    value = float(buckets[-1][0])
    seen = 0
    for low, count in buckets:
        if seen + count >= wanted:
            value = _inside(low, max(wanted - seen, 0.0) / count)
            break
        seen += count
    if least is not None:
        value = max(value, float(least))
    if most is not None:
        value = min(value, float(most))
    return value


def merge(*histograms: Iterable[tuple[int, int]]) -> Histogram:
    """The sum of histograms, bucket by bucket."""
    counts: dict[int, int] = {}
    for histogram in histograms:
        for low, count in histogram:
            counts[low] = counts.get(low, 0) + count
    return tuple(sorted((low, count) for low, count in counts.items() if count))


def _shift(ns: int) -> int:
    """By how many bits a value is wider than its bucket's name."""
    return max(ns.bit_length() - 1 - _NAME_BITS, 0)


def _inside(low: int, fraction: float) -> float:
    """The point at ``fraction`` of a bucket; a bucket that holds one value only is that value."""
    low, high = bucket_bounds(low)
    return float(low) if high - low == 1 else low + fraction * (high - low)
