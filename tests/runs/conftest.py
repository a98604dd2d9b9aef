"""Makes `run_builder` importable: these tests are no package, and the installed one must not see them."""

import importlib.util
import sys
from pathlib import Path

if "run_builder" not in sys.modules:
    spec = importlib.util.spec_from_file_location("run_builder", Path(__file__).parent / "builder.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["run_builder"] = module
    spec.loader.exec_module(module)
