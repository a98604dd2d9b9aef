"""What machine and what software a figure comes from; nothing that names the machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import sysconfig
from pathlib import Path

PACKAGES = (
    "nvtx", "torch", "triton", "opentelemetry-sdk", "viztracer", "logfire", "sentry-sdk", "prometheus-client",
    "orjson", "numpy",
)  # fmt: skip


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def versions() -> dict[str, str]:
    """Versions of the peers that are installed."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def describe() -> dict[str, object]:
    """Processor, caches, kernel, clock, load, interpreter."""
    cpuinfo = _read("/proc/cpuinfo")
    fields = dict(re.findall(r"^([^\t:]+?)\s*: (.*)$", cpuinfo, re.MULTILINE))
    flags = fields.get("flags", "").split()
    caches = []
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (_read(str(folder / name)).strip() for name in ("level", "type", "size"))
        caches.append(f"L{level} {kind.lower()} {size}")
    memory = re.search(r"MemTotal:\s+(\d+) kB", _read("/proc/meminfo"))
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', _read("/etc/os-release"), re.MULTILINE))
    optimised = [
        flag
        for flag in ("--enable-optimizations", "--with-lto")
        if flag in (sysconfig.get_config_var("CONFIG_ARGS") or "")
    ]
    return {
        "processor": fields.get("model name", platform.processor() or platform.machine()),
        "family": f"family {fields.get('cpu family', '?')}, model {fields.get('model', '?')}",
        "mhz": fields.get("cpu MHz", "?"),
        "cpus": os.cpu_count(),
        "virtual": "hypervisor" in flags,
        "invariant_tsc": {"constant_tsc", "nonstop_tsc"} <= set(flags),
        "caches": caches,
        "memory_gib": round(int(memory[1]) / 2**20) if memory else None,
        "system": release.get("PRETTY_NAME", platform.system()),
        "kernel": re.split(r"[^0-9.]", platform.release())[0],
        "clocksource": _read("/sys/devices/system/clocksource/clocksource0/current_clocksource").strip(),
        "load": list(os.getloadavg()),
        "python": platform.python_version(),
        "python_build": " ".join(optimised) or "plain build, neither PGO nor LTO",
        "compiler": platform.python_compiler(),
        "versions": versions(),
    }


def one_line(machine: dict[str, object]) -> str:
    """The machine in a line, for the head of a report."""
    load = machine["load"]
    assert isinstance(load, list)
    virtual = "virtual " if machine["virtual"] else ""
    return (
        f"{machine['processor']}, {machine['cpus']} {virtual}CPUs, "
        f"clock source {machine['clocksource']}, load {load[0]:.1f}\n"
        f"CPython {machine['python']} ({machine['python_build']})"
    )
