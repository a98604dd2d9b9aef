"""What is public is in `__all__`, and the extension's stub tells the truth."""

import ast
import importlib
import pkgutil
from pathlib import Path
from types import ModuleType

import pytest

import instrument
from instrument.recorder import _core

PROMISED = {
    "ConfigError",
    "annotate",
    "count",
    "flush",
    "gauge",
    "kernel",
    "mark",
    "observe",
    "region",
    "session",
    "start",
    "step",
    "stop",
}


def all_modules() -> list[str]:
    """Every Python module of ours that can be imported without running a command."""
    found = pkgutil.walk_packages(instrument.__path__, "instrument.")
    return sorted(module.name for module in found if not module.name.endswith(("__main__", "._core")))


def test_the_public_names_are_the_promised_ones() -> None:
    assert set(instrument.__all__) == PROMISED


@pytest.mark.parametrize("name", sorted(PROMISED))
def test_a_promised_name_is_there_and_says_what_it_is(name: str) -> None:
    thing = getattr(instrument, name)
    assert callable(thing)
    assert thing.__doc__


def test_no_submodule_has_the_name_of_something_public() -> None:
    """Importing it would bind the module over what users call."""
    assert {module.name for module in pkgutil.iter_modules(instrument.__path__)} & PROMISED == set()


def test_nothing_public_is_left_out_of_all() -> None:
    """Submodules are attributes once they are imported; everything else without an underscore counts."""
    names = {
        name
        for name in dir(instrument)
        if not name.startswith("_") and not isinstance(getattr(instrument, name), ModuleType)
    }
    assert names == PROMISED


def test_a_star_import_brings_the_public_names() -> None:
    namespace: dict[str, object] = {}
    exec("from instrument import *", namespace)
    assert namespace.keys() >= PROMISED


def test_the_api_marker_is_a_number_and_the_version_a_text() -> None:
    assert instrument.__instrument_api__ == 1
    assert instrument.__version__.count(".") == 2


@pytest.mark.parametrize("name", all_modules())
def test_what_a_module_exports_exists_in_it(name: str) -> None:
    module = importlib.import_module(name)
    exported = getattr(module, "__all__", [])
    assert len(exported) == len(set(exported))
    assert [item for item in exported if not hasattr(module, item)] == []


# ---- the stub of the extension


STUB = ast.parse(Path(_core.__file__).with_name("_core.pyi").read_text())


def names_of(node: ast.AST) -> list[str]:
    """The names that a statement of a stub declares."""
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
    return []


def declared() -> set[str]:
    return {name for node in STUB.body for name in names_of(node)}


def classes() -> list[ast.ClassDef]:
    return [node for node in STUB.body if isinstance(node, ast.ClassDef)]


def test_every_name_in_the_stub_is_in_the_extension() -> None:
    assert declared() >= {"Region", "Site", "Marker", "Chunk", "start", "take"}
    assert {name for name in declared() if not hasattr(_core, name)} == set()


def test_every_public_name_of_the_extension_is_in_the_stub() -> None:
    assert {name for name in dir(_core) if not name.startswith("_")} - declared() == set()


@pytest.mark.parametrize("node", classes(), ids=lambda node: node.name)
def test_the_members_of_a_class_are_the_same_in_the_stub_and_the_extension(node: ast.ClassDef) -> None:
    in_stub = {name for inner in node.body for name in names_of(inner)}
    in_extension = getattr(_core, node.name)
    assert {name for name in in_stub if not hasattr(in_extension, name)} == set()
    assert {name for name in vars(in_extension) if not name.startswith("_")} - in_stub == set()
