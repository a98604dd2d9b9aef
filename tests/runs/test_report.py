import json
import re
from html.parser import HTMLParser

import pytest
from run_builder import RunBuilder, small_run

from instrument.runs.report import Report, report
from instrument.runs.run import run_from_records
from instrument.runs.units import cells


def made(builder, tmp_path, **options):
    return report(builder.write(tmp_path / "run.jsonl"), **options)


def row_of(text, name):
    (line,) = [line for line in text.splitlines() if re.match(rf"\s*{re.escape(name)}\s", line)]
    return line.split()


def test_the_table_tells_the_numbers_of_every_path(tmp_path):
    text = str(made(small_run(5), tmp_path))
    assert not text.endswith("\n")  # print() adds it
    assert "GFLOP/s" in text
    assert row_of(text, "step")[:4] == ["step", "5", "60.0", "µs"]
    scores = " ".join(row_of(text, "scores"))
    # Ten calls of 3,000 or about 5,000 ns, each 60,000 flops and 1,200 bytes: 40,010 ns in all.
    assert scores.startswith("scores 10 40.0 µs 40.0 µs 4.00 µs")
    assert scores.endswith("15.0 0.300")
    assert "66.7%" in scores


def test_the_heading_tells_what_ran_where_and_when(tmp_path):
    text = str(made(small_run(5, labels={"model": "s"}), tmp_path))
    head = text.split("\n\n")[0]
    assert head.splitlines()[0] == "run.jsonl  run r1"
    assert "train.py --epochs 3" in head
    assert "box · pid 100 · Python 3.11.7" in head
    assert "2.00 s wall" in head
    assert "30 spans · 4 paths · 1 thread · 1 mark · model=s" not in head  # 25 spans: 5 a step
    assert "25 spans · 4 paths · 1 thread · 1 mark · model=s" in head


def test_columns_that_have_nothing_to_say_are_left_out(tmp_path):
    builder = RunBuilder()
    builder.span("a", 5)
    builder.totals()
    builder.end()
    text = str(made(builder, tmp_path))
    for title in ("GFLOP/s", "GB/s", "errors", "open", "metric"):
        assert title not in text


def test_errors_and_open_spans_have_columns(tmp_path):
    builder = small_run(5)
    builder.span("poll", 99, flags=["unfinished"])
    builder.lines[-1], builder.lines[-2] = builder.lines[-2], builder.lines[-1]
    builder.lines[-1]["spans"] += 1
    text = str(made(builder, tmp_path))
    assert re.search(r"errors +open", text)
    assert "1 span had not ended, and are in no other number: poll" in text
    assert row_of(text, "poll")[:3] == ["poll", ">99", "ns"]


def test_losses_are_shown_with_what_to_do(tmp_path):
    builder = small_run(5)
    builder.lines.pop()
    builder.loss("buffer_full", 1234)
    builder.loss("unreachable", 2, where="otlp")
    builder.loss("paths", 0)
    builder.end()
    text = str(made(builder, tmp_path))
    assert (
        "lost  1,234 × buffer_full (recorder): the newest records found no room: raise `buffer_mib`" in text
    )
    assert "lost  2 × unreachable (otlp)" in text
    assert "paths (recorder)" not in text


def test_a_file_without_an_end_says_so(tmp_path):
    text = str(made(small_run(5, totals=False), tmp_path))
    assert "file  has no end: the program was killed or still runs; the numbers are those of spans" in text


