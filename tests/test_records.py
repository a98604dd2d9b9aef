import dataclasses
import math

import pytest

from instrument import records
from instrument.records import Batch, Exporter, Loss, Mark, PathInfo, Resource, Span, Total
from instrument.testing import InMemoryExporter

PATHS = (
    None,
    PathInfo("step", "step", "step", 0, 0),
    PathInfo("a/b", "region", "step/a%2Fb", 1, 1),
    PathInfo("seen", "mark", "step/a%2Fb/seen", 2, 2),
)


class FakeChunk:
    """Three records as the recorder decodes them."""

    thread, tid = 1, 4711

    def __init__(self):
        self.records = [
            (11, 10, 9, 2, 1_000, 1_500, 0b1, 7, None, "ValueError", {"n": 1}, {"flops": 2.0}),
            (12, 10, 9, 3, 1_600, 1_600, 0b10, 7, None, None, {"why": "x"}, None),
            (10, 0, 10, 1, 900, 2_000, 0b1000, 7, 5, None, None, None),
        ]
        self.count = len(self.records)
        self.marks = 1

    def decode(self):
        return self.records

    def jsonl(self, offset, following=(), /):
        return b"%d\n" % offset * (self.count + sum(chunk.count for chunk in following))


def a_batch(**changes):
    fields = {
        "sequence": 1,
        "chunks": (FakeChunk(),),
        "pid": 42,
        "wall_offset": 1_000_000,
        "paths": PATHS,
        "flag_names": ("", "", "cancelled", "unfinished"),
    }
    return Batch(**fields | changes)


def test_spans_carry_everything_that_was_recorded():
    failed, root = a_batch().spans()
    assert failed == Span(
        id=11,
        parent=10,
        root=9,
        name="a/b",
        kind="region",
        path="step/a%2Fb",
        start=1_001_000,
        dur=500,
        pid=42,
        tid=4711,
        task=None,
        step=7,
        weight=1.0,
        status="error",
        error="ValueError",
        flags=(),
        attrs={"n": 1},
        measures={"flops": 2.0},
    )
    assert (root.parent, root.task, root.flags, root.status, root.attrs) == (
        None,
        5,
        ("unfinished",),
        "ok",
        {},
    )


def test_marks_are_not_spans():
    assert list(a_batch().marks()) == [
        Mark(
            name="seen",
            path="step/a%2Fb/seen",
            time=1_001_600,
            parent=10,
            pid=42,
            tid=4711,
            step=7,
            attrs={"why": "x"},
        )
    ]


def test_lines_come_from_the_recorders_writer_in_unix_time():
    assert list(a_batch().lines()) == [b"1000000\n1000000\n1000000\n"]


def test_lines_of_many_chunks_come_in_some_pieces_and_lose_none():
    pieces = list(a_batch(chunks=(FakeChunk(),) * 40).lines())
    assert 1 < len(pieces) < 40
    assert b"".join(pieces) == b"1000000\n" * 120


def test_a_batch_counts_spans_and_marks():
    assert a_batch(chunks=(FakeChunk(), FakeChunk())).count == 6
    assert a_batch(chunks=(FakeChunk(), FakeChunk())).mark_count == 2
    assert Batch(sequence=1).count == 0


def test_a_path_that_is_not_known_does_not_break_a_batch():
    assert [span.name for span in a_batch(paths=PATHS[:2]).spans()] == ["", "step"]


def test_quantiles_of_a_total_stay_within_what_was_seen():
    total = Total("p", "p", "region", {}, 3, 0, 0, 3_050, 3_050, 1_000, 1_030, ((992, 2), (1_024, 1)))
    assert total.p50_ns == 1_004  # half of three: three quarters into a bucket of 16 that holds two
    assert total.p99_ns == 1_030
    assert 1_024 <= total.p90_ns <= 1_030


def test_a_total_of_open_spans_only_has_no_quantiles():
    assert math.isnan(Total("p", "p", "region", {}, 0, 0, 2, 0, 0, 0, 0, ()).p50_ns)


def test_a_total_whose_histogram_found_no_memory_has_a_line_without_quantiles():
    line = Total("p", "p", "region", {}, 3, 0, 0, 3_050, 3_050, 1_000, 1_030, ()).as_line()
    assert (line["count"], line["min_ns"], line["max_ns"]) == (3, 1_000, 1_030)
    assert (line["p50_ns"], line["p90_ns"], line["p99_ns"]) == (None, None, None)


def test_the_clock_of_a_resource_gives_unix_time():
    resource = Resource("r", None, 1, "h", clock={"monotonic_ns": 30, "wall_ns": 1_000})
    assert resource.wall_offset == 970
    assert Resource("r", None, 1, "h").wall_offset == 0


@pytest.mark.parametrize(
    "name", ["Batch", "Loss", "Mark", "Metric", "Resource", "SiteInfo", "Span", "Thread", "Total"]
)
def test_records_are_frozen_and_slotted(name):
    kind = getattr(records, name)
    assert kind.__dataclass_params__.frozen
    assert "__slots__" in vars(kind)
    assert not hasattr(kind(*[None] * len(dataclasses.fields(kind))), "__dict__")


def test_the_public_names_exist():
    assert all(hasattr(records, name) for name in records.__all__)


def test_an_exporter_is_whatever_has_the_four_methods():
    assert isinstance(InMemoryExporter(), Exporter)
    assert not isinstance(Loss("a", "b", 1), Exporter)
