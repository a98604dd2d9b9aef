"""Put measured figures into a document: `python benchmarks/tables.py RESULTS DOCUMENT`.

RESULTS is a folder of what the benchmarks wrote with --json. In DOCUMENT, whatever stands between
`<!-- table NAME -->` and `<!-- end -->` becomes the table of that name. A table without figures says so.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Result = dict[str, Any]
Results = dict[str, dict[str, Result]]
"""By benchmark, then by Python version in ascending order."""

MISSING = "*Not measured yet.*"


def load(folder: Path) -> Results:
    """All results of a folder."""
    found: Results = {}
    for path in sorted(folder.glob("*.json")):
        result = json.loads(path.read_text())
        version = ".".join(result["machine"]["python"].split(".")[:2])
        found.setdefault(result["benchmark"], {})[version] = result
    for name, versions in found.items():
        found[name] = dict(sorted(versions.items(), key=lambda item: [int(n) for n in item[0].split(".")]))
    return found


def markdown(head: list[str], rows: Iterable[list[str]]) -> str:
    """A table: text on the left, figures on the right."""
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *rows))


def ns(value: float | None) -> str:
    """A time that is read, not computed with."""
    if value is None:
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) < 100 else f"{value:.0f}"


# ---------------------------------------------------------------- where it was measured


def machines(results: Results) -> str:
    """The machine and the interpreters, from any result."""
    every = [result["machine"] for versions in results.values() for result in versions.values()]
    if not every:
        return MISSING
    one = every[0]
    memory = f"{one['memory_gib']} GiB memory" if one["memory_gib"] else "memory unknown"
    pythons = dict.fromkeys(f"{m['python']} ({m['python_build']}, {m['compiler']})" for m in every)
    packages: dict[str, str] = {}
    for machine in every:
        packages |= machine["versions"]
    lines = [
        f"* {one['processor']} ({one['family']}, {one['mhz']} MHz), {one['cpus']} CPUs, {memory}"
        f"{', a virtual machine' if one['virtual'] else ''}",
        f"* caches of one CPU: {', '.join(one['caches']) or 'unknown'}",
        f"* {one['system']}, Linux {one['kernel']}, clock source `{one['clocksource']}`"
        f"{', invariant time-stamp counter' if one['invariant_tsc'] else ''}",
        f"* load of the last minute when the runs began: "
        f"{', '.join(sorted({format(machine['load'][0], '.1f') for machine in every}))}",
        "* CPython " + "; ".join(pythons),
        "* " + ", ".join(f"{name} {version}" for name, version in sorted(packages.items())),
    ]
    return "\n".join(lines)


# ---------------------------------------------------------------- overhead


def bars(results: Results) -> str:
    """Every bar, met or missed, by version."""
    versions = results.get("overhead", {})
    if not versions:
        return MISSING
    labels = dict.fromkeys(bar["what"] for result in versions.values() for bar in result["bars"])
    rows = []
    for label in labels:
        cells, limits = [], ["", ""]
        for result in versions.values():
            bar = next((bar for bar in result["bars"] if bar["what"] == label), None)
            if bar is None:
                cells.append("-")
                continue
            limits = [f"{bar['relation']} {bar['bar']:g}", f"{bar['stretch']:g}"]
            verdict = bar["verdict"].replace("MISSED", "**missed**")
            cells.append("not measured" if bar["value"] is None else f"{bar['value']:.3g} {verdict}")
        rows.append([label, *limits, *cells])
    return markdown(["ratio within one run", "bar", "stretch", *versions], rows)


def costs(group: str) -> Callable[[Results], str]:
    """ns of a group of cases, recording and off, by version."""

    def table(results: Results) -> str:
        versions = results.get("overhead", {})
        if not versions:
            return MISSING
        names = dict.fromkeys(
            name for result in versions.values() for name, where in result["groups"].items() if where == group
        )
        has_off = any(name in result["off"] for name in names for result in versions.values())
        shown = (*(["on"]), *(["off"] if has_off and group == "ours" else []))
        head = ["ns"]
        for version in versions:
            head.append(f"{version} recording" if group == "ours" else version)
            if "off" in shown:
                head.append(f"{version} off")
        rows = []
        for name in names:
            row = [name]
            for result in versions.values():
                row += [ns(result[state].get(name, {}).get("median")) for state in shown]
            rows.append(row)
        return markdown(head, rows)

    return table


def peers(results: Results) -> str:
    """ns of the peers, and how often ours fits into it."""
    versions = results.get("overhead", {})
    if not versions:
        return MISSING
    names = dict.fromkeys(
        name for result in versions.values() for name, where in result["groups"].items() if where == "peers"
    )
    head = ["", *(part for version in versions for part in (f"{version}, ns", "x ours"))]
    rows = []
    for name in names:
        row = [name]
        ours = (
            "kernel, added"
            if name.endswith("added")
            else "region, 2 attributes"
            if "2 attr" in name
            else "region"
        )
        for result in versions.values():
            figure, mine = result["on"].get(name), result["on"][ours]["median"]
            row += [ns(figure["median"]), f"{figure['median'] / mine:.1f}"] if figure else ["-", "-"]
        rows.append(row)
    said = [
        f"Not measured on {version}: {peer} ({why})."
        for version, result in versions.items()
        for peer, why in result["missing"].items()
    ]
    return "\n".join([markdown(head, rows), *(["", *said] if said else [])])


def sizes(results: Results) -> str:
    """Bytes of a span, and the writer."""
    versions = results.get("overhead", {})
    if not versions:
        return MISSING
    rows = []
    for kind, unit in (("bytes", "bytes in memory"), ("writer", "ns a line of the run file")):
        names = dict.fromkeys(name for result in versions.values() for name in result[kind])
        rows += [
            [f"{name}, {unit}", *(ns(result[kind].get(name)) for result in versions.values())]
            for name in names
        ]
    return markdown(["", *versions], rows)


def split(results: Results) -> str:
    """What a recorded region consists of, by subtraction."""
    versions = results.get("overhead", {})
    if not versions:
        return MISSING
    parts: list[tuple[str, Callable[[dict[str, float]], float]]] = [
        ("`with region(\"x\")`, recording", lambda on: on["region"]),
        ("the `with` statement, on two builtins", lambda on: on["with, unbound builtins"]),
        ("calling `region(\"x\")`, finding the name", lambda on: on["region"] - on["region, kept object"]),
        ("recording: the rest", lambda on: on["region, kept object"] - on["with, unbound builtins"]),
        ("for scale: two clock reads alone, in C", lambda on: on["clock, read twice in C"]),
        ("for scale: two clock reads, a frame, an event, in C", lambda on: on["C limit"]),
    ]  # fmt: skip
    rows = []
    for label, part in parts:
        medians = [{n: f["median"] for n, f in result["on"].items()} for result in versions.values()]
        rows.append([label, *(ns(part(on)) for on in medians)])
    return markdown(["ns", *versions], rows)


# ---------------------------------------------------------------- instructions, programs, growth

CONCERNS = {
    "region.c": "entry points, name lookup",
    "region.h": "entry points, name lookup",
    "kernel.c": "entry points, name lookup",
    "common.h": "entry points, name lookup",
    "span.h": "frame and event",
    "paths.h": "path",
    "clock.h": "clock",
    "ia32intrin.h": "clock",
    "totals.h": "totals and histogram",
    "attributes.c": "attributes",
}


def instructions(results: Results) -> str:
    """Instructions by concern."""
    versions = results.get("instructions", {})
    if not versions:
        return MISSING
    cases = dict.fromkeys(case for result in versions.values() for case in result["cases"])
    concerns = list(dict.fromkeys([*CONCERNS.values(), "the recorder's other files"]))
    columns: list[tuple[str, dict[str, Any]]] = [
        (f"{case}, {version}", result["cases"][case])
        for case in cases
        for version, result in versions.items()
        if case in result["cases"]
    ]
    sums = []
    for _, case in columns:
        by_concern = dict.fromkeys(concerns, 0.0)
        for place, each in case["lines"].items():
            by_concern[CONCERNS.get(place.split(":")[0], concerns[-1])] += each
        by_concern["interpreter and C library"] = case["added"] - case["recorder"]
        by_concern["together"] = case["added"]
        sums.append(by_concern)
    rows = [[concern, *(f"{s.get(concern, 0):.0f}" for s in sums)] for concern in sums[0]] if sums else []
    return markdown(["instructions", *(label for label, _ in columns)], rows)


def programs(results: Results) -> str:
    """Slowdown of whole programs."""
    versions = results.get("program", {})
    if not versions:
        return MISSING
    pieces = []
    for version, result in versions.items():
        for name, program in result["programs"].items():
            missing = dict(program["missing"])
            rows = [
                [
                    variant, f"{row['ms']:.1f}", f"{(row['ratio'] - 1) * 100:+.2f}",
                    f"{(row['low'] - 1) * 100:+.2f} … {(row['high'] - 1) * 100:+.2f}",
                    f"{(row['quick'] - 1) * 100:+.2f}",
                ]
                for variant, row in program.get("rows", {}).items()
            ]  # fmt: skip
            if not rows:
                reasons = "; ".join(dict.fromkeys(missing.values()))
                pieces.append(f"{name}, {version}: not measured ({reasons or program.get('failed')}).")
                continue
            head = [
                f"{name}, {version}, {result['rounds']} turns",
                "ms CPU",
                "slower by %",
                "95 % interval",
                "quickest blocks, %",
            ]
            pieces.append(markdown(head, rows))
            pieces += [f"Not measured: {variant} ({why})." for variant, why in missing.items()]
    return "\n\n".join(pieces)


def growth(curve: str, columns: dict[str, tuple[str, str]]) -> Callable[[Results], str]:
    """A curve, one version under the other; `columns` maps figures to a heading and a format."""

    def table(results: Results) -> str:
        versions = results.get("scale", {})
        rows = []
        for version, result in versions.items():
            for size, point in result["curves"].get(curve, {}).items():
                label = f"{int(size):,}" if len(versions) == 1 else f"{int(size):,} ({version})"
                if "failed" in point:
                    rows.append([label, str(point["failed"]), *[""] * (len(columns) - 1)])
                    continue
                rows.append([label, *(format(point.get(key, 0), form) for key, (_, form) in columns.items())])
        return markdown([curve, *(head for head, _ in columns.values())], rows) if rows else MISSING

    return table


EACH = {
    "cpu_ns_per_span": ("ns CPU a span", ",.0f"), "recorder_mib": ("MiB of the recorder", ".2f"),
    "paths": ("paths", ",.0f"),
}  # fmt: skip
RUN = {
    "wall_s": ("s", ",.2f"), "cpu_ns_per_span": ("ns CPU a span, all threads", ",.0f"),
    "memory_mib": ("MiB more than before", ",.1f"), "file_mib": ("MiB of file", ",.1f"),
    "bytes_per_span": ("bytes a span", ",.0f"), "lost_by_recorder": ("lost by the recorder", ",.0f"),
    "lost_by_exporter": ("by the exporter", ",.0f"),
}  # fmt: skip
REPORT = {
    "wall_s": ("s", ",.2f"), "cpu_s": ("s CPU", ",.2f"), "memory_mib": ("MiB, whole process", ",.0f"),
    "file_mib": ("MiB of file", ",.1f"),
}  # fmt: skip

TABLES: dict[str, Callable[[Results], str]] = {
    "machine": machines,
    "bars": bars,
    "yardsticks": costs("yardsticks"),
    "ours": costs("ours"),
    "peers": peers,
    "sizes": sizes,
    "split": split,
    "instructions": instructions,
    "programs": programs,
    "spans": growth("spans", RUN),
    "burst": growth("burst", RUN),
    "names": growth("names", EACH),
    "paths": growth("paths", EACH),
    "depth": growth("depth", EACH),
    "threads": growth("threads", EACH),
    "report": growth("report", REPORT),
}


def fill(text: str, results: Results) -> str:
    """The document with its tables. KeyError for a table that does not exist."""

    def table(match: re.Match[str]) -> str:
        return f"<!-- table {match[1]} -->\n{TABLES[match[1]](results)}\n<!-- end -->"

    return re.sub(r"<!-- table ([\w-]+) -->\n.*?<!-- end -->", table, text, flags=re.DOTALL)


def main(argv: list[str]) -> int:
    if len(argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    folder, document = map(Path, argv)
    results = load(folder)
    if not results:
        print(f"tables: no results in {folder}; `make bench` writes them", file=sys.stderr)
        return 2
    document.write_text(fill(document.read_text(), results))
    found = ", ".join(f"{name} ({', '.join(versions)})" for name, versions in results.items())
    print(f"{document}: {found}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
