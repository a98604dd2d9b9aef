"""What every test may use: a recorder that is started on demand and always stopped."""

import json
import math
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from instrument.recorder import _core


@pytest.fixture(autouse=True, scope="session")
def interrupts_raise() -> Iterator[None]:
    """SIGINT raises, also where the shell started us in the background and so had it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Record(NamedTuple):
    """A span or mark as `Chunk.decode` tells it, with what its path says."""

    id: int
    parent: int
    root: int
    path_index: int
    start: int
    end: int
    flag_bits: int
    step: int | None
    task: int | None
    error: str | None
    attrs: dict[str, Any]
    measures: dict[str, float]
    name: str
    kind: str
    path: str
    thread: int

    @property
    def ns(self) -> int:
        return self.end - self.start

    @property
    def flags(self) -> set[str]:
        return {name for bit, name in enumerate(_core.FLAG_NAMES) if name and self.flag_bits >> bit & 1}

    @property
    def failed(self) -> bool:
        return bool(self.flag_bits & 1)


class Total(NamedTuple):
    path_index: int
    count: int
    errors: int
    open: int
    sum_ns: int
    self_ns: int
    min_ns: int
    max_ns: int
    histogram: list[tuple[int, int]]
    measured: int
    flops: float
    bytes: float


def strict_json(text: str | bytes) -> Any:
    def refuse(token: str) -> None:
        raise ValueError(f"{token} is not JSON")

    return json.loads(text.decode() if isinstance(text, bytes) else text, parse_constant=refuse)


def in_json(value: Any) -> Any:
    """What an attribute looks like in the run file."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return value


class Recorder:
    """Drives `_core` for one test; checks on the way that both readers of a chunk say the same."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.lines: list[dict[str, Any]] = []

    def start(self, **options: Any) -> None:
        self.records, self.lines = [], []
        _core.start(**options)

    def stop(self) -> None:
        _core.stop()

    def take(self) -> list[Record]:
        """Everything since the last call; kept in `records` too."""
        new: list[Record] = []
        for chunk in _core.take():
            rows = chunk.decode()
            lines = [strict_json(line) for line in chunk.jsonl(0).splitlines()]
            assert len(rows) == len(lines) == chunk.count == len(chunk)
            for row, line in zip(rows, lines, strict=True):
                name, kind, path, _, _ = _core.path(row[3])
                record = Record(*row[:10], row[10] or {}, row[11] or {}, name, kind, path, chunk.thread)
                self.check(record, line)
                new.append(record)
                self.lines.append(line)
        self.records += new
        return new

    @staticmethod
    def check(record: Record, line: dict[str, Any]) -> None:
        mark = record.kind == "mark"
        assert line["type"] == ("mark" if mark else "span")
        if mark:
            assert line["time"] == record.start
        else:
            assert line["id"] == f"{record.id:016x}"
            assert (line["start"], line["dur"]) == (record.start, record.ns)
        assert line.get("parent") == (f"{record.parent:016x}" if record.parent else None)
        assert line.get("step") == record.step
        assert line.get("error") == record.error
        assert line.get("status", "ok") == ("error" if record.failed else "ok")
        assert set(line.get("flags", ())) == record.flags
        assert line.get("attrs", {}) == {key: in_json(value) for key, value in record.attrs.items()}
        assert line.get("measures", {}) == {key: in_json(value) for key, value in record.measures.items()}
        assert line["kind"] == record.kind

    def spans(self) -> list[Record]:
        self.take()
        return [record for record in self.records if record.kind != "mark"]

    def marks(self) -> list[Record]:
        self.take()
        return [record for record in self.records if record.kind == "mark"]

    def named(self, name: str) -> list[Record]:
        self.take()
        return [record for record in self.records if record.name == name]

    def one(self, name: str) -> Record:
        found = self.named(name)
        assert len(found) == 1, f"{len(found)} records of {name!r}"
        return found[0]

    def totals(self) -> dict[str, Total]:
        return {_core.path(row[0])[2]: Total(*row) for row in _core.totals()}

    def losses(self) -> dict[str, int]:
        return _core.losses()


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    """A recorder that is off; call `start`. Stopped and emptied whatever happens."""
    _core.stop()
    yield Recorder()
    _core.stop()
    _core.take()


@pytest.fixture
def recording(recorder: Recorder) -> Recorder:
    """A recorder that is on, with the usual buffer."""
    recorder.start()
    return recorder


@pytest.fixture
def run_python() -> Callable[..., str]:
    """Run a program in a fresh interpreter, for what outlives a session; answers its standard output."""

    def run(source: str, *options: str) -> str:
        done = subprocess.run(
            [sys.executable, *options, "-c", source], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run
