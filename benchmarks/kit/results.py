"""Where figures go: JSON files that benchmarks/tables.py reads."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def save(result: dict[str, object], target: str) -> Path:
    """Write a benchmark's result; in a folder (one that is there, or a name ending in /) it names itself."""
    path = Path(target)
    if target.endswith("/") or path.is_dir():
        path /= f"{result['benchmark']}-{sys.version_info.major}.{sys.version_info.minor}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
    return path
