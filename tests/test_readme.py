"""What the README shows can be copied out and works."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import instrument
from instrument.cli import main
from instrument.testing import capture

README = (Path(__file__).resolve().parent.parent / "README.md").read_text()
PROGRAM, SESSION = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


@pytest.fixture
def names() -> dict[str, Any]:
    """What the README's program defines, and the two variables that it leaves to the reader."""
    defined: dict[str, Any] = {"batches": [np.ones((4, 3)), np.ones((5, 3))], "weights": np.ones((3, 2))}
    exec(PROGRAM, defined)
    return defined


def test_the_program_in_the_readme_records_what_it_says(names: dict[str, Any]) -> None:
    with capture() as recorded:
        names["train"](names["batches"], names["weights"])
    assert sorted(span.path for span in recorded.spans) == sorted(
        ["step/forward/multiply", "step/forward", "step"] * 2
    )
    kernels = [span for span in recorded.spans if span.name == "multiply"]
    assert [span.measures["flops"] for span in kernels] == [2 * 4 * 3 * 2, 2 * 5 * 3 * 2]
    forward = [span for span in recorded.spans if span.name == "forward"]
    assert [span.attrs for span in forward] == [{"rows": 4, "mean": 3.0}, {"rows": 5, "mean": 3.0}]


def test_the_session_and_the_reports_in_the_readme_work(
    names: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(SESSION, names)
    assert "multiply" in capsys.readouterr().out
    reports = re.findall(r"^instrument (report .*?) +#", README, flags=re.MULTILINE)
    assert len(reports) == 3
    for report in reports:
        assert main(shlex.split(report)) == 0
        assert "multiply" in capsys.readouterr().out


def test_the_readme_names_the_version_of_python_and_the_licence() -> None:
    assert "CPython 3.11 to 3.13" in README
    assert "Apache-2.0" in README
    assert instrument.__version__ == "0.1.0"


def test_what_the_readme_calls_is_there_after_importing_instrument_alone() -> None:
    called = set(re.findall(r"instrument\.(\w+(?:\.\w+)*)\(", README))
    assert {"region", "session"} <= called
    code = "import instrument\n" + "\n".join(f"instrument.{name}" for name in sorted(called))
    subprocess.run([sys.executable, "-c", code], check=True)
