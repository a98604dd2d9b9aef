"""Import a package as if its annotations had never been written.

Decorators go, `with instrument.region(...)` becomes its body, and marks and metrics go with their arguments.
A handle (`with ... as r`) stays as a name for an object whose `seconds` is 0.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType

MODULE = "instrument"
SPANS = {"region", "step"}
CALLS = {"mark", "annotate", "count", "gauge", "observe"}


def _verb(node: ast.expr) -> str | None:
    """`region` for `instrument.region(...)` and `instrument.region`."""
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == MODULE:
        return node.attr
    return None


class Stripper(ast.NodeTransformer):
    """Removes annotations; counts them, so that a change of the source that hides them is noticed."""

    def __init__(self) -> None:
        self.removed = 0
        self.handles: set[str] = set()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        kept = [item for item in node.decorator_list if _verb(item) not in {"kernel", "region"}]
        self.removed += len(node.decorator_list) - len(kept)
        node.decorator_list = kept
        return self.generic_visit(node)

    def visit_With(self, node: ast.With) -> ast.AST | list[ast.stmt]:
        spans = [item for item in node.items if _verb(item.context_expr) in SPANS]
        self.removed += len(spans)
        handles: list[ast.stmt] = []
        for item in spans:
            if isinstance(item.optional_vars, ast.Name):
                self.handles.add(item.optional_vars.id)
                value = ast.Name("_instrument_nothing", ast.Load())
                handles.append(ast.Assign([item.optional_vars], value))
        self.generic_visit(node)
        node.items = [item for item in node.items if item not in spans]
        return handles + ([node] if node.items else node.body)

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        call = node.value
        of_handle = (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and call.func.attr == "set"
            and isinstance(call.func.value, ast.Name)
            and call.func.value.id in self.handles
        )
        if of_handle or _verb(call) in CALLS:
            self.removed += 1
            return ast.Pass()
        return node


class Nothing:
    """What a handle is without annotations."""

    seconds = 0.0
    recording = False


class _Loader(SourceFileLoader):
    def source_to_code(self, data: bytes, path: str, *, _optimize: int = -1) -> CodeType:  # type: ignore[override]
        stripper = Stripper()
        tree = ast.fix_missing_locations(stripper.visit(ast.parse(data, path)))
        totals[path] = stripper.removed
        return compile(tree, path, "exec", dont_inherit=True, optimize=_optimize)

    def get_code(self, fullname: str) -> CodeType:
        # Never from, nor into, the cache of compiled files: that belongs to the program as it is.
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["_instrument_nothing"] = Nothing()
        super().exec_module(module)


class _Finder(MetaPathFinder):
    def __init__(self, packages: Sequence[str]) -> None:
        self.packages = packages

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.split(".")[0] not in self.packages:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


totals: dict[str, int] = {}
"""Annotations removed, by file."""


def strip(*packages: str) -> None:
    """From now on, import these packages without their annotations."""
    sys.meta_path.insert(0, _Finder(packages))
