import gc
import json
import os
import subprocess
import sys

import pytest
from run_builder import RunBuilder, small_run

from instrument.cli import main


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    small_run(5).write(tmp_path / "run.jsonl")
    return "run.jsonl"


def called(capsys, *arguments):
    """(exit code, stdout, stderr)"""
    code = main(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


def test_a_run_is_shown_as_a_table(run, capsys):
    code, out, err = called(capsys, "report", run)
    assert (code, err) == (0, "")
    assert "scores" in out
    assert "GFLOP/s" in out


def test_a_table_in_a_pipe_is_as_wide_as_it_needs_and_plain(run, capsys, monkeypatch):
    _, wide, _ = called(capsys, "report", run)
    assert "hidden at this width" not in wide
    assert "\x1b" not in wide
    monkeypatch.setenv("COLUMNS", "70")
    _, narrow, _ = called(capsys, "report", run)
    assert max(map(len, narrow.splitlines())) <= 70
    assert "hidden at this width" in narrow


@pytest.mark.parametrize("asked", [["--format", "json"], ["--json"]])
def test_json_is_for_programs(run, capsys, asked):
    _, out, _ = called(capsys, "report", run, *asked)
    assert {row["path"] for row in json.loads(out)["paths"]} == set(small_run(5).sums())


def test_markdown_is_for_pull_requests(run, capsys):
    _, out, _ = called(capsys, "report", run, "--format", "markdown")
    assert out.startswith("## run.jsonl")
    assert out.endswith("\n")


def test_rows_can_be_sorted_cut_and_split(run, capsys):
    _, out, _ = called(capsys, "report", run, "--sort", "self", "--top", "1")
    assert "scores" in out
    assert "load" not in out
    _, out, _ = called(capsys, "report", run, "--by", "batch")
    assert "batch=1" in out


@pytest.mark.parametrize("command", [["report", "run.jsonl"], ["convert", "run.jsonl", "json:copy.jsonl"]])
def test_the_collector_of_garbage_is_left_as_it_was(run, capsys, command):
    gc.enable()
    assert called(capsys, *command)[0] == 0
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("missing.jsonl", None, "does not exist"),
        ("empty.jsonl", b"", "is empty"),
        ("binary.jsonl", bytes(range(256)), "binary file"),
        ("foreign.jsonl", b'{"a": 1}\n', "not a run file"),
        ("newer.jsonl", RunBuilder(schema=7).data(), "is of schema 7"),
        ("cut.jsonl", RunBuilder().data()[:50], "cut off within its first line"),
    ],
)
def test_what_cannot_be_read_is_one_line_and_exit_code_2(tmp_path, capsys, name, data, said):
    if data is not None:
        (tmp_path / name).write_bytes(data)
    code, out, err = called(capsys, "report", str(tmp_path / name))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err
    assert err.startswith("instrument report: ")


def test_a_truncated_file_is_reported_with_a_note(tmp_path, capsys):
    (tmp_path / "run.jsonl").write_bytes(small_run(5).data()[:-25])
    code, out, err = called(capsys, "report", str(tmp_path / "run.jsonl"))
    assert (code, err) == (0, "")
    assert "cut off within its last line" in out


TIMES = {"count": 1, "sum_ns": 1, "self_ns": 1, "min_ns": 1, "max_ns": 1, "histogram": [[1, 1]]}
TOTAL = {"type": "total", "path": "t", "name": "t", "kind": "kernel", "errors": 0, "open": 0} | TIMES
POINTS = {"time": 1, "count": 1, "sum": 1, "min": 1, "max": 1, "last": 1}
METRIC = {"type": "metric", "kind": "gauge", "name": "g"} | POINTS
WHERE = {"start": 1, "dur": 1, "pid": 1, "tid": 1}
SPAN = {"type": "span", "id": 16 * "1", "name": "s", "kind": "kernel", "path": "s"} | WHERE


@pytest.mark.parametrize("form", ["table", "json", "markdown"])
@pytest.mark.parametrize(
    "line",
    [
        TOTAL | {"sum_ns": 10**400},
        TOTAL | {"measures": {"flops": 1e999}},
        METRIC | {"sum": 10**400},
        METRIC | {"labels": {"a": 1e999}},
        SPAN | {"measures": {"flops": 10**400}},
    ],
)
def test_a_number_beyond_every_float_makes_its_line_unreadable(tmp_path, capsys, line, form):
    first, *rest = small_run(5).data().splitlines()
    if line["type"] == "span":  # in a file with totals nobody would read it
        rest = [other for other in rest if b'"total"' not in other and b'"end"' not in other]
    for text in (json.dumps(line), json.dumps(line).replace("Infinity", "1").replace(str(10**400), "1")):
        beyond = text.replace("Infinity", "1e999").encode()
        (tmp_path / "run.jsonl").write_bytes(b"\n".join([first, beyond, *rest, b""]))
        code, out, err = called(capsys, "report", str(tmp_path / "run.jsonl"), "--format", form)
        assert (code, err) == (0, "")
        skipped = "1 unreadable line was skipped; the first is line 2" in out
        assert skipped is (b"999" in beyond or len(text) > 400)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["report"], "Missing argument"),
        (["report", "run.jsonl", "--sort", "size"], "'size' is not one of"),
        (["report", "run.jsonl", "--top", "-1"], "-1 is not in the range"),
        (["report", "run.jsonl", "--tpo", "3"], "--top"),
        (["report", "run.jsonl", "--by", "btach"], "did you mean 'batch'?"),
        (["reprot", "run.jsonl"], "reprot"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(run, capsys, arguments, said):
    code, out, err = called(capsys, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_an_attribute_of_a_run_without_any_is_said(tmp_path, capsys):
    builder = RunBuilder()
    builder.span("a", 1)
    path = builder.write(tmp_path / "run.jsonl")
    code, _, err = called(capsys, "report", str(path), "--by", "batch")
    assert code == 2
    assert "no span has an attribute" in err


def test_a_reader_that_stops_early_is_no_error(tmp_path):
    builder = RunBuilder()
    for number in range(3_000):
        builder.total(f"path{number}", [5])
    builder.end(spans=0)
    builder.write(tmp_path / "run.jsonl")
    command = [sys.executable, "-m", "instrument", "report", "run.jsonl", "--top", "0"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.read(10)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 0


@pytest.mark.parametrize(("where", "code"), [(">/dev/full", 2), (">&-", 0)])
@pytest.mark.parametrize("form", ["table", "json", "markdown"])
def test_an_output_that_takes_nothing_is_no_traceback(run, where, code, form):
    command = f"{sys.executable} -m instrument report {run} --format {form} {where}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert done.returncode == code
    assert done.stderr.count("\n") == (1 if code else 0)
    assert "Traceback" not in done.stderr


def test_names_beyond_the_encoding_of_the_output_are_replaced(tmp_path):
    builder = RunBuilder()
    builder.span("größe", 5)
    builder.write(tmp_path / "run.jsonl")
    done = subprocess.run(
        [sys.executable, "-m", "instrument", "report", "run.jsonl"],
        cwd=tmp_path, env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "gr??e" in done.stdout.replace("gr\\xf6\\xdfe", "gr??e")


def test_progress_is_shown_on_a_terminal_only(run, capsys, monkeypatch):
    monkeypatch.setattr("instrument.cli.progress._SILENT_FOR", 0)
    monkeypatch.setattr("instrument.cli.progress._EVERY", 0)
    assert called(capsys, "report", run)[2] == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    err = called(capsys, "report", run)[2]
    assert "100% of" in err
    assert err.endswith("\r\x1b[K")
