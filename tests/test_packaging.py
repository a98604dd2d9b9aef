"""What is in the distributions that we build, and what they ask for."""

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

import instrument

REPOSITORY = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())


def names_of(requirements: list[str]) -> set[str]:
    """The distributions that a list of requirements asks for."""
    return {re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower() for requirement in requirements}


def test_the_version_is_the_same_in_the_package_and_in_its_metadata() -> None:
    assert PROJECT["project"]["version"] == instrument.__version__ == "0.1.0"
    assert distribution("instrument-sdk").version == instrument.__version__


def test_the_package_asks_for_four_distributions_and_never_for_torch() -> None:
    project = PROJECT["project"]
    assert names_of(project["dependencies"]) == {"click", "numpy", "rich"}
    assert set(project["optional-dependencies"]) == {"otel", "tensorboard", "lines", "memory", "gpu", "all"}
    for extra, requirements in project["optional-dependencies"].items():
        assert "torch" not in names_of(requirements), extra


def test_the_extra_all_names_every_other_extra() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    (everything,) = extras["all"]
    assert set(everything.partition("[")[2].rstrip("]").split(",")) == extras.keys() - {"all"}


def test_the_tests_pin_the_torch_that_they_were_run_with() -> None:
    constraints = (REPOSITORY / "constraints-test.txt").read_text().splitlines()
    assert [line for line in constraints if line.startswith("torch")] == ["torch==2.13.0"]


def what_was_built(folder: str, names: list[str]) -> set[str]:
    """For `shutil.copytree`: what is not source. Some of these names mean it only at the top."""
    left_out = {name for name in names if name == "__pycache__" or name.endswith((".so", ".egg-info"))}
    if Path(folder) == REPOSITORY:
        left_out |= {name for name in names if name in ("build", "dist", "runs", ".git", ".hypothesis")}
        left_out |= {name for name in names if name.startswith(".venv") or name.endswith("_cache")}
    return left_out


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the wheel and the source distribution, built from a copy without earlier builds."""
    folder = tmp_path_factory.mktemp("packaging")
    shutil.copytree(REPOSITORY, folder / "source", ignore=what_was_built)
    # The wheel is built from the source distribution, so that what the latter lacks the former lacks too.
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "dist"), "source"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "dist"


@pytest.fixture(scope="module")
def in_wheel(built: Path) -> set[str]:
    """The files in the wheel."""
    (wheel,) = built.glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


@pytest.fixture(scope="module")
def in_sdist(built: Path) -> set[str]:
    """The files in the source distribution, from its one folder on."""
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        return {name.partition("/")[2] for name in opened.getnames()}


def sources(*patterns: str) -> set[str]:
    """Files of the repository, as paths from its root."""
    return {
        path.relative_to(REPOSITORY).as_posix() for pattern in patterns for path in REPOSITORY.glob(pattern)
    }


@pytest.mark.slow
def test_the_wheel_has_every_module_the_types_the_stubs_and_the_extension(in_wheel: set[str]) -> None:
    ours = sources("instrument/**/*.py", "instrument/**/*.pyi", "instrument/**/py.typed")
    exporters = sources("exporters/**/*.py", "exporters/**/py.typed")
    assert "instrument/recorder/_core.pyi" in ours
    assert ours <= in_wheel
    assert {path.removeprefix("exporters/") for path in exporters} <= in_wheel
    assert "instrument/py.typed" in in_wheel
    assert "instrument_exporters/py.typed" in in_wheel
    assert len([name for name in in_wheel if re.fullmatch(r"instrument/recorder/_core\..*\.so", name)]) == 1


@pytest.mark.slow
def test_the_wheel_has_two_packages_and_no_c_sources(in_wheel: set[str]) -> None:
    assert {name.partition("/")[0] for name in in_wheel} == {
        "instrument",
        "instrument_exporters",
        f"instrument_sdk-{instrument.__version__}.dist-info",
    }
    assert [name for name in in_wheel if name.endswith((".c", ".h"))] == []


@pytest.mark.slow
def test_the_wheel_has_the_licence_and_the_command(built: Path, in_wheel: set[str]) -> None:
    info = f"instrument_sdk-{instrument.__version__}.dist-info"
    assert f"{info}/licenses/LICENSE" in in_wheel
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        metadata = opened.read(f"{info}/METADATA").decode()
        entry_points = opened.read(f"{info}/entry_points.txt").decode()
    assert "License-Expression: Apache-2.0" in metadata
    assert "Requires-Python: >=3.11" in metadata
    assert "instrument = instrument.cli:main" in entry_points


@pytest.mark.slow
def test_the_source_distribution_has_what_it_takes_to_build_and_to_test(in_sdist: set[str]) -> None:
    assert sources("instrument/recorder/*.[ch]", "tests/**/*.py", "docs/*", "examples/**/*.py") <= in_sdist
    assert {
        "setup.py",
        "pyproject.toml",
        "Makefile",
        "LICENSE",
        "constraints-test.txt",
        ".ci/run",
    } <= in_sdist
    assert [name for name in in_sdist if name.endswith((".so", ".pyc"))] == []
