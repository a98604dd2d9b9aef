"""A long run under load: memory stays flat, and every span is in the file or counted."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PROGRAM = textwrap.dedent(
    """
    import os, sys, time
    import instrument

    count, target = int(sys.argv[1]), sys.argv[2]

    def resident():
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    region = instrument.region
    session = instrument.start(export=f"json:{target}", buffer_mib=int(sys.argv[3]))
    block = count // 100
    before = highest = resident()
    for _ in range(100):
        with region("block"):
            for _ in range(block - 1):
                with region("span"):
                    pass
        highest = max(highest, resident())
    summary = session.stop(timeout=120.0)
    lost = {f"{loss.where}.{loss.reason}": loss.count for loss in summary.losses}
    counts = {total.path: total.count for total in summary.totals}
    print(__import__("json").dumps({"grown": highest - before, "lost": lost, "counts": counts,
                                    "delivered": summary.delivered}))
    """
)


BUFFER_MIB = 8


def run(count: int, target: Path) -> dict:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(count), str(target), str(BUFFER_MIB)],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
        env={key: value for key, value in os.environ.items() if not key.startswith("INSTRUMENT_")},
    )
    return json.loads(done.stdout)


def lines_of_type(target: Path, kind: str) -> int:
    prefix = f'{{"type":"{kind}"'.encode()
    with target.open("rb") as file:
        return sum(line.startswith(prefix) for line in file)


@pytest.mark.parametrize("count", [1_000_000, pytest.param(10_000_000, marks=pytest.mark.slow)])
def test_many_spans_leave_memory_flat_and_are_in_the_file_or_counted(count: int, tmp_path: Path) -> None:
    target = tmp_path / "run.jsonl"
    found = run(count, target)

    assert found["delivered"]
    assert found["counts"] == {"block": 100, "block/span": count - 100}  # exact, whatever was dropped
    assert lines_of_type(target, "span") + sum(found["lost"].values()) == count
    # The buffer, what the exporter makes of it a piece at a time, and nothing that grows with the spans:
    # these take 32 bytes each in memory, and some 150 in the file.
    assert found["grown"] < (BUFFER_MIB + 24) << 20
