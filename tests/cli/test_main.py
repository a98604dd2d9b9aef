import subprocess
import sys

import pytest

import instrument
from instrument.cli import main


def test_the_version_is_that_of_the_package(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"instrument-sdk {instrument.__version__}\n"


@pytest.mark.parametrize("command", [[], ["run"], ["report"]])
def test_help_has_an_example(capsys, command):
    assert main([*command, "--help"]) == 0
    out = capsys.readouterr().out
    assert "Example" in out
    assert "instrument " + " ".join(command) in out


def test_without_a_command_help_is_shown_and_the_use_is_wrong(capsys):
    assert main([]) == 2
    assert "report" in capsys.readouterr().err


def modules_of(*arguments):
    code = (
        "import sys; from instrument.cli import main\n"
        f"main({list(arguments)!r})\n"
        "print(*sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_the_version_costs_no_command(capsys):
    loaded = modules_of("--version")
    assert not {"rich", "numpy", "psutil", "instrument.sessions", "instrument.runs.load"} & loaded


def test_a_report_needs_no_numpy_and_json_no_rich(tmp_path):
    from run_builder import small_run

    path = str(small_run().write(tmp_path / "run.jsonl"))
    assert not {"numpy", "psutil", "rich", "instrument.sessions"} & modules_of("report", path, "--json")
    assert "rich" in modules_of("report", path)
