"""The structure of two commits."""

from __future__ import annotations

import ast
from pathlib import Path

from benchmarks import tree


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
