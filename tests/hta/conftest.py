"""Our traces in HolisticTraceAnalysis, which wants pandas below 3 and brings Jupyter along.

These need an environment of their own (`make test-interop`), so other runs leave the folder out.
"""

import importlib.util
import os
import sys
from pathlib import Path

if os.environ.get("INSTRUMENT_TEST_INTEROP") != "1":
    collect_ignore_glob = ["test_*"]

if "run_builder" not in sys.modules:
    spec = importlib.util.spec_from_file_location(
        "run_builder", Path(__file__).parents[1] / "runs" / "builder.py"
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules["run_builder"] = module
    spec.loader.exec_module(module)
