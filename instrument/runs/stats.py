"""Numbers about many executions, that add up over spans, threads, processes and hosts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from instrument.histogram import quantile

__all__ = ["Stats", "as_count", "as_measures", "as_number"]

LARGEST: Final = 1e100
"""No sum of numbers up to this leaves the range of a float; nothing that is measured comes near."""


@dataclass(slots=True)
class Stats:
    """Count, times and work of executions; durations in ns. Fractions come from weights of sampled spans."""

    count: float = 0
    """Executions that ended."""
    errors: float = 0
    open: float = 0
    """Executions that had not ended; apart from ``open_ns`` they are in no other number."""
    open_ns: float = 0
    """How long those had run."""
    sum_ns: float = 0
    self_ns: float = 0
    """``sum_ns`` without the children in the same task."""
    min_ns: int | None = None
    max_ns: int | None = None
    histogram: dict[int, float] = field(default_factory=dict)
    """Executions by the lowest ns of their bucket; see :mod:`instrument.histogram`."""
    measures: dict[str, float] = field(default_factory=dict)
    """Sums of what was measured."""
    measured: float = 0
    """Executions that say what work they did."""
    measured_ns: float = 0
    """What those took."""
    kind: str = ""
    estimated: bool = False
    """Some of it was counted by weight."""

    def add(self, other: "Stats") -> None:
        """Take in another's executions."""
        self.count += other.count
        self.errors += other.errors
        self.open += other.open
        self.open_ns += other.open_ns
        self.sum_ns += other.sum_ns
        self.self_ns += other.self_ns
        self.min_ns = min((n for n in (self.min_ns, other.min_ns) if n is not None), default=None)
        self.max_ns = max((n for n in (self.max_ns, other.max_ns) if n is not None), default=None)
        for low, count in other.histogram.items():
            self.histogram[low] = self.histogram.get(low, 0) + count
        for name, value in other.measures.items():
            self.measures[name] = self.measures.get(name, 0) + value
        self.measured += other.measured
        self.measured_ns += other.measured_ns
        self.kind = self.kind or other.kind
        self.estimated |= other.estimated

    @property
    def mean_ns(self) -> float | None:
        """None where nothing ended."""
        return self.sum_ns / self.count if self.count else None

    def quantile_ns(self, q: float) -> float | None:
        """The ``q``-quantile, within 1/32; None where nothing ended or no histogram was kept."""
        if not self.histogram:
            return None
        buckets = [(low, int(count) or 1) for low, count in self.histogram.items()]
        return quantile(buckets, q, least=self.min_ns, most=self.max_ns)

    def rate(self, measure: str) -> float | None:
        """A measure per ns of the measured executions (of flops: GFLOP/s); None where it was not measured."""
        value = self.measures.get(measure)
        return value / self.measured_ns if value is not None and self.measured_ns else None

    @classmethod
    def from_total(cls, record: Mapping[str, Any]) -> "Stats":
        """A ``total`` line as numbers. ValueError if it lacks one or holds something else in its place."""
        count = as_count(record.get("count"))
        sum_ns = as_count(record.get("sum_ns"))
        measured = as_count(record.get("measured", 0))
        measured_ns = record.get("measured_ns")
        share = sum_ns * measured / count if count else 0  # by number, where the line does not say
        return cls(
            count=count,
            errors=as_count(record.get("errors", 0)),
            open=as_count(record.get("open", 0)),
            sum_ns=sum_ns,
            self_ns=as_count(record.get("self_ns", 0)),
            min_ns=as_count(record.get("min_ns")) if count else None,
            max_ns=as_count(record.get("max_ns")) if count else None,
            histogram=_histogram(record.get("histogram", [])),
            measures=as_measures(record.get("measures", {})),
            measured=measured,
            measured_ns=share if measured_ns is None else as_count(measured_ns),
            kind=str(record.get("kind", "")),
        )


def as_count(value: Any) -> int:
    """A JSON value as a whole number from 0 that 64 bits can hold; ValueError if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is not a count")
    if not 0 <= value < 1 << 64 or value != value // 1:
        raise ValueError(f"{value!r} is not a count")
    return int(value)


def as_number(value: Any) -> float:
    """A JSON value as a number of which many can be added up; ValueError if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST:
        raise ValueError(f"{value!r} is not a number")
    return value


def as_measures(value: Any) -> dict[str, float]:
    """The finite numbers among a line's measures; the words "NaN" and so on are left out."""
    if not isinstance(value, Mapping):
        raise ValueError("measures are not an object")
    return {name: as_number(item) for name, item in value.items() if not isinstance(item, str)}


def _histogram(value: Any) -> dict[int, float]:
    if not isinstance(value, Sequence) or not all(
        isinstance(item, Sequence) and len(item) == 2 for item in value
    ):
        raise ValueError("a histogram is not a list of pairs")
    return {as_count(low): as_count(count) for low, count in value}
