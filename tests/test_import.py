"""What `import instrument` costs and loads, and what it does about the environment that it finds."""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

import instrument

ROOT = Path(instrument.__file__).resolve().parent.parent

OWN_MODULES = {
    "instrument",
    "instrument._switch",
    "instrument.errors",
    "instrument.annotations",
    "instrument.recorder",
    "instrument.recorder._core",
    "instrument.wrapping",
}
# None of these is heavy alone; together they are what a start-up of a tenth of a second is made of.
NOT_AT_IMPORT = {
    "asyncio",
    "click",
    "concurrent.futures",
    "contextlib",
    "dataclasses",
    "importlib.metadata",
    "inspect",
    "json",
    "logging",
    "multiprocessing",
    "numpy",
    "pathlib",
    "psutil",
    "re",
    "rich",
    "socket",
    "subprocess",
    "tempfile",
    "threading",
    "torch",
    "traceback",
    "typing",
}

# -S: no .pth file of this environment loads anything first that would hide what we load. The module `site` is
# there on every start of Python.
PRELUDE = "import site, sys; sys.path[:0] = [{root!r}]; before = set(sys.modules)\n"


def isolated(code: str) -> list[str]:
    """The command line that runs `code` where only the standard library and our package can be found."""
    return [sys.executable, "-I", "-S", "-c", PRELUDE.format(root=str(ROOT)) + code]