def test_a_truncated_file_says_so(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_bytes(small_run(5).data()[:-20])
    text = str(report(path))
    assert re.search(r"cut off within its last line, whose \d+ bytes were ignored", text)


def test_unreadable_lines_are_said(tmp_path):
    path = tmp_path / "run.jsonl"
    first, rest = small_run(5).data().split(b"\n", 1)
    path.write_bytes(first + b"\n???\n" + rest)
    assert "1 unreadable line was skipped; the first is line 2" in str(report(path))


def test_missing_spans_are_said(tmp_path):
    builder = small_run(5)
    builder.lines = [
        line for line in builder.lines if line.get("path") != "step/load" or line["type"] != "span"
    ]
    assert "holds 20 spans, and its end line says 25" in str(made(builder, tmp_path))


def test_sampling_is_said_and_estimates_are_marked(tmp_path):
    builder = RunBuilder()
    builder.span("a", 10, weight=100.0)
    text = str(made(builder, tmp_path))
    assert "sampled: 1 of 1 spans have a weight; `~` marks estimates by weight" in text
    assert row_of(text, "a")[1] == "~100"


def test_unavailable_collectors_are_said_with_their_reason(tmp_path):
    collectors = [
        {"name": "device", "available": False, "reason": "no GPU"},
        {"name": "memory", "available": True},
    ]
    text = str(made(small_run(5, collectors=collectors), tmp_path))
    assert "device: unavailable: no GPU" in text
    assert "memory" not in text


def test_children_of_another_run_are_said(tmp_path):
    small_run(run_id="old").write(tmp_path / "run.box-7-ab.jsonl")
    assert "left out: run.box-7-ab.jsonl is of another run (old)" in str(made(small_run(), tmp_path))


def test_several_processes_are_one_report(tmp_path):
    small_run(5, pid=200, totals=False).write(tmp_path / "run.box-200-ab.jsonl")
    text = str(made(small_run(5), tmp_path))
    assert "run.jsonl and 1 more" in text
    assert "2 processes" in text
    assert row_of(text, "step")[1] == "10"
    assert "run.box-200-ab.jsonl: has no end" in text


def test_no_span_at_all_is_said(tmp_path):
    builder = RunBuilder()
    builder.end()
    shown = made(builder, tmp_path)
    assert "no span was recorded" in str(shown)
    assert "no span was recorded" in shown._repr_html_()
    assert json.loads(shown.as_json())["paths"] == []
    assert shown.as_markdown()


def test_metrics_have_a_table(tmp_path):
    text = str(made(small_run(5), tmp_path))
    assert row_of(text, "tokens{model=a}")[1:] == ["count", "5", "50", "10", "10", "10", "10"]


def test_values_of_an_attribute_stand_under_their_path(tmp_path):
    lines = str(made(small_run(5), tmp_path, by="batch")).splitlines()
    at = next(i for i, line in enumerate(lines) if line.strip().startswith("attention"))
    assert [line.split()[:2] for line in lines[at + 1 : at + 3]] == [["batch=0", "3"], ["batch=1", "2"]]


def test_what_a_split_could_not_see_is_said(tmp_path):
    builder = small_run(5)
    gone = next(line for line in builder.lines if line.get("path") == "step/attention")
    builder.lines.remove(gone)
    builder.lines[-1]["spans"] -= 1
    text = str(made(builder, tmp_path, by="batch"))
    assert "step/attention: 4 of 5 executions have a span to split by" in text


def test_only_the_largest_are_shown_and_that_is_said(tmp_path):
    builder = RunBuilder()
    for number in range(50):
        builder.span(f"p{number:02}", 1000 + number)
    builder.totals()
    builder.end()
    text = str(made(builder, tmp_path, top=3))
    assert [name for name in ("p49", "p48", "p47", "p46") if name in text] == ["p49", "p48", "p47"]
    assert "the 3 largest by total of 50 paths" in text
    assert "p00" in str(made(builder, tmp_path, top=0))
    assert "p00" in str(made(builder, tmp_path, top=1, sort="name"))


def test_shares_are_of_everything_also_when_rows_are_cut(tmp_path):
    builder = RunBuilder()
    builder.span("a", 600)
    builder.span("b", 400)
    builder.totals()
    builder.end()
    assert "60.0%" in row_of(str(made(builder, tmp_path, top=1)), "a")


@pytest.mark.parametrize("width", [20, 40, 60, 72, 80, 100, 200])
def test_no_line_is_wider_than_asked(tmp_path, width):
    builder = small_run(5)
    builder.span("step/attention/" + "long_name_" * 20, 10)
    builder.span("語" * 60, 10)
    text = made(builder, tmp_path).as_text(width)
    assert all(cells(line) <= max(width, 26) for line in text.splitlines())
    if 60 <= width < 100:
        assert "hidden at this width" in text


def test_names_cannot_disturb_what_shows_them(tmp_path):
    nasty = '<script>alert("x")</script>|`*_\x1b[31m\n[red]bold[/red] & :smile:'
    builder = RunBuilder(labels={"<b>": "|"}, argv=["<i>", "\x1b[0m"])
    builder.span(nasty.replace("/", "%2F"), 5)
    builder.metric("<u>", labels={"\n": "|"})
    builder.totals()
    builder.end()
    shown = made(builder, tmp_path)
    text = str(shown)
    assert "\x1b" not in text
    assert "[red]bold[/red] & :smile:" in text
    page = shown._repr_html_()
    assert "<script" not in page
    assert "<u>" not in page
    assert "<b>" not in page.replace("<div><b>", "")
    table = [line for line in shown.as_markdown().splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table[:3]}) == 1
    assert json.loads(shown.as_json())["paths"][0]["name"] == nasty


