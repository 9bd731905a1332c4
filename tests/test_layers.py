"""The import graph of the package: no edge goes up, and no module is part of a cycle."""

from __future__ import annotations

import ast
import graphlib
from pathlib import Path

import fedalpha

ROOT = Path(fedalpha.__file__).parent
LAYERS = [line for line in (ROOT / "layers.txt").read_text().split("\n") if line and not line.startswith("#")]


def modules() -> dict[str, Path]:
    """Every module by its name without the package's; the package itself is "fedalpha"."""
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name or "fedalpha"] = path
    return found


def imports(path: Path, known: dict[str, Path]) -> set[str]:
    """The modules that a file imports, also inside functions and for types alone.

    What a package offers lazily is named in such an import as well.
    """
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "fedalpha":
            base = node.module.removeprefix("fedalpha").removeprefix(".")
            for alias in node.names:
                inner = f"{base}.{alias.name}".removeprefix(".")
                found.add(inner if inner in known else base or "fedalpha")
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "fedalpha":
                    found.add(alias.name.removeprefix("fedalpha").removeprefix(".") or "fedalpha")
    return found


def graph() -> dict[str, set[str]]:
    known = modules()
    return {name: imports(path, known) - {name} for name, path in known.items()}


def test_every_folder_has_a_layer() -> None:
    known = modules()
    folders = {name.split(".")[0] for name in known}
    assert folders == {layer for layer in LAYERS if "." not in layer}
    assert {layer for layer in LAYERS if "." in layer} <= known.keys()


def test_no_import_goes_up() -> None:
    place = {layer: place for place, layer in enumerate(LAYERS)}
    level = {name: place.get(name, place[name.split(".")[0]]) for name in modules()}
    up = [
        f"{name} → {other}"
        for name, others in sorted(graph().items())
        for other in sorted(others)
        if level[other] > level[name]
    ]
    assert up == []


def test_no_module_is_part_of_a_cycle() -> None:
    """A package's ``__init__`` is a module like others: what it imports may not import the package."""
    graphlib.TopologicalSorter(graph()).prepare()


def test_few_modules_stand_at_the_root() -> None:
    """Everything else is in a folder; `__init__` and `__main__` are Python's own names."""
    assert len([path for path in ROOT.glob("*.py") if not path.stem.startswith("__")]) <= 12 - 2
