"""Running callgrind on a piece of Python, and reading what it counted.

Callgrind counts executed instructions: the same on every run, however busy the machine. Two runs of different
length, subtracted and divided, leave what one repetition takes.
"""

from __future__ import annotations

import collections
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

RUNNER = Path(__file__).with_name("counted.py")

Where = tuple[str, str, str, int]
"""Binary, source file, function, line (0 without debugging information)."""


def available() -> str | None:
    """Why callgrind cannot be run, or None."""
    return None if shutil.which("valgrind") else "valgrind is not installed"


def count(case: str, times: int) -> dict[Where, int]:
    """Instructions of a run of a case, by place."""
    with tempfile.TemporaryDirectory(prefix="instrument-callgrind-") as folder:
        out = Path(folder) / "callgrind.out"
        done = subprocess.run(
            [
                "valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--dump-line=yes",
                "--compress-strings=yes", sys.executable, str(RUNNER), case, str(times),
            ],
            capture_output=True, text=True, check=False,
            env=os.environ | {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(done.stderr.strip().splitlines()[-1])
        return parse(out.read_text())


_NAME = re.compile(r"^(fn|fl|fi|fe|ob|cfn|cfi|cfl|cob)=(?:\((\d+)\))?(?: ?(.*))?$")
_COST = re.compile(r"^([+-]?\d+|\*) (\d+)$")


def parse(text: str) -> dict[Where, int]:
    """Own costs of every line, from callgrind's file format (names compressed, lines relative)."""
    names: dict[tuple[str, str], str] = {}
    costs: collections.Counter[Where] = collections.Counter()
    binary = source = function = ""
    line = 0
    is_call = False
    for row in text.splitlines():
        if found := _NAME.match(row):
            kind, number, name = found.groups()
            space = {"fn": "f", "cfn": "f", "ob": "o", "cob": "o"}.get(kind, "s")
            if number is not None and name:
                names[space, number] = name
            name = name or names.get((space, number or ""), "")
            if kind == "fn":
                function = name
            elif kind in ("fl", "fi", "fe"):
                source = name
            elif kind == "ob":
                binary = name
        elif row.startswith("calls="):
            is_call = True  # the next line is the cost of the called function: not ours
        elif found := _COST.match(row):
            position, cost = found.groups()
            if position != "*":
                line = line + int(position) if position[0] in "+-" else int(position)
            if not is_call:
                costs[binary, source, function, line] += int(cost)
            is_call = False
    return costs


@dataclass(frozen=True)
class Share:
    """Instructions of one repetition that are spent in one place."""

    place: str
    instructions: float


def per_repetition(case: str, few: int, many: int) -> dict[Where, float]:
    """Instructions by place for one repetition."""
    short, long = count(case, few), count(case, many)
    found = {}
    for where in short.keys() | long.keys():
        each = (long.get(where, 0) - short.get(where, 0)) / (many - few)
        if abs(each) >= 0.005:
            found[where] = each
    return found


def by_function(costs: dict[Where, float]) -> list[Share]:
    """Summed by function and the file that its code comes from: what is inlined stands under its own file."""
    sums: collections.Counter[str] = collections.Counter()
    for (binary, source, function, _line), each in costs.items():
        file = Path(source).name if source not in ("", "???") else Path(binary).name
        sums[f"{function.split(chr(39))[0]}  ({file})"] += each  # type: ignore[assignment]
    return [Share(place, each) for place, each in sums.most_common() if abs(each) >= 0.5]


def by_line(costs: dict[Where, float], folder: str) -> list[Share]:
    """Summed by source line, of files in a folder; function names show whom a line was inlined into."""
    sums: collections.Counter[str] = collections.Counter()
    for (_binary, source, function, line), each in costs.items():
        if folder in source or (Path(source).name == source and source.endswith((".h", ".c"))):
            sums[f"{Path(source).name}:{line} in {function}"] += each  # type: ignore[assignment]
    return [Share(place, each) for place, each in sums.most_common() if each >= 0.5]


def less(costs: dict[Where, float], base: dict[Where, float]) -> dict[Where, float]:
    """What a case takes more than another, place by place."""
    return {where: costs.get(where, 0.0) - base.get(where, 0.0) for where in costs.keys() | base.keys()}
