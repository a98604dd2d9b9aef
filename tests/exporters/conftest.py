"""Makes the run files of `tests/runs/builder.py` importable here too."""

import importlib.util
import sys
from pathlib import Path

if "run_builder" not in sys.modules:
    spec = importlib.util.spec_from_file_location(
        "run_builder", Path(__file__).parents[1] / "runs" / "builder.py"
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules["run_builder"] = module
    spec.loader.exec_module(module)