def test_markdown_is_a_table(tmp_path):
    text = made(small_run(5), tmp_path).as_markdown()
    assert text.startswith("## run.jsonl  run r1\n")
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert lines[0].startswith("| call | count | total |")
    assert lines[1].startswith("|:--|--:|")
    assert any(line.startswith("| &nbsp;&nbsp;&nbsp;&nbsp;scores | 10 |") for line in lines)


def test_json_has_every_path_and_exact_numbers(tmp_path):
    builder = small_run(5)
    data = json.loads(made(builder, tmp_path, top=1).as_json())
    assert {row["path"]: row["total_ns"] for row in data["paths"]} == {
        path: row["sum_ns"] for path, row in builder.sums().items()
    }
    scores = next(row for row in data["paths"] if row["name"] == "scores")
    assert scores["gflops_per_s"] == pytest.approx(10 * 60000 / 40010)
    assert scores["measures"] == {"flops": 600000.0, "bytes": 12000.0}
    assert data["run"]["run_id"] == "r1"
    assert data["wall_ns"] == 2_000_000_000
    assert data["files"][0]["numbers_from"] == "totals"


def test_json_is_strict_whatever_was_observed(tmp_path):
    builder = small_run(5)
    builder.metric("x", kind="observe", sum="NaN", min="-Infinity", max="Infinity", last="NaN")
    data = made(builder, tmp_path).as_json()
    strict = json.loads(data, parse_constant=pytest.fail)
    assert next(m for m in strict["metrics"] if m["name"] == "x")["max"] == "Infinity"


class Balanced(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_a_notebook_gets_a_page_of_balanced_tags(tmp_path):
    page = made(small_run(5), tmp_path)._repr_html_()
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert page.count("<table") == 2
    assert ">scores<" in page.replace("    scores", "scores")


def test_a_session_in_memory_reports_without_a_file():
    lines = [line for line in small_run(5).lines if line["type"] != "span"]
    text = str(Report(run_from_records(lines)))
    assert row_of(text, "step")[1] == "5"
    assert "instrument report" not in text


@pytest.mark.parametrize("clock", [{"wall_ns": 2**70}, {"wall_ns": "x"}, {"wall_ns": -5}, [], None])
def test_a_clock_that_makes_no_sense_leaves_the_date_out(tmp_path, clock):
    builder = small_run(5, clock=clock)
    assert "box · pid 100 · Python 3.11.7 · 2.00 s wall" in str(made(builder, tmp_path))
