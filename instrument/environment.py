"""Who records: what a run file says about its process."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from instrument.config import Options
from instrument.recorder import _core
from instrument.records import Resource

__all__ = ["describe_process"]

_NOTED: Final = ("numpy", "torch", "tensorflow", "jax", "triton", "cupy", "vllm", "transformers")
"""Packages whose version matters to whoever reads a run, noted if the program has loaded them."""


def describe_process(options: Options, run_id: str, parent_pid: int | None = None) -> Resource:
    """The resource of this process, with a fresh pair of clock readings. Reads a few files, about 1 ms."""
    _, monotonic_ns, wall_ns = _core.tick()
    return Resource(
        run_id=run_id,
        rank=options.rank,
        pid=os.getpid(),
        host=os.uname().nodename,
        argv=tuple(str(word) for word in getattr(sys, "argv", ())),
        versions=_versions(),
        git_commit=_git_commit(_folder()),
        labels=options.labels,
        clock={"monotonic_ns": monotonic_ns, "wall_ns": wall_ns, "source": _core.clock_source()},
        config=options.as_dict(),
        collectors=(),
        parent_pid=parent_pid,
    )


def _versions() -> Mapping[str, str]:
    from instrument import __version__

    versions: dict[str, Any] = {"instrument": __version__, "python": sys.version.split()[0]}
    versions["implementation"] = sys.implementation.name
    for name in _NOTED:
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            versions[name] = str(version)
    return versions


def _folder() -> Path:
    try:
        return Path.cwd()
    except OSError:  # it was removed
        return Path(os.sep)


def _git_commit(folder: Path) -> str | None:
    """The commit that is checked out in or above a folder, if any; read without running git."""
    try:
        for above in (folder, *folder.parents):
            git = above / ".git"
            if git.is_file():  # a worktree or submodule: "gitdir: PATH"
                git = above / git.read_text().removeprefix("gitdir:").strip()
            if git.is_dir():
                return _head(git)
    except (OSError, ValueError):
        pass
    return None


def _head(git: Path) -> str | None:
    head = (git / "HEAD").read_text().strip()
    if not head.startswith("ref:"):
        return head
    ref = head.removeprefix("ref:").strip()
    common = git / "commondir"
    base = git / common.read_text().strip() if common.is_file() else git
    for root in (git, base):
        if (root / ref).is_file():
            return (root / ref).read_text().strip()
    packed = base / "packed-refs"
    for line in packed.read_text().splitlines() if packed.is_file() else ():
        commit, _, name = line.partition(" ")
        if name == ref:
            return commit
    return None
