import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from instrument.runs.load import records

PROGRAM = """
import instrument, sys

with instrument.step(1):
    with instrument.region("load", batch=32):
        pass
"""


@pytest.fixture
def folder(tmp_path):
    return tmp_path


def write(folder, name, text):
    path = folder / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(textwrap.dedent(text))
    return path


def run(folder, *arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "instrument", "run", *map(str, arguments)],
        cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def plainly(folder, *arguments):
    return subprocess.run(
        [sys.executable, *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=60
    )


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def spans_of(path):
    return [line["path"] for line in lines_of(path) if line["type"] == "span"]


def test_a_program_is_recorded_and_the_file_named(folder):
    write(folder, "app.py", PROGRAM)
    done = run(folder, "app.py")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "instrument: 2 spans in run.jsonl; see them with `instrument report run.jsonl`\n"
    assert spans_of(folder / "run.jsonl") == ["step/load", "step"]
    assert lines_of(folder / "run.jsonl")[-1]["type"] == "end"


def test_every_line_of_a_recorded_run_validates(folder):
    from pathlib import Path

    from jsonschema import Draft202012Validator

    schema = json.loads((Path(__file__).parents[2] / "docs" / "run-file.schema.json").read_text())
    write(
        folder,
        "app.py",
        """
        import instrument, math

        @instrument.kernel(flops=lambda n: 2 * n, bytes=lambda n: n, attrs=lambda n: {"n": n})
        def work(n):
            instrument.annotate(odd=math.nan, text='a "b" \\\\ \\n', items=[1, None, "x"])
            if n == 3:
                raise ValueError

        for i in range(5):
            with instrument.step(i), instrument.region("a/b 50%", x=-math.inf, deep={"a": 1}):
                try:
                    work(i)
                except ValueError:
                    instrument.mark("failed", n=i)
                instrument.count("n", 2, kind="x")
                instrument.gauge("g", 1.5)
                instrument.observe("o", i)
        instrument.region("never ends").__enter__()
        """,
    )
    assert run(folder, "--label", "model=small", "app.py", "é").returncode == 0
    lines = lines_of(folder / "run.jsonl")
    valid = Draft202012Validator(schema)
    assert [error.message for line in lines for error in valid.iter_errors(line)] == []
    kinds = {"run", "thread", "site", "span", "mark", "metric", "total", "end"}
    assert {line["type"] for line in lines} >= kinds


WHO = """
    import sys
    print(__name__, __file__, sys.argv, sys.path[0], __spec__ and __spec__.name, __package__)
    print(sys.modules["__main__"].__dict__ is globals(), __builtins__ is not None, __loader__ is not None)
"""


def test_a_script_sees_what_python_would_show_it(folder):
    write(folder, "sub/who.py", WHO)
    arguments = ("sub/who.py", "--epochs", "3", "-m", "--help")
    assert run(folder, *arguments).stdout == plainly(folder, *arguments).stdout


def test_a_module_sees_what_python_would_show_it(folder):
    write(folder, "package/__init__.py", "")
    write(folder, "package/__main__.py", WHO)
    write(folder, "package/who.py", WHO)
    for name in ("package", "package.who"):
        done = run(folder, "-m", name, "a", "-b")
        assert done.stdout == plainly(folder, "-m", name, "a", "-b").stdout
        assert done.returncode == 0


def test_a_folder_with_a_main_is_run(folder):
    write(folder, "app/other.py", "x = 5")
    write(folder, "app/__main__.py", "import sys, other; print(other.x, sys.argv)")
    assert run(folder, "app", "1").stdout == plainly(folder, "app", "1").stdout


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("sys.exit()", 0),
        ("sys.exit(3)", 3),
        ("sys.exit('no luck')", 1),
        ("raise SystemExit(7)", 7),
        ("1 / 0", 1),
        ("os._exit(9)", 9),
        ("os.kill(os.getpid(), 9)", -9),
        ("raise KeyboardInterrupt", -signal.SIGINT),
    ],
)
def test_the_exit_code_is_the_programs(folder, end, code):
    write(folder, "app.py", f"import os, sys, instrument\nwith instrument.region('a'): pass\n{end}\n")
    assert run(folder, "app.py").returncode == code == plainly(folder, "app.py").returncode


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    raise ValueError('x')\nf()\n",
        "x = (\n",
        "import nosuchmodule\n",
        "try:\n    1/0\nexcept Exception as e:\n    raise KeyError('y') from e\n",
        "raise KeyboardInterrupt\n",
        "import sys\nsys.exit('no luck')\n",
    ],
)
def test_tracebacks_are_those_of_the_program_alone(folder, text):
    write(folder, "app.py", text)
    assert run(folder, "-q", "app.py").stderr == plainly(folder, "app.py").stderr


def test_a_programs_own_exception_hook_is_used(folder):
    write(
        folder, "app.py", "import sys\nsys.excepthook = lambda kind, value, tb: print('mine', value)\n1 / 0\n"
    )
    assert run(folder, "app.py").stdout == "mine division by zero\n"


def test_what_ended_in_an_error_is_recorded_too(folder):
    write(folder, "app.py", "import instrument\nwith instrument.region('a'):\n    1 / 0\n")
    assert run(folder, "app.py").returncode == 1
    (span,) = [line for line in lines_of(folder / "run.jsonl") if line["type"] == "span"]
    assert (span["status"], span["error"]) == ("error", "ZeroDivisionError")


