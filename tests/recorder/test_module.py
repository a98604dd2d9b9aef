"""The extension module itself."""

import pytest

from instrument.recorder import _core


def test_it_names_its_version_and_its_flags():
    assert _core.API_VERSION == 1
    assert len(_core.FLAG_NAMES) == 16
    assert {name for name in _core.FLAG_NAMES if name} == {
        "cancelled",
        "unfinished",
        "truncated",
        "shared_context",
    }


def test_the_stub_and_the_module_have_the_same_names():
    import ast
    import pathlib

    stub = pathlib.Path(_core.__file__).with_name("_core.pyi")
    if not stub.exists():
        pytest.skip("installed without its stub")
    names = set()
    for node in ast.parse(stub.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    assert names == {name for name in dir(_core) if not name.startswith("_")}


def test_a_module_that_is_imported_anew_finds_the_recorder_as_it_was(run_python):
    out = run_python(
        "import sys\n"
        "from instrument.recorder import _core as first\n"
        "first.start()\n"
        "with first.region('before'): pass\n"
        "del sys.modules['instrument.recorder._core']\n"
        "del sys.modules['instrument.recorder']\n"
        "from instrument.recorder import _core as second\n"
        "with second.region('after'): pass\n"
        "print(second.active(), first.Region is second.Region)\n"
        "print([second.path(row[3])[0] for chunk in second.take() for row in chunk.decode()])\n"
    )
    assert out == "True True\n['before', 'after']\n"


def test_every_function_says_what_it_does():
    for name in dir(_core):
        if not name.startswith("_") and callable(getattr(_core, name)):
            assert getattr(_core, name).__doc__, name
