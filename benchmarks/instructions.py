"""Where the recorder's own instructions go: `python benchmarks/instructions.py`, or `make profile-self`.

For each kind of mark, the instructions that one repetition adds to a bare loop (a kernel: to a bare call), by
function and by source line, from callgrind: two runs of different length, their difference divided. And where
perf can count on this machine, what it says of a long run. Lines need an extension built with `-g`.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from kit import callgrind, counted, machine, results

RECORDER = "instrument/recorder"


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--cases", default=None, help=f"of {'; '.join(counted.CASES)}; separated by ';'")
    p.add_argument("--times", type=int, default=6000, help="repetitions that the longer run has more")
    p.add_argument("--lines", type=int, default=25, help="source lines to show for each case")
    p.add_argument("--json", metavar="FILE", help="write all figures there; a folder takes one per Python")
    return p


def show(case: str, costs: dict[callgrind.Where, float], base: str, lines: int) -> dict[str, object]:
    added = sum(costs.values())
    ours = sum(each for (binary, *_), each in costs.items() if "_core" in Path(binary).name)
    print(f"\n{case}: {added:.1f} instructions more than a bare {base}, {ours:.1f} of them in the recorder")
    functions, rows = callgrind.by_function(costs), callgrind.by_line(costs, RECORDER)
    for share in functions:
        print(f"  {share.instructions:8.1f}  {share.place}")
    if rows:
        print("  by line of the recorder:")
    for share in rows[:lines]:
        print(f"  {share.instructions:8.1f}    {share.place}{source_of(share.place)}")
    return {
        "added": added,
        "recorder": ours,
        "against": base,
        "functions": {share.place: round(share.instructions, 2) for share in functions},
        "lines": {share.place: round(share.instructions, 2) for share in rows},
    }


def source_of(place: str) -> str:
    """The text of a line of the recorder."""
    file, _, rest = place.partition(":")
    number = int(rest.split(" ")[0])
    path = Path(__file__).parents[1] / RECORDER / file
    try:
        return f"    {path.read_text().splitlines()[number - 1].strip()[:90]}"
    except (OSError, IndexError):
        return ""


def perf(case: str) -> str:
    """What perf says of a long run: counters where there are any, samples by time otherwise."""
    if shutil.which("perf") is None:
        return "perf is not installed"
    command = [sys.executable, str(callgrind.RUNNER), case, "5000000"]
    events = "instructions:u,cycles:u,branch-misses:u,L1-dcache-load-misses:u,task-clock"
    done = subprocess.run(
        ["perf", "stat", "-e", events, *command], capture_output=True, text=True, check=False
    )
    text = "\n".join(line for line in done.stderr.splitlines() if line.strip())
    if done.returncode:
        return f"perf does not run here: {text.splitlines()[-1] if text else done.returncode}"
    if "<not supported>" in text:
        text += "\n(hardware counters are not supported here: a virtual machine without a PMU)"
    return text


def main() -> int:
    options = parser().parse_args()
    if reason := callgrind.available():
        print(f"instructions: {reason}; `apt install valgrind`", file=sys.stderr)
        return 2
    wanted = (
        options.cases.split(";") if options.cases else [c for c in counted.CASES if c not in ("call", "loop")]
    )
    if unknown := [case for case in wanted if case.removesuffix(", off") not in counted.CASES]:
        parser().error(f"unknown case {', '.join(unknown)}; known: {'; '.join(counted.CASES)}")
    about = machine.describe()
    print(machine.one_line(about))
    bases: dict[str, dict[callgrind.Where, float]] = {}
    cases: dict[str, object] = {}
    few, many = 1000, 1000 + options.times
    for case in wanted:
        base = counted.BASES.get(case.removesuffix(", off"), "loop")
        if base not in bases:
            bases[base] = callgrind.per_repetition(base, few, many)
        costs = callgrind.less(callgrind.per_repetition(case, few, many), bases[base])
        cases[case] = show(case, costs, base, options.lines)
    said = perf("region")
    print(f"\nperf, a region 5,000,000 times:\n{said}")
    if options.json:
        result = {"benchmark": "instructions", "machine": about, "cases": cases, "perf": said}
        results.save(result, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