def test_threads_and_exit_functions_of_the_program_are_recorded(folder):
    write(
        folder,
        "app.py",
        """
        import atexit, threading, time, instrument

        def late():
            time.sleep(0.1)
            with instrument.region("thread"):
                pass

        def last():
            with instrument.region("atexit"):
                pass

        atexit.register(last)
        threading.Thread(target=late).start()
        """,
    )
    done = run(folder, "app.py")
    assert sorted(spans_of(folder / "run.jsonl")) == ["atexit", "thread"]
    assert done.stderr.startswith("instrument: 2 spans")


def test_a_forked_child_says_nothing_and_the_report_finds_its_file(folder):
    write(
        folder,
        "app.py",
        """
        import os, sys, instrument

        child = os.fork()
        with instrument.region("both"):
            pass
        if child:
            os.waitpid(child, 0)
        sys.exit()
        """,
    )
    done = run(folder, "app.py")
    assert done.stderr.count("instrument:") == 1
    assert len(list(folder.glob("run.*.jsonl"))) == 1
    report = plainly(folder, "-m", "instrument", "report", "run.jsonl", "--json")
    assert [(row["path"], row["count"]) for row in json.loads(report.stdout)["paths"]] == [("both", 2)]


def test_functions_of_the_program_can_be_sent_to_spawned_processes(folder):
    write(
        folder,
        "app.py",
        """
        import multiprocessing

        def double(x):
            return 2 * x

        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(double, [1, 2]))
        """,
    )
    done = run(folder, "app.py")
    assert done.stdout == "[2, 4]\n"


def test_options_reach_the_session(folder):
    write(folder, "app.py", PROGRAM)
    done = run(
        folder, "--export", "json:out.jsonl.gz", "--buffer-mib", "8", "--label", "model=s=1",
        "--label", "n=2", "--run-id", "mine", "--rank", "3", "--interval", "0.05", "app.py",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first = next(records(folder / "out.jsonl.gz"))
    assert first["labels"] == {"model": "s=1", "n": "2"}
    assert (first["run_id"], first["rank"], first["config"]["buffer_mib"]) == ("mine", 3, 8)
    assert first["argv"] == ["app.py"]
    assert not (folder / "run.jsonl").exists()


def test_the_environment_may_say_where_the_run_goes(folder):
    write(folder, "app.py", PROGRAM)
    done = run(folder, "app.py", INSTRUMENT_EXPORT="json:env.jsonl")
    assert "in env.jsonl" in done.stderr
    assert not (folder / "run.jsonl").exists()
    run(folder, "--export", "json:arg.jsonl", "app.py", INSTRUMENT_EXPORT="json:env.jsonl")
    assert (folder / "arg.jsonl").exists()


def test_somebody_elses_run_jsonl_is_left_alone(folder):
    write(folder, "app.py", PROGRAM)
    write(folder, "run.jsonl", '{"mine": 1}\n')
    write(folder, "run-2.jsonl", "x\n")
    done = run(folder, "app.py")
    assert "in run-3.jsonl" in done.stderr
    assert (folder / "run.jsonl").read_text() == '{"mine": 1}\n'


def test_an_earlier_run_is_replaced(folder):
    write(folder, "app.py", PROGRAM)
    run(folder, "app.py")
    first = lines_of(folder / "run.jsonl")[0]["run_id"]
    run(folder, "app.py")
    assert lines_of(folder / "run.jsonl")[0]["run_id"] != first
    assert not (folder / "run-2.jsonl").exists()


def test_switched_off_it_only_runs_the_program(folder):
    write(folder, "app.py", PROGRAM + "print('ran')")
    done = run(folder, "app.py", INSTRUMENT_DISABLED="1")
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert done.stderr == "instrument run: INSTRUMENT_DISABLED is set, so nothing is recorded\n"
    assert not (folder / "run.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Missing argument 'SCRIPT'"),
        (["nosuch.py"], "nosuch.py: no such file"),
        (["-m", "nosuch"], "no module named 'nosuch'"),
        (["."], "without a __main__.py"),
        (["--mode", "develp", "app.py"], "did you mean 'develop'?"),
        (["--buffer-mib", "big", "app.py"], "'big'"),
        (["--export", "jsn:x", "app.py"], "did you mean 'json'?"),
        (["--export", "json:no/such/folder/run.jsonl", "app.py"], "cannot be opened"),
        (["--label", "model", "app.py"], "not KEY=VALUE"),
        (["--exprot", "json:x", "app.py"], "--export"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(folder, arguments, said):
    write(folder, "app.py", "print('ran')")
    done = run(folder, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(folder.glob("*.jsonl"))


def test_losses_are_said_at_the_end(folder):
    write(
        folder,
        "app.py",
        "import instrument\nfor _ in range(300000):\n    with instrument.region('a'): pass\n",
    )
    done = run(folder, "--buffer-mib", "2", "--interval", "5", "app.py")
    assert " lost;" in done.stderr.splitlines()[-1]


def test_one_span_is_said_as_one(folder):
    write(folder, "one.py", "import instrument\nwith instrument.region('a'): pass\n")
    assert run(folder, "one.py").stderr.startswith("instrument: 1 span in run.jsonl;")


def test_a_program_that_starts_a_session_too_is_told_by_whom_one_is_on(folder):
    write(folder, "own.py", "import instrument\ninstrument.start()\n")
    done = run(folder, "own.py")
    assert done.returncode == 1
    assert "a session is on already, started at `instrument run`; stop it first" in done.stderr
