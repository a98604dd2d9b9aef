"""How cost grows: `python benchmarks/scale.py [--largest 1e8] [--json FILE]`.

Spans (time, memory, size of the run file), spans in one burst (what is lost), names, paths, threads, depth,
and the report of a finished run. Each point runs in a process of its own; a point that fails is said, and the
others go on. Recorder curves give CPU time per span without export; 'spans' and 'burst' include the export.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kit import machine, results
from kit.growth import CURVES

GROWTH = Path(__file__).parent / "kit" / "growth.py"
SIZES = {
    "spans": [10**4, 10**5, 10**6, 10**7, 10**8],
    "burst": [10**4, 10**5, 10**6, 10**7],
    "names": [1, 10, 100, 512, 1000, 2000, 4000, 10_000],
    "paths": [1, 10, 100, 1000, 2000, 4000, 10_000],
    "depth": [1, 10, 100, 1000, 5000],
    "threads": [1, 2, 4, 8, 16, 32, 64],
    "report": [10**5, 10**6, 10**7],
}
TARGETS = {("report", 10**6): 2.0, ("report", 10**7): 20.0}
"""Seconds on one core that a report may take: CPU time, since others use the machine as well."""


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--curves", default=",".join(SIZES), help="comma-separated (default: all)")
    p.add_argument(
        "--largest", type=float, default=1e7, help="most spans in a run; 1e8 takes minutes and 8 GiB of disk"
    )
    p.add_argument("--json", metavar="FILE", help="write all figures there; a folder takes one per Python")
    return p


def point(curve: str, size: int) -> dict[str, object]:
    """Run one point; what it measured, or how it failed."""
    with tempfile.TemporaryDirectory(prefix="instrument-scale-") as folder:
        done = subprocess.run(
            [sys.executable, str(GROWTH), curve, str(size), folder],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        return {"failed": last[0]}
    found: dict[str, object] = json.loads(done.stdout)
    return found


def text(curve: str, size: int, found: dict[str, object]) -> str:
    """A point as a line."""
    if "failed" in found:
        return f"  {size:>11,}  NOT MEASURED: {found['failed']}"
    parts = [f"{name} {value:,.4g}" for name, value in found.items() if isinstance(value, int | float)]
    target, took = TARGETS.get((curve, size)), found.get("cpu_s")
    if target is not None and isinstance(took, float):
        parts.append(f"{'met' if took < target else 'MISSED'} (target under {target:g} s CPU)")
    return f"  {size:>11,}  " + "  ".join(parts)


def main() -> int:
    options = parser().parse_args()
    wanted = options.curves.split(",")
    if unknown := [curve for curve in wanted if curve not in CURVES]:
        parser().error(f"unknown curve {', '.join(unknown)}; known: {', '.join(CURVES)}")
    about = machine.describe()
    print(machine.one_line(about))
    curves: dict[str, dict[str, object]] = {}
    for curve in wanted:
        print(f"\n{curve}: {(CURVES[curve].__doc__ or '').strip()}")
        curves[curve] = {}
        for size in SIZES[curve]:
            if curve in ("spans", "burst", "report") and size > options.largest:
                print(f"  {size:>11,}  not asked for (--largest {size:.0e})")
                continue
            began = time.monotonic()
            found = point(curve, size)
            curves[curve][str(size)] = found
            print(text(curve, size, found) + f"  ({time.monotonic() - began:.1f} s)", flush=True)
    if options.json:
        results.save({"benchmark": "scale", "machine": about, "curves": curves}, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
