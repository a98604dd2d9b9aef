"""One program in one variant, in a process of its own; started by benchmarks/program.py.

Reads a line from standard input for each block of work to do, and answers with the CPU time that it took, of
all threads, in ns.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "examples")]

from kit.variants import BASE, VARIANTS  # noqa: E402

Block = Callable[[], object]


def transformer(backend: str) -> Block:
    """One batch of the demo's generation at its default size: a prefill and 63 decode steps."""
    import importlib

    import numpy as np
    from transformer import data, weights
    from transformer.generate import Sampling, generate

    ops = importlib.import_module(f"transformer.{backend}_ops")
    corpus = data.load(data.documents())
    config = weights.Config(256, 4, 8, 192)
    model = weights.initial(config, seed=0).map(ops.from_numpy)
    prompts = data.passages(corpus, batch=8, longest=64, rng=np.random.default_rng(1))
    sampling = Sampling(0.7, 12, ignore_end=True)

    def block() -> object:
        rng = np.random.default_rng(2)
        return generate(ops, config, model, prompts, new_tokens=64, sampling=sampling, rng=rng)

    return block


def operators(size: str) -> tuple[Block, str]:
    """The loop of 5 us operators, of a width that is given or found."""
    import torch

    from programs import operators as program

    torch.set_num_threads(1)
    size = size or str(program.width())
    x, weight = program.tensors(int(size))
    return lambda: program.run(3_000, x, weight), size


PROGRAMS: dict[str, Callable[[str], tuple[Block, str]]] = {
    "transformer, numpy": lambda size: (transformer("numpy"), size),
    "transformer, torch": lambda size: (transformer("torch"), size),
    "5 us torch operators": operators,
}


def main(program: str, variant: str, size: str) -> None:
    answers = sys.stdout
    sys.stdout = sys.stderr  # whatever a program or a peer prints is not an answer
    try:
        hooks = VARIANTS[variant]()
        block, size = PROGRAMS[program](size)
        block()
    except Exception as error:
        print(json.dumps({"failed": f"{type(error).__name__}: {error}"}), file=answers, flush=True)
        return
    removed = None
    if variant == BASE:
        from kit import strip

        removed = sum(strip.totals.values())
    print(json.dumps({"ready": True, "removed": removed, "size": size}), file=answers, flush=True)
    gc.collect()
    gc.freeze()
    for _ in sys.stdin:
        hooks.begin()
        start = time.process_time_ns()
        block()
        hooks.finish()
        took = time.process_time_ns() - start
        hooks.end()
        print(json.dumps({"cpu_ns": took}), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
