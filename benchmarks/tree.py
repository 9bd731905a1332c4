"""What two commits look like: modules, longest functions and signatures, weight, import cycles, files per addition."""

from __future__ import annotations

import ast
import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.commits import digest, trees

Function = ast.FunctionDef | ast.AsyncFunctionDef
KINDS: Mapping[str, str] = {
    "strategy": "AFL",
    "selection": "loss_proportional",
    "client update": "scaffold",
    "combine rule": "krum",
    "partition": "dirichlet",
    "data set": "mnist",
    "measure": "client_accuracy_spread",
    "fault": "sign_flip",
}
"""For each kind of addition, an object that both commits have: how many files of the package name it in their code?"""
SHOWN = 15
"""How many of the longest functions and signatures are stored."""


def measure(commit: str) -> dict[str, Any]:
    """The figures of one commit."""
    with trees(commit) as (folder,):
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=folder, check=True, capture_output=True, text=True)
        weights = {name: (folder / name).lstat().st_size for name in listed.stdout.split("\0") if name}
        root = folder / "src" / "fedalpha"
        shipped = {path: ast.parse(path.read_text()) for path in sorted(root.rglob("*.py"))}
    # The benchmarks were a part of the package once; the figures are those of the rest of it.
    parsed = {path: tree for path, tree in shipped.items() if path.relative_to(root).parts[0] != "bench"}
    lines = {str(path.relative_to(root)): tree.body[-1].end_lineno or 0 for path, tree in parsed.items() if tree.body}
    found = {f"{path.relative_to(root)}: {name}": node for path, tree in parsed.items() for name, node in _named(tree)}
    graph = _graph(root, parsed)
    return {
        "modules": len(parsed),
        "lines": sum(lines.values()),
        "modules at the root": sum(path.parent == root and path.stem[:2] != "__" for path in parsed),
        "longest modules": _largest(lines),
        "longest functions": _largest({name: _length(node) for name, node in found.items()}),
        "longest signatures": _largest({name: _parameters(node) for name, node in found.items()}),
        "modules in import cycles": sum(len(part) for part in _cycles(graph)),
        "tracked MB": round(sum(weights.values()) / 1e6, 1),
        "docs/results MB": round(
            sum(size for name, size in weights.items() if name.startswith("docs/results")) / 1e6, 1
        ),
        "lines of benchmarks": sum(
            tree.body[-1].end_lineno or 0 for path, tree in shipped.items() if path not in parsed and tree.body
        ),
        "files that name": {kind: sum(_names(tree, word) for tree in parsed.values()) for kind, word in KINDS.items()},
    }


def _named(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, Function]]:
    """Every function by its name, with the names of the classes around it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function):
            yield f"{prefix}{node.name}", node
        if isinstance(node, Function | ast.ClassDef):
            yield from _named(node, f"{prefix}{node.name}.")


def _length(node: Function) -> int:
    """The lines of a function without its docstring."""
    whole = (node.end_lineno or 0) - node.lineno + 1
    if ast.get_docstring(node, clean=False) is None:
        return whole
    return whole - ((node.body[0].end_lineno or 0) - node.body[0].lineno + 1)


def _parameters(node: Function) -> int:
    """How many arguments a function takes, ``self`` not counted."""
    given = node.args.posonlyargs + node.args.args
    own = bool(given) and given[0].arg in ("self", "cls")
    return len(given) - own + len(node.args.kwonlyargs) + bool(node.args.vararg) + bool(node.args.kwarg)


def _largest(values: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(values.items(), key=lambda item: (-item[1], item[0]))[:SHOWN])


def _graph(root: Path, parsed: Mapping[Path, ast.Module]) -> dict[str, set[str]]:
    """Which module imports which, imports inside functions and for types included."""
    known = {".".join(path.relative_to(root.parent).with_suffix("").parts).removesuffix(".__init__") for path in parsed}
    graph: dict[str, set[str]] = {}
    for path, tree in parsed.items():
        own = ".".join(path.relative_to(root.parent).with_suffix("").parts).removesuffix(".__init__")
        graph[own] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                graph[own] |= {alias.name for alias in node.names} & known
            elif isinstance(node, ast.ImportFrom) and node.module:
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                graph[own] |= (inner & known) | ({node.module} & known if inner - known else set())
        graph[own].discard(own)
    return graph


def _cycles(graph: dict[str, set[str]]) -> list[set[str]]:
    """The groups of modules of which each imports, directly or not, each other one."""
    reach = {name: _reached(graph, name) for name in graph}
    groups = {frozenset(other for other in reach[name] if name in reach[other]) for name in graph}
    return [set(group) for group in groups if group]


def _reached(graph: dict[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    left = list(graph[start])
    while left:
        if (name := left.pop()) not in found:
            found.add(name)
            left += graph[name]
    return found


def _names(tree: ast.Module, word: str) -> bool:
    """Whether a module names an object in its code: by its identifier, or by a text that is the name alone."""
    for node in ast.walk(tree):
        identifier = getattr(node, "id", None) or getattr(node, "name", None) or getattr(node, "arg", None)
        if word in (identifier, getattr(node, "attr", None), getattr(node, "value", None)):
            return True
    return False


def table(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The figures of two commits as Markdown."""

    def top(found: Mapping[str, Any], key: str) -> str:
        return "; ".join(f"{value} (`{name}`)" for name, value in list(found[key].items())[:3])

    rows = [
        ("modules, lines", *(f"{found['modules']}, {found['lines']:,}" for found in (before, after))),
        ("modules at the root of the package", *(found["modules at the root"] for found in (before, after))),
        (
            "lines of benchmarks in the package",
            *(found["lines of benchmarks"] for found in (before, after)),
        ),
        ("modules in import cycles", *(found["modules in import cycles"] for found in (before, after))),
        ("longest modules (lines)", top(before, "longest modules"), top(after, "longest modules")),
        ("longest functions (lines)", top(before, "longest functions"), top(after, "longest functions")),
        ("longest signatures (arguments)", top(before, "longest signatures"), top(after, "longest signatures")),
        ("tracked files, MB", *(found["tracked MB"] for found in (before, after))),
        ("`docs/results`, MB", *(found["docs/results MB"] for found in (before, after))),
    ]
    rows += [
        (f"files that name the {kind} `{word}`", *(found["files that name"][kind] for found in (before, after)))
        for kind, word in KINDS.items()
    ]
    head = f"| | `{before['commit'][:7]}` | `{after['commit'][:7]}` |\n|---|---|---|\n"
    return head + "".join(f"| {' | '.join(map(str, row))} |\n" for row in rows)


def compare(before: str, after: str, out: Path) -> str:
    """Measure both commits, write ``tree.json`` and ``table.md`` to ``out``, and return the table."""
    found = [{"commit": digest(commit), **measure(commit)} for commit in (before, after)]
    out.mkdir(parents=True, exist_ok=True)
    (out / "tree.json").write_text(json.dumps({"before": found[0], "after": found[1]}, indent=1) + "\n")
    (out / "table.md").write_text(table(*found))
    return table(*found)
