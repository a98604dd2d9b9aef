import json
import logging
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

import instrument
from instrument import ConfigError, lifecycle
from instrument.drain import Drain
from instrument.recorder import _core
from instrument.testing import InMemoryExporter

LONG = 60.0


def python(code, *, cwd=None, timeout=LONG, **environ):
    """Run a program that can import what this process can."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environ}
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=env,
        timeout=timeout,
        check=False,
    )


class Hanging(InMemoryExporter):
    """Takes no batch until it is let."""

    def __init__(self):
        super().__init__()
        self.gate = threading.Event()

    def export(self, batch, /):
        self.gate.wait(LONG)
        super().export(batch)


@pytest.fixture
def hanging():
    exporter = Hanging()
    yield exporter
    exporter.gate.set()


def one_region():
    with instrument.region("a"):
        pass


def test_start_and_stop_turn_the_recorder_on_and_off():
    assert not _core.active()
    session = instrument.start()
    try:
        assert _core.active()
        assert session.active
    finally:
        session.stop()
    assert not _core.active()
    assert not session.active


def test_the_summary_counts_and_names_the_outputs(tmp_path):
    with instrument.session(export=f"json:{tmp_path}/run.jsonl", run_id="r1") as session:
        one_region()
        instrument.mark("m")
    summary = session.stop()
    assert (summary.run_id, summary.spans, summary.marks, summary.losses) == ("r1", 1, 1, ())
    assert summary.delivered
    assert summary.pending == 0
    assert summary.outputs == (str(tmp_path / "run.jsonl"),)
    assert [total.path for total in summary.totals] == ["a"]
    assert 0 < summary.duration < LONG
    assert "1 spans and 1 marks" in str(summary)
    assert "lost: nothing" in str(summary)


def test_stopping_twice_gives_the_same_summary():
    session = instrument.start(export=InMemoryExporter())
    one_region()
    assert session.stop() is session.stop()


def test_stop_and_flush_without_start_raise_nothing():
    assert instrument.stop().spans == 0
    assert instrument.flush() is True


def test_a_second_session_after_stop_records_only_its_own():
    first, second = InMemoryExporter(), InMemoryExporter()
    with instrument.session(export=first):
        one_region()
    with instrument.session(export=second), instrument.region("b"):
        pass
    assert [span.name for span in first.spans] == ["a"]
    assert [span.name for span in second.spans] == ["b"]
    assert first.resource.run_id != second.resource.run_id


def test_nothing_is_recorded_between_two_sessions():
    exporter = InMemoryExporter()
    with instrument.session(export=InMemoryExporter()):
        pass
    one_region()
    with instrument.session(export=exporter):
        pass
    assert exporter.spans == []


def test_starting_twice_is_an_error_that_names_where_the_first_was_started():
    with instrument.session() as session:
        here = f"{__file__}:{sys._getframe().f_lineno - 1}"
        assert session.where == here
        with pytest.raises(ConfigError, match="a session is on already") as caught:
            instrument.start()
        assert here in str(caught.value)
        assert _core.active()
    instrument.start().stop()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"export": "jsn:x"}, "did you mean 'json'"),
        ({"collect": "nvtx"}, "'nvtx'"),
        ({"mode": "develp"}, "did you mean 'develop'"),
        ({"buffre_mib": 3}, "unknown option 'buffre_mib'; did you mean 'buffer_mib'"),
        ({"export": "json:"}, "the path is missing"),
    ],
)
def test_wrong_use_raises_at_start_and_leaves_everything_off(options, said):
    with pytest.raises(ConfigError, match=said):
        instrument.start(**options)
    assert not _core.active()
    assert lifecycle.guarded() is None


def test_an_exporter_that_cannot_be_opened_is_an_error_and_those_before_it_are_closed():
    class Refusing(InMemoryExporter):
        def open(self, resource, /):
            raise OSError("no such host")

    first = InMemoryExporter()
    with pytest.raises(ConfigError, match="option 'export': 'Refusing' cannot be opened: no such host"):
        instrument.start(export=[first, Refusing()])
    assert first.closed
    assert not _core.active()


def test_a_start_that_is_interrupted_leaves_nothing_on(monkeypatch):
    def interrupted(drain):
        real(drain)
        raise KeyboardInterrupt

    real = Drain.start
    monkeypatch.setattr(Drain, "start", interrupted)
    exporter = InMemoryExporter()
    with pytest.raises(KeyboardInterrupt):
        instrument.start(export=exporter)
    monkeypatch.undo()
    assert exporter.closed
    assert not _core.active()
    with instrument.session():  # and another can begin
        assert [t.name for t in threading.enumerate()].count("instrument-drain") == 1


@pytest.mark.parametrize("timeout", [math.inf, 1e12, math.nan, 0.0, -1.0])
def test_no_timeout_makes_flush_or_stop_raise(timeout):
    session = instrument.start(export=InMemoryExporter())
    one_region()
    session.flush(timeout)
    assert session.stop(timeout).spans == 1


def test_the_exception_of_the_block_passes_and_the_session_ends():
    exporter = InMemoryExporter()
    with pytest.raises(KeyError), instrument.session(export=exporter), instrument.region("a"):
        raise KeyError("mine")
    assert exporter.closed
    assert [(span.status, span.error) for span in exporter.spans] == [("error", "KeyError")]


def test_a_session_is_a_context_manager_itself():
    with instrument.start(export=InMemoryExporter()) as session:
        assert session.active
    assert not session.active


def test_spans_still_open_at_stop_are_flagged():
    exporter = InMemoryExporter()
    session = instrument.start(export=exporter)
    with instrument.region("a"):
        session.stop()
    assert [span.flags for span in exporter.spans] == [("unfinished",)]


def test_flush_with_a_slow_exporter_answers_false_in_time_and_a_later_one_succeeds(hanging):
    with instrument.session(export=hanging) as session:
        one_region()
        before = time.monotonic()
        assert session.flush(0.5) is False
        assert time.monotonic() - before < 0.7
        hanging.gate.set()
        assert instrument.flush(LONG) is True
        assert [span.name for span in hanging.spans] == ["a"]
    assert session.stop().losses == ()


def test_stop_keeps_its_deadline_with_a_hanging_exporter_which_goes_on_afterwards(hanging):
    session = instrument.start(export=hanging)
    one_region()
    before = time.monotonic()
    summary = session.stop(timeout=0.2)
    assert time.monotonic() - before < 2.0
    assert not summary.delivered
    assert summary.pending == 1
    assert "1 not delivered in time" in str(summary)
    hanging.gate.set()
    deadline = time.monotonic() + LONG
    while not hanging.closed:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    assert [span.name for span in hanging.spans] == ["a"]


def test_a_new_session_starts_beside_the_hanging_exporter_of_the_last(hanging):
    instrument.start(export=hanging).stop(timeout=0.01)
    exporter = InMemoryExporter()
    with instrument.session(export=exporter):
        one_region()
    assert len(exporter.spans) == 1


def test_totals_are_kept_without_any_exporter():
    with instrument.session() as session:
        for _ in range(3):
            one_region()
        assert session.flush()
    summary = session.stop()
    assert [(total.path, total.count) for total in summary.totals] == [("a", 3)]
    assert summary.outputs == ()


def test_the_report_prints_and_shows_as_html_while_on_and_afterwards():
    with instrument.session(labels={"model": "small"}) as session:
        with instrument.region("reported_region"):
            pass
        running = session.report()
    for report in (running, session.report()):
        assert "reported_region" in str(report)
        assert "reported_region" in report._repr_html_()


def test_stop_from_two_threads_at_once_stops_once():
    exporter = InMemoryExporter()
    session = instrument.start(export=exporter)
    one_region()
    found = []
    threads = [threading.Thread(target=lambda: found.append(session.stop(LONG))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(summary is found[0] for summary in found)
    assert len(exporter.totals) == 1


def test_start_from_many_threads_at_once_starts_one():
    started, refused = [], []

    def start():
        try:
            started.append(instrument.start())
        except ConfigError as error:
            refused.append(error)

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(started), len(refused)) == (1, 7)
    started[0].stop()


def test_an_interrupt_while_stopping_passes_and_stopping_again_ends_it(hanging):
    def interrupt(*_):
        raise KeyboardInterrupt

    session = instrument.start(export=hanging)
    one_region()
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            session.stop(LONG)
    finally:
        signal.signal(signal.SIGALRM, before)
    hanging.gate.set()
    assert session.stop(LONG).delivered
    assert len(hanging.spans) == 1


def test_a_signal_handler_may_stop_the_session(hanging):
    session = instrument.start(export=hanging)
    one_region()
    stopped = []
    before = signal.signal(signal.SIGALRM, lambda *_: stopped.append(session.stop(timeout=0.1)))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        assert session.flush(1.0) is False
    finally:
        signal.signal(signal.SIGALRM, before)
    assert len(stopped) == 1


def test_ids_of_runs_are_random_whatever_the_program_seeds():
    ids = set()
    for _ in range(2):
        random.seed(0)
        with instrument.session() as session:
            ids.add(session.run_id)
        assert random.random() == random.Random(0).random()
    assert len(ids) == 2


def test_sessions_leave_no_thread_behind():
    before = threading.active_count()
    for _ in range(20):
        with instrument.session(export=InMemoryExporter(), interval=60):
            one_region()
    deadline = time.monotonic() + LONG
    while threading.active_count() > before:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_the_resource_says_who_records(tmp_path, monkeypatch):
    exporter = InMemoryExporter()
    with instrument.session(export=exporter, labels={"a": 1}, rank=3, run_id="mine"):
        pass
    resource = exporter.resource
    assert (resource.run_id, resource.rank, resource.pid, resource.labels) == (
        "mine",
        3,
        os.getpid(),
        {"a": 1},
    )
    assert resource.versions["python"] == ".".join(map(str, sys.version_info[:3]))
    assert resource.versions["instrument"] == instrument.__version__
    assert abs(resource.wall_offset - (time.time_ns() - time.monotonic_ns())) < 1_000_000_000
    assert resource.config["export"] == ["InMemoryExporter"]


def test_a_program_without_an_own_session_is_recorded_by_the_environment(tmp_path):
    done = python(
        "import instrument\nwith instrument.region('a'): pass\n",
        cwd=tmp_path,
        INSTRUMENT_EXPORT="json:run.jsonl",
        INSTRUMENT_LABELS="x=1",
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    assert lines[0]["labels"] == {"x": "1"}
    assert [line["name"] for line in lines if line["type"] == "span"] == ["a"]
    assert lines[-1]["type"] == "end"


def test_programs_that_a_recorded_program_starts_write_files_of_their_own_in_the_same_run(tmp_path):
    code = (
        "import instrument, subprocess, sys\n"
        "with instrument.region('outer'):\n"
        "    inner = 'import instrument; instrument.region(\"inner\").__enter__()'\n"
        "    subprocess.run([sys.executable, '-c', inner], check=True)\n"
    )
    done = python(code, cwd=tmp_path, INSTRUMENT_EXPORT="json:run.jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    found = {
        path: [json.loads(line) for line in path.read_text().splitlines()] for path in tmp_path.iterdir()
    }
    names = [[line["name"] for line in lines if line["type"] == "span"] for lines in found.values()]
    assert sorted(names) == [["inner"], ["outer"]]
    assert len({lines[0]["run_id"] for lines in found.values()}) == 1
    assert len({lines[0]["pid"] for lines in found.values()}) == 2


def test_a_program_that_starts_a_session_under_one_of_the_environment_is_told_who_did(tmp_path):
    done = python(
        "import instrument\ntry: instrument.start()\nexcept ValueError as error: print(error)",
        cwd=tmp_path,
        INSTRUMENT_EXPORT="json:run.jsonl",
    )
    assert "<string>:1 (INSTRUMENT_EXPORT)" in done.stdout


def test_a_bad_variable_is_one_line_and_the_program_runs(tmp_path):
    done = python("import instrument; print('ran')", cwd=tmp_path, INSTRUMENT_EXPORT="jsn:run.jsonl")
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert done.stderr.count("\n") == 1
    assert "did you mean 'json'" in done.stderr


def test_when_disabled_a_session_does_nothing(tmp_path):
    code = (
        "import instrument\n"
        "with instrument.session(export='json:run.jsonl') as s:\n"
        "    with instrument.region('a'): pass\n"
        "    assert instrument.flush() and not s.active\n"
        "print(s.stop().spans, s.losses(), s.report() is not None)\n"
    )
    done = python(code, cwd=tmp_path, INSTRUMENT_DISABLED="1")
    assert (done.stdout, done.stderr) == ("0 () True\n", "")
    assert list(tmp_path.iterdir()) == []


def test_a_loss_is_logged_through_the_logger_named_after_us(caplog):
    class Failing(InMemoryExporter):
        def export(self, batch, /):
            raise OSError

    caplog.set_level(logging.WARNING)
    with instrument.session(export=Failing()) as session:
        one_region()
    assert [record.name for record in caplog.records] == ["instrument"]
    assert session.stop().losses[0].count == 1


def test_without_any_logging_set_up_a_loss_is_one_line_on_stderr(tmp_path):
    code = (
        "import instrument\n"
        "from instrument.testing import InMemoryExporter\n"
        "class Failing(InMemoryExporter):\n"
        "    def export(self, batch, /): raise OSError\n"
        "instrument.start(export=Failing())\n"
        "for _ in range(3):\n"
        "    with instrument.region('a'): pass\n"
        "    instrument.flush()\n"
    )
    done = python(code, cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr.count("\n") == 1
    assert "Failing: error" in done.stderr
