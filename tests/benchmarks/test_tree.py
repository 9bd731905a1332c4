"""The structure of two commits, and the page that shows it."""

from __future__ import annotations

import ast
import json
import statistics
from pathlib import Path

from benchmarks import tree

DOCS = Path(__file__).parents[2] / "docs"
STORED = DOCS / "results" / "structure"


def test_lengths_leave_out_the_docstring_and_self_is_no_argument() -> None:
    code = 'class A:\n    def f(self, a, *b, c, **d):\n        """One.\n\n        Two."""\n        return a\n'
    ((name, node),) = tree._named(ast.parse(code))
    assert (name, tree._length(node), tree._parameters(node)) == ("A.f", 2, 4)


def test_a_cycle_is_found_also_inside_functions(tmp_path: Path) -> None:
    root = tmp_path / "fedalpha"
    root.mkdir()
    for name, code in {"a": "import fedalpha.b", "b": "def f():\n    from fedalpha import a", "c": ""}.items():
        (root / f"{name}.py").write_text(code)
    graph = tree._graph(root, {path: ast.parse(path.read_text()) for path in root.glob("*.py")})
    assert tree._cycles(graph) == [{"fedalpha.a", "fedalpha.b"}]


def test_names_in_code_count_and_names_in_prose_do_not() -> None:
    assert tree._names(ast.parse("from rules import krum"), "krum")
    assert tree._names(ast.parse('TABLE = {"krum": 1}'), "krum")
    assert not tree._names(ast.parse('"""Like krum."""'), "krum")


def test_the_page_shows_what_is_stored() -> None:
    record = json.loads((STORED / "tree.json").read_text())
    shown = tree.table(record["before"], record["after"])
    assert shown == (STORED / "table.md").read_text()
    assert shown in (DOCS / "structure.md").read_text()


def test_stored_bytes_are_of_the_commits_of_the_page() -> None:
    record = json.loads((STORED / "bytes.json").read_text())
    page = (DOCS / "structure.md").read_text()
    equal = sum(found == "equal" for found in record["settings"].values())
    assert f"{equal} of {len(record['settings'])} settings" in page
    assert all(f"`{name}`" in page for name, found in record["settings"].items() if found != "equal")
    assert record["before"][:7] in page
    assert record["after"][:7] in page


def test_stored_speed_is_that_of_the_page() -> None:
    record = json.loads((STORED / "turns.json").read_text())
    page = (DOCS / "structure.md").read_text()
    assert f"| workload | `{record['before'][:7]}` | `{record['after'][:7]}` | ratio |" in page
    for workload, seconds in record["seconds"].items():
        before, after = seconds["before"], seconds["after"]
        ratios = sorted(b / a for a, b in zip(before, after, strict=True))
        shown = f"{statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})"
        (row,) = (line for line in page.splitlines() if line.startswith(f"| {workload} ("))
        assert row.endswith(f"| {statistics.median(before):.3f} | {statistics.median(after):.3f} | {shown} |")
