"""What the program says at its end, in words and one small table."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from transformer.flops import Expected
from transformer.generate import Generated


@dataclass(slots=True)
class Operator:
    """Everything one operator did, wherever it was called."""

    calls: int = 0
    flops: int = 0
    bytes: int = 0
    seconds: float = 0.0


def by_operator(paths: Sequence[dict[str, Any]]) -> dict[str, Operator]:
    """The kernels of a report's paths, added up by name, the longest first."""
    found: dict[str, Operator] = {}
    for path in paths:
        if path["kind"] == "kernel":
            operator = found.setdefault(path["name"], Operator())
            operator.calls += path["count"]
            operator.seconds += path["total_ns"] / 1e9
            operator.flops += int(path["measures"].get("flops", 0))
            operator.bytes += int(path["measures"].get("bytes", 0))
    return dict(sorted(found.items(), key=lambda item: -item[1].seconds))


def operators(paths: Sequence[dict[str, Any]], expected: Expected) -> None:
    """Print calls, time and speed of every operator, and whether they did what the architecture says."""
    found = by_operator(paths)
    if not found:
        print("nothing was recorded")
        return
    print(f"{'operator':14} {'calls':>8} {'seconds':>9} {'GFLOP':>9} {'GFLOP/s':>9} {'GB/s':>7}")
    for name, operator in found.items():
        seconds = max(operator.seconds, 1e-9)
        giga, moved = operator.flops / 1e9, operator.bytes / 1e9
        print(
            f"{name:14} {operator.calls:8,} {seconds:9.3f} {_cell(giga, 9)} {_cell(giga / seconds, 9)} "
            f"{_cell(moved / seconds, 7)}"
        )
    differences = []
    for name in found.keys() | expected.calls.keys():
        operator, calls, work = found.get(name, Operator()), expected.calls[name], expected.flops[name]
        if (operator.calls, operator.flops) != (calls, work):
            what = f"{operator.calls:,} calls and {operator.flops:,} FLOPs"
            differences.append(f"{name}: {what}, not {calls:,} and {work:,}")
    print(
        "\n".join(sorted(differences))
        or f"all {expected.calls.total():,} calls and {expected.flops.total():,} FLOPs are those that the "
        "architecture's formula gives"
    )


def _cell(value: float, width: int) -> str:
    return f"{value:{width}.2f}" if value else " " * width


def speeds(results: Sequence[Generated]) -> None:
    """Tokens per second of both phases, by the regions' own clocks; they stand while nothing records."""
    _speed("prefill", sum(r.prompt_tokens for r in results), sum(r.prefill_seconds for r in results))
    _speed("decode", sum(r.decoded for r in results), sum(r.decode_seconds for r in results))


def _speed(phase: str, tokens: int, seconds: float) -> None:
    rate = f"in {seconds:6.3f} s  {tokens / seconds:9,.0f} tokens/s" if seconds else "(not timed)"
    print(f"{phase:7} {tokens:7,} tokens {rate}")