def loaded_by(code: str) -> set[str]:
    """The modules that `code` brings in on a fresh interpreter."""
    code += "\nnew = set(sys.modules) - before\nimport json; print(json.dumps(sorted(new)))"
    done = subprocess.run(isolated(code), capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def run_with(code: str, *, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `code` with our package on the path and variables of ours set, and nothing else changed."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("INSTRUMENT_")}
    clean["PYTHONPATH"] = str(ROOT)
    return subprocess.run(
        [sys.executable, "-P", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env=clean | environment,
        timeout=60,
    )


def test_importing_loads_the_standard_library_and_the_extension_only() -> None:
    new = loaded_by("import instrument")
    ours = {name for name in new if name.partition(".")[0] == "instrument"}
    foreign = {name for name in new - ours if name.partition(".")[0] not in sys.stdlib_module_names}
    assert ours == OWN_MODULES
    assert foreign == set()


def test_importing_loads_no_heavy_part_of_the_standard_library() -> None:
    assert loaded_by("import instrument") & NOT_AT_IMPORT == set()


def test_using_the_annotations_loads_nothing_more() -> None:
    code = (
        "import instrument\n"
        "before = set(sys.modules)\n"
        "with instrument.step(1), instrument.region('x', n=1): instrument.mark('m'); instrument.count('c')"
    )
    assert loaded_by(code) == set()


def test_the_session_is_loaded_by_the_first_call_that_needs_it() -> None:
    assert "instrument.sessions" in loaded_by("import instrument; instrument.stop()")


def test_no_getattr_keeps_the_interpreter_from_specialising_our_names() -> None:
    assert not hasattr(instrument, "__getattr__")


def test_importing_takes_less_than_25_ms_more_than_starting_python() -> None:
    def milliseconds(code: str) -> float:
        start = time.perf_counter()
        subprocess.run(isolated(code), check=True)
        return (time.perf_counter() - start) * 1e3

    def difference() -> float:
        """Of medians over runs taken in turn, so that a busy machine slows both alike."""
        pairs = [(milliseconds("pass"), milliseconds("import instrument")) for _ in range(9)]
        return statistics.median(w for _, w in pairs) - statistics.median(p for p, _ in pairs)

    difference()  # byte code and disk caches
    # Other load can only make it slower: the best of three tells what the import itself costs.
    assert min(difference() for _ in range(3)) < 25


def test_an_unknown_name_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="module 'instrument' has no attribute 'regoin'"):
        _ = instrument.regoin  # type: ignore[attr-defined]


def test_an_extension_that_is_not_built_is_said_in_one_line_with_the_way_out(tmp_path: Path) -> None:
    package = copy_of_the_package(tmp_path)
    for library in (package / "recorder").glob("_core*.so"):
        library.unlink()
    done = run_with("import instrument", PYTHONPATH=str(tmp_path))
    assert done.stderr.splitlines()[-1].startswith("ImportError: instrument: the C extension is not built")
    assert "pip install ." in done.stderr


# ---- the environment


def test_an_export_in_the_environment_starts_a_session_and_records(tmp_path: Path) -> None:
    code = "import instrument\nwith instrument.region('worked'): pass"
    done = run_with(code, cwd=tmp_path, INSTRUMENT_EXPORT="json:run.jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    assert [line["name"] for line in lines if line["type"] == "span"] == ["worked"]
    assert lines[-1]["type"] == "end"


def test_a_wrong_export_in_the_environment_is_one_line_and_the_program_runs_on(tmp_path: Path) -> None:
    code = "import instrument\nwith instrument.region('worked'): print('done')"
    done = run_with(code, cwd=tmp_path, INSTRUMENT_EXPORT="jsn:run.jsonl")
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert done.stderr.startswith("instrument: not recording: ")
    assert "json" in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("word", ["1", "true", "ON", "yes"])
def test_disabled_wins_over_an_export_and_leaves_everything_as_it_was(tmp_path: Path, word: str) -> None:
    code = (
        "import instrument\n"
        "def f(): return 42\n"
        "assert instrument.kernel(f) is f\n"
        "assert instrument.kernel(name='g')(f) is f\n"
        "with instrument.session(), instrument.region('x') as r: assert not r.recording"
    )
    done = run_with(code, cwd=tmp_path, INSTRUMENT_DISABLED=word, INSTRUMENT_EXPORT="json:run.jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("word", ["0", "false", "Off", "no", ""])
def test_a_false_word_in_disabled_switches_nothing_off(tmp_path: Path, word: str) -> None:
    code = "import instrument"
    done = run_with(code, cwd=tmp_path, INSTRUMENT_DISABLED=word, INSTRUMENT_EXPORT="json:run.jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "run.jsonl").exists()


@pytest.mark.parametrize("way", ["module", "script"])
def test_our_own_command_does_not_record_itself_over_the_run_it_reads(tmp_path: Path, way: str) -> None:
    run_file = tmp_path / "run.jsonl"
    code = "import instrument\nwith instrument.region('worked'): pass"
    run_with(code, cwd=tmp_path, INSTRUMENT_EXPORT="json:run.jsonl")
    before = run_file.read_bytes()
    script = tmp_path / "instrument"  # what an installer writes
    script.write_text("import sys\nfrom instrument.cli import main\nsys.exit(main())\n")
    command = [str(script)] if way == "script" else ["-m", "instrument"]
    done = subprocess.run(
        [sys.executable, *command, "report", "run.jsonl"],
        env=os.environ | {"PYTHONPATH": str(ROOT), "INSTRUMENT_EXPORT": "json:run.jsonl"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "worked" in done.stdout
    assert run_file.read_bytes() == before


# ---- PyPI's unrelated `instrument`


def copy_of_the_package(folder: Path) -> Path:
    """As if installed into `folder`."""
    package = folder / "instrument"
    shutil.copytree(ROOT / "instrument", package, ignore=shutil.ignore_patterns("__pycache__", "*.[ch]"))
    return package


@pytest.mark.parametrize("trace", ["instrument-0.6.0.dist-info/METADATA", "instrument/output/_numpy.py"])
def test_the_unrelated_instrument_beside_us_is_said_with_the_way_out(tmp_path: Path, trace: str) -> None:
    copy_of_the_package(tmp_path)
    (tmp_path / trace).parent.mkdir()
    (tmp_path / trace).touch()
    done = run_with("import instrument; print(instrument.__instrument_api__)", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert "RuntimeWarning: PyPI's unrelated package `instrument`" in done.stderr
    assert "pip uninstall instrument" in done.stderr


def test_our_own_metadata_beside_us_is_no_reason_to_warn(tmp_path: Path) -> None:
    copy_of_the_package(tmp_path)
    (tmp_path / "instrument_sdk-0.1.0.dist-info").mkdir()
    (tmp_path / "instrument_other-1.0.dist-info").mkdir()
    assert run_with("import instrument", PYTHONPATH=str(tmp_path)).stderr == ""


def test_the_unrelated_instrument_in_our_place_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    package = copy_of_the_package(tmp_path)
    (package / "__init__.py").write_text("__version__ = '0.6.0'\n")
    for code in (
        "import runpy; runpy.run_module('instrument', run_name='__main__')",
        "import sys; from instrument.cli import main; sys.exit(main())",
    ):
        done = run_with(code, PYTHONPATH=str(tmp_path))
        assert done.returncode == 2, done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
        assert "unrelated `instrument`" in done.stderr
