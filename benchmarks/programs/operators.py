"""A loop of small torch operators, each marked: the hardest realistic case, eager code on tiny tensors."""

from time import perf_counter_ns

import torch

import instrument

MICROSECONDS = 5.0
"""How long one operator should take, so that the loop is the same work on every machine."""


@instrument.kernel
def multiply(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.mm(x, weight)


def run(pairs: int, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Twice `pairs` operators: half of them marked as kernels, half as regions."""
    for _ in range(pairs):
        y = multiply(x, weight)
        with instrument.region("second"):
            y = torch.mm(y, weight)
    return y


def tensors(width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """What is multiplied."""
    return torch.rand(16, width), torch.rand(width, width) / width


def width() -> int:
    """The width at which one multiplication takes about MICROSECONDS, with nothing marked."""
    for wide in range(16, 513, 8):
        x, weight = tensors(wide)
        times = []
        for _ in range(25):
            start = perf_counter_ns()
            for _ in range(20):
                torch.mm(x, weight)
            times.append((perf_counter_ns() - start) / 20_000)
        if sorted(times)[len(times) // 4] >= MICROSECONDS:
            break
    return wide
