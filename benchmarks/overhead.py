"""What an annotation costs, beside its peers: `python benchmarks/overhead.py [--json FILE]`, or `make bench`.

How it is measured is in kit/measure.py and docs/overhead.md. Peers that are not here are named at the end,
with the reason. Exit code 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys

from instrument.recorder import _core
from kit import bars, limits, machine, measure, ours, peers, results
from kit.measure import Case, Figure

BLOCKS = 3  # how often recording is switched off and on: both meet the machine's good and bad minutes


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=45, help="windows for each case (default: 45)")
    p.add_argument("--peers", metavar="NAME,…", help=f"only these, or none: {', '.join(peers.PEERS)}")
    p.add_argument(
        "--json", metavar="FILE", help="write all figures there as well; a folder takes one per Python"
    )
    return p


def run(found: dict[str, list[Case]], rounds: int) -> tuple[dict[str, Figure], dict[str, Figure]]:
    """Figures with recording off (ours and the yardsticks), and on (all)."""
    off = found["off yardsticks"] + found["off ours"]
    on = found["yardsticks"] + found["ours"] + found["peers"]
    for _ in range(BLOCKS):
        measure.sample_rounds(off, max(3, rounds // BLOCKS))
        with ours.recording():
            measure.sample_rounds(on, max(3, rounds // BLOCKS), between=ours.drop_records)
    return measure.figures(off), measure.figures(on)


def cases(wanted: list[str] | None) -> tuple[dict[str, list[Case]], dict[str, str]]:
    """All cases, warmed up, and why peers are missing. Ours come twice: recorded and off."""
    built = limits.build()
    found: dict[str, list[Case]] = {}
    found["peers"], missing = peers.collect(wanted)
    for prefix in ("off ", ""):
        found[prefix + "yardsticks"] = ours.yardsticks(built)
        found[prefix + "ours"] = ours.marks(built)
    for case in found["off yardsticks"] + found["off ours"]:
        case.prepare()
    with ours.recording():
        for case in found["yardsticks"] + found["ours"]:
            case.prepare()
    return found, missing


def kernel_alone(rounds: int) -> float:
    """What a kernel adds before torch is loaded, which makes wrapped calls on 3.11 dearer."""
    with ours.recording():
        found = ours.kernel_cases()
        for case in found:
            case.prepare()
        measure.sample_rounds(found, rounds, between=ours.drop_records)
    return measure.figures(found)["kernel, added"].median


def disabled_kernel_is_the_function() -> bool:
    """Whether `INSTRUMENT_DISABLED=1` leaves functions as they are; it is read at import."""
    code = "from instrument import kernel\ndef f(): pass\nassert kernel(f) is f and kernel(flops=1)(f) is f"
    environment = os.environ | {"INSTRUMENT_DISABLED": "1"}
    return subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0


def cell(figure: Figure | None) -> str:
    if figure is None:
        return " " * 27
    return f"{figure.median:9.1f} " + f"[{figure.low:.1f}, {figure.high:.1f}]".ljust(17)


def print_table(found: dict[str, list[Case]], off: dict[str, Figure], on: dict[str, Figure]) -> None:
    region = on["region"].median
    for title, group in (("Yardsticks", "yardsticks"), ("Ours", "ours"), ("Peers", "peers")):
        print(f"{title:56}{'recording':>10}{'':17}{'off':>10}{'':17}{'x our region':>13}")
        for case in found[group]:
            times = on[case.name].median / region
            print(f"  {case.name:54}{cell(on[case.name])}{cell(off.get(case.name))}{times:12.2f}")
        print()


def print_warnings(found: dict[str, list[Case]], missing: dict[str, str]) -> None:
    disturbed = [
        case.name for group in found.values() for case in group if case.disturbed > len(case.samples) / 5
    ]
    if disturbed:
        print(f"\nBUSY MACHINE: over a fifth of the windows stayed disturbed for {', '.join(disturbed)}")
    for peer, why in missing.items():
        print(f"\nNOT MEASURED: {peer}: {why}")


def main() -> int:
    options = parser().parse_args()
    wanted = None if options.peers is None else [n for n in options.peers.split(",") if n not in ("", "none")]
    if unknown := set(wanted or ()) - set(peers.PEERS):
        parser().error(f"unknown peer {', '.join(sorted(unknown))}; known: {', '.join(peers.PEERS)}")
    measure.pin()
    about = machine.describe()
    alone = kernel_alone(2 * options.rounds)
    found, missing = cases(wanted)
    gc.collect()
    gc.freeze()
    gc.disable()  # as timeit does; it favours the peers, which make objects
    off, on = run(found, options.rounds)
    for group, members in found.items():
        missing |= {case.name: f"failed: {case.failed}" for case in members if case.failed is not None}
        found[group] = [case for case in members if case.failed is None]
    sizes, writer = bars.event_sizes(), bars.writer_costs()
    rows = bars.evaluate(alone, off, on, sizes, writer, missing)
    groups = {case.name: group for group in ("yardsticks", "ours", "peers") for case in found[group]}
    result: dict[str, object] = {
        "benchmark": "overhead",
        "machine": about,
        "rounds": options.rounds,
        "clock": _core.clock_source(),
        "hooks_in_place": _core.HOOKS_IN_PLACE,
        "groups": groups,
        "off": {name: figure.as_dict() for name, figure in off.items()},
        "on": {name: figure.as_dict() for name, figure in on.items()},
        "kernel_before_torch": alone,
        "bytes": sizes,
        "writer": writer,
        "disabled_is_identity": disabled_kernel_is_the_function(),
        "missing": missing,
        "bars": [row.as_dict() for row in rows],
    }
    if options.json:
        results.save(result, options.json)
    print(machine.one_line(about))
    print(f"ns per call, median [quartiles]; the recorder's clock is {_core.clock_source()}\n")
    print_table(found, off, on)
    print("Bytes per span: " + ", ".join(f"{name} {size:.1f}" for name, size in sizes.items()))
    print("Run file, ns per line: " + ", ".join(f"{name} {cost:.0f}" for name, cost in writer.items()))
    same = "is the function itself" if result["disabled_is_identity"] else "is NOT the function itself"
    print(f"With INSTRUMENT_DISABLED=1 a kernel {same}.\n")
    for row in rows:
        print(row.line())
    print_warnings(found, missing)
    return 1 if any(row.verdict == "MISSED" for row in rows) else 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # past the peers' exit handlers, some of which print pages
