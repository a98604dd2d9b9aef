import errno
import gzip
import json
import os
import sys
from types import ModuleType

import pytest
from run_builder import WALL, small_run

from instrument import plugins
from instrument.cli import main
from instrument.records import ExportError
from instrument_exporters import runfile


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return str(small_run(5).write(tmp_path / "run.jsonl"))


@pytest.fixture
def family(tmp_path, monkeypatch):
    """A parent's file and two children's beside it."""
    monkeypatch.chdir(tmp_path)
    small_run(5).write(tmp_path / "run.jsonl")
    for pid, name in ((101, "run.box-101-ab.jsonl"), (102, "run.box-102-cd.jsonl")):
        small_run(1, pid=pid, parent_pid=100).write(tmp_path / name)
    return tmp_path


def called(capsys, *arguments):
    """(exit code, stdout, stderr)"""
    code = main(["convert", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


class Kept:
    """An exporter that keeps what it gets, for the entry points; one list for all of its kind."""

    opened: list = []  # noqa: RUF012
    batches: list = []  # noqa: RUF012
    fails: Exception | None = None
    answer = True

    def __init__(self, _: str) -> None:
        pass

    def open(self, resource):
        Kept.opened.append(resource)

    def export(self, batch):
        if Kept.fails:
            raise Kept.fails
        Kept.batches.append(batch)

    def flush(self, deadline):
        return True

    def close(self, deadline):
        return Kept.answer


@pytest.fixture
def kept(monkeypatch):
    monkeypatch.setattr(Kept, "opened", [])
    monkeypatch.setattr(Kept, "batches", [])
    module = ModuleType("kept_exporter")
    module.Kept = Kept
    monkeypatch.setitem(sys.modules, "kept_exporter", module)
    monkeypatch.setitem(plugins.OWN_EXPORTERS, "kept", "kept_exporter:Kept")
    return Kept


def test_one_reading_makes_every_form(run, tmp_path, capsys):
    code, out, err = called(capsys, run, "chrome:a.json", "kineto:b.json.gz", "json:c.jsonl.gz")
    assert (code, err) == (0, "")
    shown = [line.split(": 26 spans and marks")[0] for line in out.splitlines()]
    assert shown == [str(tmp_path / name) for name in ("a.json", "b.json.gz", "c.jsonl.gz")]
    assert len(json.loads((tmp_path / "a.json").read_text())) > 26
    assert "traceEvents" in json.loads(gzip.decompress((tmp_path / "b.json.gz").read_bytes()))


def test_a_run_that_is_compressed_keeps_every_line(run, tmp_path, capsys):
    with open(run, "ab") as file:
        file.write(b'{"type":"lines","name":"of a later version"}\n{"type":"span","id":"torn')
    assert called(capsys, run, "json:small.jsonl.gz")[0] == 0
    copied = gzip.decompress((tmp_path / "small.jsonl.gz").read_bytes())
    assert copied == (tmp_path / "run.jsonl").read_bytes().rpartition(b"\n")[0] + b"\n"
    assert called(capsys, "small.jsonl.gz", "json:again.jsonl")[0] == 0
    assert (tmp_path / "again.jsonl").read_bytes() == copied


def test_children_keep_files_of_their_own_in_a_copy(family, capsys):
    os.mkdir("copy")
    assert called(capsys, "run.jsonl", "json:copy/out.jsonl.gz")[0] == 0
    names = sorted(path.name for path in (family / "copy").iterdir())
    assert names == ["out.box-101-ab.jsonl.gz", "out.box-102-cd.jsonl.gz", "out.jsonl.gz"]
    assert called(capsys, "copy/out.jsonl.gz", "chrome:trace.json")[0] == 0
    pids = {event["pid"] for event in json.loads((family / "trace.json").read_text())}
    assert pids == {100, 101, 102}


def test_a_folder_is_a_run_too(family, capsys):
    assert called(capsys, str(family), "chrome:out.json")[0] == 0
    events = json.loads((family / "out.json").read_text())
    assert sum(event["ph"] in ("X", "b") for event in events) == 25 + 5 + 5


def test_an_exporter_of_one_process_is_opened_for_each(family, capsys, kept):
    code, _, err = called(capsys, "run.jsonl", "kept:x")
    assert (code, err) == (0, "")
    assert [(resource.pid, resource.parent_pid) for resource in kept.opened] == [
        (100, None),
        (101, 100),
        (102, 100),
    ]
    assert sum(batch.final for batch in kept.batches) == 3


def test_an_exporter_gets_records_out_of_a_file_as_from_a_session(run, capsys, kept):
    assert called(capsys, run, "kept:x")[0] == 0
    first, last = kept.batches
    spans = list(first.spans())
    assert (len(spans), first.count, len(list(first.marks()))) == (25, 26, 1)
    step = next(span for span in spans if span.kind == "step")
    assert (step.name, step.path, step.step, step.parent, step.pid) == ("step", "step", 0, None, 100)
    child = next(span for span in spans if span.parent == step.id)
    assert child.path.startswith("step/")
    failed = [span for span in spans if span.status == "error"]
    assert [(span.error, span.step) for span in failed] == [("ValueError", 2)]
    assert [thread.name for thread in first.threads] == ["MainThread"]
    assert [(site.name, site.line) for site in first.sites] == [("scores", 3)]
    assert [(metric.name, metric.sum) for metric in first.metrics] == [("tokens", 50.0)]
    assert {total.path: total.count for total in last.totals}["step"] == 5
    assert (last.final, last.time, last.losses) == (True, WALL + 2_000_000_000, ())


def test_what_an_exporter_loses_is_told_and_fails(run, capsys, kept, monkeypatch):
    monkeypatch.setattr(Kept, "fails", ExportError("unreachable", 7, "no route"))
    code, _, err = called(capsys, run, "kept:x")
    assert code == 2
    assert "kept: 14 lost (unreachable): no route" in err
    assert "not everything could be written" in err
    monkeypatch.setattr(Kept, "fails", ZeroDivisionError("oh"))
    code, _, err = called(capsys, run, "kept:x")
    assert (code, "26 lost (error): ZeroDivisionError: oh" in err) == (2, True)
    monkeypatch.setattr(Kept, "fails", None)
    monkeypatch.setattr(Kept, "answer", False)
    assert called(capsys, run, "kept:x")[0] == 2


def test_lines_that_cannot_be_read_are_told_and_are_no_failure(run, capsys):
    with open(run, "ab") as file:
        file.write(b'{"type":"span","id":7}\n')
    code, _, err = called(capsys, run, "chrome:trace.json")
    assert (code, err) == (0, "instrument convert: chrome: 1 lost (unreadable)\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["run.jsonl", "json:run.jsonl"],
            "json:run.jsonl: that is the run that is read; choose another path",
        ),
        (["run.jsonl", "crome:x"], "unknown exporter 'crome'; did you mean 'chrome'?"),
        (["run.jsonl", "chrome:nowhere/x.json"], "chrome:nowhere/x.json: No such file or directory"),
        (["run.jsonl", "chrome:x", "chrome:x"], "two exporters write to"),
        (["run.jsonl", "chrome:x", "json:x"], "two exporters write to"),
        (["run.jsonl"], "Missing argument 'TARGET...'"),
        (["nothing.jsonl", "chrome:x"], "nothing.jsonl: does not exist"),
        (
            ["run.jsonl", "chrome:foreign"],
            "exists and is not a trace of ours; remove it or choose another path",
        ),
    ],
)
def test_wrong_use_is_one_line_and_changes_nothing(run, tmp_path, capsys, arguments, message):
    (tmp_path / "foreign").write_text("hello")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    code, out, err = called(capsys, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_full_disk_is_not_told_as_a_success(run, capsys, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    opened = runfile._with_first_line

    def fails_later(file, line, **options):
        opened(file, line, **options)
        file._write = full
        return file

    monkeypatch.setattr(runfile, "_with_first_line", fails_later)
    code, out, err = called(capsys, run, "chrome:trace.json")
    assert (code, out) == (2, "")
    assert "lost (disk_full): [Errno 28] No space left on device" in err
