"""The call tree: paths as nodes, sorted, and cut to the ones that matter."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from instrument.runs.stats import Stats

__all__ = ["SORTS", "Node", "build_tree", "label", "select", "walk"]

MAX_DEPTH: Final = 2000
"""Names of a path that get a node each; the recorder folds recursion long before."""

SORTS: Final[Mapping[str, Callable[["Node"], float]]] = {
    "total": lambda node: node.inclusive_ns,
    "self": lambda node: node.stats.self_ns,
    "count": lambda node: node.stats.count,
    "mean": lambda node: node.stats.mean_ns or 0,
    "p50": lambda node: node.stats.quantile_ns(0.5) or 0,
    "p99": lambda node: node.stats.quantile_ns(0.99) or 0,
    "max": lambda node: node.stats.max_ns or 0,
    "errors": lambda node: node.stats.errors,
}
"""What rows can be sorted by, largest first; ``name`` sorts by name."""


@dataclass(slots=True)
class Node:
    """A path and what happened along it."""

    path: str
    name: str
    depth: int
    stats: Stats
    children: list["Node"] = field(default_factory=list)
    groups: dict[str, Stats] = field(default_factory=dict)
    """The same executions by value of the attribute that was asked for."""
    inclusive_ns: float = 0
    """What it took with all below it; of a path where nothing ended, what is known."""
    hidden: int = 0
    """Paths below this one that were cut."""


def label(path: str) -> str:
    """The last name of a path, as the program spelled it."""
    return path.rpartition("/")[2].replace("%2F", "/").replace("%25", "%")


def build_tree(
    stats: Mapping[str, Stats],
    groups: Mapping[str, dict[str, Stats]] | None = None,
    *,
    sort: str = "total",
) -> list[Node]:
    """The roots of the tree of ``stats`` by path. A parent without numbers gets a node all the same."""
    nodes: dict[str, Node] = {}
    roots: list[Node] = []
    for path in sorted(stats):
        parts = path.split("/", MAX_DEPTH)
        known = len(parts)  # how much of the path has a node already
        while known and "/".join(parts[:known]) not in nodes:
            known -= 1
        for depth in range(known, len(parts)):
            here = "/".join(parts[: depth + 1])
            node = Node(here, label(here), depth, stats.get(here) or Stats())
            node.groups = dict((groups or {}).get(here, {}))
            nodes[here] = node
            (nodes["/".join(parts[:depth])].children if depth else roots).append(node)
    for node in reversed(nodes.values()):  # children were made after their parents
        below = sum(child.inclusive_ns for child in node.children)
        node.inclusive_ns = node.stats.sum_ns if node.stats.count else max(node.stats.open_ns, below)
    for siblings in [roots, *(node.children for node in nodes.values())]:
        _sort(siblings, sort)
    return roots


def select(roots: list[Node], top: int, *, sort: str = "total") -> list[Node]:
    """The tree with only the ``top`` largest paths and what leads to them; 0 keeps all."""
    everything = list(walk(roots))
    if not top or len(everything) <= top:
        return roots
    kept = list(everything)
    _sort(kept, sort)
    wanted = {node.path for node in kept[:top]}
    return _cut(roots, wanted)


def walk(roots: list[Node]) -> Iterator[Node]:
    """All nodes, parents before their children."""
    waiting = roots[::-1]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(node.children))


def _cut(roots: list[Node], wanted: set[str]) -> list[Node]:
    above = {path[:end] for path in wanted for end, letter in enumerate(path) if letter == "/"}
    keep = wanted | above
    for node in walk(roots):
        before = len(node.children)
        below = sum(1 for _ in walk([child for child in node.children if child.path not in keep]))
        node.children = [child for child in node.children if child.path in keep]
        node.hidden = below if before != len(node.children) else 0
    return [node for node in roots if node.path in keep]


def _sort(nodes: list[Node], sort: str) -> None:
    nodes.sort(key=lambda node: node.name)
    if sort != "name":
        nodes.sort(key=SORTS[sort], reverse=True)
