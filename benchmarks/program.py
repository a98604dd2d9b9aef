"""What whole programs lose by their annotations: `python benchmarks/program.py [--json FILE]`.

The demo's transformer and a loop of 5 us torch operators, in processes of their own: with the annotations
removed from the source, disabled, without a session, recording a run file, and with the same marks made by
the neighbours. The processes take turns, a block of work each, on one CPU. The figure is the median over the
turns of the CPU time (all threads) by that of the bare program in the same turn, with a 95 % interval by
bootstrap.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

from kit import machine, measure, results
from kit.variants import BASE, VARIANTS
from kit.worker import PROGRAMS

WORKER = Path(__file__).parent / "kit" / "worker.py"
RESAMPLES = 4000


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=30, help="blocks for each variant (default: 30)")
    p.add_argument("--programs", default=",".join(PROGRAMS).replace(", ", "-").replace(" ", "-"))
    p.add_argument("--variants", help="only those whose name contains one of these words, comma-separated")
    p.add_argument("--json", metavar="FILE", help="write all figures there; a folder takes one per Python")
    return p


class Worker:
    """A program in one variant, waiting for its turn."""

    def __init__(self, program: str, variant: str, size: str) -> None:
        self.variant, self.samples = variant, list[int]()
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("INSTRUMENT_")
        } | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER), program, variant, size],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip

    def answer(self) -> dict[str, object]:
        """What it says next."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found: dict[str, object] = json.loads(line) if line else {"failed": "it ended without an answer"}
        return found

    def block(self) -> int:
        """Let it do a block of work; the CPU time. RuntimeError when it failed."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        answer = self.answer()
        if not isinstance(took := answer.get("cpu_ns"), int):
            raise RuntimeError(str(answer.get("failed", answer)))
        return took

    def close(self) -> None:
        """End it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()


def interval(ratios: list[float], seed: int = 1) -> tuple[float, float]:
    """A 95 % bootstrap interval of the median."""
    rng = random.Random(seed)
    medians = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    return medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES) - 1]


def start(program: str, variants: list[str]) -> tuple[list[Worker], dict[str, str], int | None]:
    """The workers that came up, why the others did not, and how many annotations the bare program lacks."""
    workers, missing, removed, size = [], dict[str, str](), None, ""
    for variant in sorted(variants, key=lambda name: name != BASE):
        worker = Worker(program, variant, size)
        answer = worker.answer()
        if "failed" in answer:
            missing[variant] = str(answer["failed"])
            worker.close()
            continue
        if variant == BASE:  # it finds the size of the work, and all others do the same
            removed, size = int(str(answer["removed"])), str(answer["size"])
        workers.append(worker)
    return workers, missing, removed


def measured(program: str, variants: list[str], rounds: int) -> dict[str, object]:
    """Let all variants of a program take turns."""
    workers, missing, removed = start(program, variants)
    try:
        if not any(worker.variant == BASE for worker in workers):
            return {"failed": missing.get(BASE, "the bare program was left out"), "missing": missing}
        order, began = random.Random(0), time.monotonic()
        for number in range(rounds + 1):
            order.shuffle(workers)
            for worker in list(workers):
                try:
                    took = worker.block()
                except RuntimeError as error:
                    missing[worker.variant] = str(error)
                    workers.remove(worker)
                    continue
                if number:  # the first turn warms up
                    worker.samples.append(took)
    finally:
        for worker in workers:
            worker.close()
    bare = next(worker.samples for worker in workers if worker.variant == BASE)
    rows = {}
    for variant in variants:
        samples = next((worker.samples for worker in workers if worker.variant == variant), None)
        if samples is None:
            continue
        ratios = [took / base for took, base in zip(samples, bare, strict=True)]
        low, high = interval(ratios)
        rows[variant] = {
            "ms": statistics.median(samples) / 1e6,
            "ratio": statistics.median(ratios),
            "low": low,
            "high": high,
            "quick": statistics.quantiles(samples, n=10)[0] / statistics.quantiles(bare, n=10)[0],
        }
    return {"rows": rows, "missing": missing, "removed": removed, "seconds": time.monotonic() - began}


def show(program: str, result: dict[str, object]) -> None:
    print(f"\n{program}")
    rows, missing = result.get("rows", {}), result["missing"]
    assert isinstance(rows, dict)
    assert isinstance(missing, dict)
    for variant, row in rows.items():
        slower, low, high, quick = ((row[key] - 1) * 100 for key in ("ratio", "low", "high", "quick"))
        interval_text = f"[{low:+.2f}, {high:+.2f}]"
        print(
            f"  {variant:42}{row['ms']:9.1f} ms  {slower:+8.2f} %  {interval_text:20} quickest {quick:+.2f} %"
        )
    for variant, why in missing.items():
        print(f"  NOT MEASURED: {variant}: {why}")
    if "failed" in result:
        print(f"  NOT MEASURED: {result['failed']}")


def main() -> int:
    options = parser().parse_args()
    names = {name.replace(", ", "-").replace(" ", "-"): name for name in PROGRAMS}
    wanted = options.programs.split(",")
    if unknown := [name for name in wanted if name not in names]:
        parser().error(f"unknown program {', '.join(unknown)}; known: {', '.join(names)}")
    words = options.variants.split(",") if options.variants else [""]
    variants = [name for name in VARIANTS if name == BASE or any(word in name for word in words)]
    measure.pin()
    about = machine.describe()
    print(machine.one_line(about))
    programs = {}
    for name in wanted:
        programs[names[name]] = measured(names[name], variants, options.rounds)
        show(names[name], programs[names[name]])
    result: dict[str, object] = {
        "benchmark": "program", "machine": about, "rounds": options.rounds, "programs": programs
    }  # fmt: skip
    if options.json:
        results.save(result, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
