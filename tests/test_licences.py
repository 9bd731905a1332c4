"""What fedalpha imports is pinned, and its licence is listed."""

from __future__ import annotations

import ast
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

from licences import ROOT, asked, normal, pins


def test_every_requirement_is_pinned() -> None:
    assert asked().keys() <= pins().keys()


def test_everything_that_is_imported_is_asked_for() -> None:
    """By name in pyproject.toml: a package that comes only with another one may go with it."""
    found = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.split(".")[0])
    known = packages_distributions()
    foreign = found - set(sys.stdlib_module_names) - {"fedalpha"}
    owners = {name: {normal(owner) for owner in known.get(name, [])} for name in foreign}
    with_others = {"psutil", "llvmlite"}  # they come with Ray and with numba
    assert {name for name, by in owners.items() if not by & asked().keys()} <= with_others


def test_the_page_lists_every_pin() -> None:
    page = (Path(ROOT) / "docs" / "licences.md").read_text()
    assert [name for name, version in pins().items() if f"| {name} | {version} |" not in page] == []
