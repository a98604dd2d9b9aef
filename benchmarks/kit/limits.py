"""The yardsticks in C, compiled for this interpreter."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType

SOURCE = Path(__file__).parents[1] / "limits.c"


def build() -> ModuleType:
    """Compile benchmarks/limits.c and load it. RuntimeError without a C compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise RuntimeError("the yardsticks need a C compiler: neither gcc nor cc was found")
    with tempfile.TemporaryDirectory(prefix="instrument-bench-") as folder:
        target = Path(folder) / f"limits{sysconfig.get_config_var('EXT_SUFFIX')}"
        include = sysconfig.get_paths()["include"]
        subprocess.run(
            [compiler, "-O3", "-fPIC", "-shared", f"-I{include}", str(SOURCE), "-o", str(target)], check=True
        )
        spec = importlib.util.spec_from_file_location("limits", target)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
