"""Whatever a file holds: reading it answers a run, or says in one line why not, and never anything else."""

import gzip
import json
import os
import zlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from run_builder import RunBuilder, as_line, small_run

from instrument.errors import RunFileError
from instrument.runs.report import Report
from instrument.runs.run import load_run

FIRST = RunBuilder().data()
RELAXED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)


def read(path, data, *, show=True, **options):
    """The run in these bytes, shown in every form; None if it is refused. A number cuts the file there."""
    if isinstance(data, int):
        os.truncate(path, data)  # much cheaper than writing it anew
    else:
        path.write_bytes(data)
    try:
        run = load_run([path], **options)
    except RunFileError as error:
        if "\n" in str(error):
            raise AssertionError("more than a line") from error
        return None
    if not show:
        return run
    shown = Report(run)
    assert shown.as_text(80)
    assert shown.as_markdown()
    assert shown._repr_html_()
    json.loads(shown.as_json(), parse_constant=pytest.fail)
    return run


@RELAXED
@given(st.binary(max_size=300))
def test_random_bytes_are_refused_or_read(tmp_path, data):
    read(tmp_path / "run.jsonl", data)


@RELAXED
@given(st.binary(max_size=300), st.booleans())
def test_random_bytes_behind_a_first_line_are_read_around(tmp_path, data, by):
    run = read(tmp_path / "run.jsonl", FIRST + data, **({"by": "a"} if by else {}))
    assert run is not None
    whole = data.count(b"\n")
    state = run.processes[0].state
    assert state.lines in (whole + 1, whole + 2)


@RELAXED
@given(st.binary(max_size=200))
def test_random_bytes_that_claim_to_be_compressed_are_refused_or_read(tmp_path, data):
    read(tmp_path / "run.jsonl.gz", b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + data)
    read(tmp_path / "run.jsonl.gz", zlib.compress(FIRST, wbits=31) + data)


def test_a_file_cut_anywhere_is_read_to_its_last_whole_line(tmp_path):
    builder = small_run(1)
    data = builder.data()
    path = tmp_path / "run.jsonl"
    path.write_bytes(data)
    for cut in reversed(range(len(data))):
        run = read(path, cut, show=cut % 97 == 0)
        if run is None:
            assert cut < len(FIRST) - 1
            continue
        kept = data[:cut].count(b"\n") + (data[cut : cut + 1] == b"\n")
        spans = sum(line["type"] == "span" for line in builder.lines[:kept])
        state = run.processes[0].state
        assert (run.spans, state.lines, state.skipped) == (spans, kept, 0)
        assert state.ended == (kept == len(builder.lines))
        assert (state.cut_bytes > 0) == (not data[:cut].endswith(b"\n") and data[cut : cut + 1] != b"\n")


def test_a_compressed_file_cut_anywhere_is_read_or_refused(tmp_path):
    data = gzip.compress(small_run(3).data())
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(data)
    spans = [15]
    for cut in reversed(range(len(data))):
        run = read(path, cut, show=cut % 97 == 0)
        if run is not None:
            assert run.processes[0].state.damage
            spans.append(run.spans)
    assert spans == sorted(spans, reverse=True)
    assert set(spans) >= {0, 15}


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-10, 2**70),
    st.floats(),
    st.text(max_size=5),
    st.just([]),
    st.just({}),
)
KINDS = ["run", "thread", "site", "span", "mark", "metric", "lines", "total", "scene", "loss", "end", "other"]
FIELDS = [
    *("path", "name", "kind", "by", "count", "errors", "open", "sum_ns", "self_ns", "min_ns", "max_ns"),
    *("histogram", "measured", "measured_ns", "measures", "where", "reason", "labels", "time", "duration_ns"),
    *("spans", "marks", "id", "parent", "start", "dur", "pid", "tid", "task", "weight", "status", "flags"),
    *("attrs", "sum", "min", "max", "last", "lines", "schema", "run_id"),
]
CLOCKS = st.fixed_dictionaries({"wall_ns": SCALARS, "monotonic_ns": SCALARS})


@RELAXED
@given(
    st.lists(
        st.tuples(
            st.sampled_from(KINDS),
            st.sampled_from(small_run(2).lines),
            st.dictionaries(st.sampled_from(FIELDS), SCALARS),
        ),
        max_size=12,
    ),
    st.booleans(),
)
def test_lines_with_any_values_in_their_fields_are_read_or_skipped(tmp_path, lines, by):
    made = [as_line({**(base if number % 2 else {}), "type": kind, **fields})
            for number, (kind, base, fields) in enumerate(lines)]  # fmt: skip
    run = read(tmp_path / "run.jsonl", FIRST + b"".join(made), **({"by": "batch"} if by else {}))
    assert run is not None
    assert run.processes[0].state.lines == len(made) + 1


@RELAXED
@given(st.dictionaries(st.sampled_from([*FIELDS, "argv", "host", "collectors", "versions"]), SCALARS), CLOCKS)
def test_a_first_line_with_any_values_is_refused_or_read(tmp_path, fields, clock):
    first = {**RunBuilder().lines[0], "clock": clock, **fields}
    read(tmp_path / "run.jsonl", as_line(first) + small_run(1).data().split(b"\n", 1)[1])


def test_deep_nesting_is_skipped(tmp_path):
    run = read(tmp_path / "run.jsonl", FIRST + b'{"type":"loss","a":' + b"[" * 200_000 + b"\n")
    assert run.processes[0].state.skipped == 1


def test_a_number_beyond_all_measure_is_skipped(tmp_path):
    line = b'{"type":"loss","where":"a","reason":"b","count":' + b"9" * 6000 + b"}\n"
    assert read(tmp_path / "run.jsonl", FIRST + line).processes[0].state.skipped == 1
