"""Settings that are searched, written in place of a value: ``FedSoftWorse(T=log(0.05, 5))``.

- ``log(0.05, 5)``: a number between the two, uniform in its logarithm; ``linear(0, 1)``: a uniform number;
- ``whole(1, 20)``: a whole number, both ends included;
- ``choice(0.1, 0.2, 0.5)``: one of these. A list ``[0.1, 0.2, 0.5]`` means the same wherever the rule does not take
  a list itself (``at=[5, 10]`` of a switch is a value), and a list of a TOML file means it too.

>>> space = Space.of({"strategy": "FedSoftWorse(T=log(0.05, 5))", "lr": [0.05, 0.1]})
>>> list(space.dimensions)
['strategy.T', 'lr']
>>> space.at({"strategy.T": 1.3, "lr": 0.1})
{'strategy': 'FedSoftWorse(T=1.3)', 'lr': 0.1}
"""

from __future__ import annotations

import ast
import copy
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Point = Mapping[str, Any]
"""A value for every dimension."""


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``; those of a ``log`` range are spread evenly over magnitudes."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def __post_init__(self) -> None:
        least = (self.low > 0) if self.log else True
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high and least):
            raise ValueError(
                f"{self}: give two numbers, the smaller one first" + ", both above 0" * (self.log and not least)
            )

    def __str__(self) -> str:
        kind = "whole" if self.whole else "log" if self.log else "linear"
        return f"{kind}({self.low:g}, {self.high:g})"

    def rounded(self, value: float) -> float | int:
        """The value with three digits, inside the range, so that drawn values are easy to read and type."""
        if self.whole:
            return int(value)
        return min(max(float(f"{value:.3g}"), self.low), self.high)

    @property
    def ends(self) -> tuple[Any, ...]:
        return (int(self.low), int(self.high)) if self.whole else (self.low, self.high)

    def __contains__(self, value: object) -> bool:
        number = isinstance(value, int if self.whole else int | float) and not isinstance(value, bool)
        return number and self.low <= value <= self.high  # type: ignore[operator]

    @property
    def values(self) -> Sequence[Any] | None:
        """All values; None for infinitely many."""
        return range(int(self.low), int(self.high) + 1) if self.whole else None


@dataclass(frozen=True)
class Choice:
    """One of some values."""

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        if len({repr(value) for value in self.values}) < len(self.values) or not self.values:
            raise ValueError(f"{self}: give every value once, and at least one")

    def __str__(self) -> str:
        return f"choice({', '.join(map(str, self.values))})"

    def __contains__(self, value: object) -> bool:
        return any(type(value) is type(known) and value == known for known in self.values)

    @property
    def ends(self) -> tuple[Any, ...]:
        return self.values


Dimension = Range | Choice
_KINDS: dict[str, Callable[..., Dimension]] = {
    "log": lambda low, high: Range(low, high, log=True),
    "linear": lambda low, high: Range(low, high),
    "whole": lambda low, high: Range(low, high, whole=True),
    "choice": lambda *values: Choice(values),
}
NAMES = tuple(_KINDS)
"""No rule may have one of these names."""


@dataclass(frozen=True, eq=False)
class Space:
    """Settings of which some are searched: ``given`` has values and trees, ``dimensions`` the searched ones by name."""

    given: Mapping[str, Any]
    dimensions: Mapping[str, Dimension]

    @staticmethod
    def of(settings: Mapping[str, Any], accepts: Callable[[str, str], bool] | None = None) -> Space:
        """The space that settings describe. ``accepts(setting, text)`` says whether a text is valid as it stands;
        lists inside texts that are not become choices."""
        given: dict[str, Any] = {}
        found: dict[str, Dimension] = {}
        for key, value in settings.items():
            if isinstance(value, list | tuple):
                given[key], found[key] = _Open(key), Choice(tuple(value))
                continue
            tree = _tree(value)
            if tree is None:
                given[key] = value
                continue
            reader = _Reader(key)
            opened = reader.visit(tree)
            if _has_lists(opened) and not (accepts or _never)(key, ast.unparse(_filled(opened, reader.first()))):
                reader = _Reader(key, lists=True)
                opened = reader.visit(ast.parse(value.strip(), mode="eval").body)
            if not reader.dimensions:
                given[key] = value
                continue
            given[key] = opened
            found |= reader.dimensions
        return Space(given, found)

    def at(self, point: Point) -> dict[str, Any]:
        """The settings at a point."""
        found: dict[str, Any] = {}
        for key, value in self.given.items():
            if isinstance(value, _Open):
                found[key] = point[value.name]
            elif isinstance(value, ast.expr):
                filled = _filled(value, point)
                found[key] = filled.value if isinstance(filled, ast.Constant) else ast.unparse(filled)
            else:
                found[key] = value
        return found

    def holds(self, point: Point) -> bool:
        """Whether a point, which may come from a file, belongs to this space."""
        if not isinstance(point, Mapping) or point.keys() != self.dimensions.keys():
            return False
        return all(value in self.dimensions[name] for name, value in point.items())

    @property
    def size(self) -> int | None:
        """The number of points; None for infinitely many."""
        sizes = [None if d.values is None else len(d.values) for d in self.dimensions.values()]
        return None if None in sizes else math.prod(s for s in sizes if s is not None)

    def points(self) -> Iterator[Point]:
        """All points of a finite space."""
        values = [d.values or () for d in self.dimensions.values()]
        return (dict(zip(self.dimensions, chosen, strict=True)) for chosen in itertools.product(*values))

    def corners(self) -> Iterator[Point]:
        """Points that meet every end of every range and every choice: if all are valid, so is the space."""
        longest = max((len(d.ends) for d in self.dimensions.values()), default=1)
        for i in range(longest):
            yield {name: d.ends[min(i, len(d.ends) - 1)] for name, d in self.dimensions.items()}


@dataclass(frozen=True)
class _Open:
    """A setting that is searched as a whole."""

    name: str


class _Reader(ast.NodeTransformer):
    """Replaces every space in a tree by the name of its dimension, and collects the dimensions."""

    def __init__(self, key: str, lists: bool = False) -> None:
        self.key, self.lists = key, lists
        self.dimensions: dict[str, Dimension] = {}
        self._argument = ""

    def first(self) -> Point:
        return {name: d.ends[0] for name, d in self.dimensions.items()}

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        before, self._argument = self._argument, node.arg or ""
        node.value = self.visit(node.value)
        self._argument = before
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in _KINDS:
            return self._open(_dimension(name, node))
        if isinstance(node.func, ast.Call):  # what is met at every corner would not be all that a search may try
            raise ValueError(f"{ast.unparse(node)}: a space cannot stand for the name of a rule; name the rule")
        self.generic_visit(node)
        return node

    def visit_List(self, node: ast.List) -> ast.AST:
        return self._open(Choice(tuple(_literal(item) for item in node.elts))) if self.lists else node

    def _open(self, dimension: Dimension) -> ast.AST:
        base = ".".join(part for part in (self.key, self._argument) if part)
        name = next(n for i in itertools.count(1) if (n := base if i == 1 else f"{base}{i}") not in self.dimensions)
        self.dimensions[name] = dimension
        return ast.Name(id=f"{_MARK}{name}")


_MARK = "\0"
"""Before the name of a dimension in a tree; no text can contain it."""


def _tree(value: Any) -> ast.expr | None:
    """The tree of a text that may contain spaces; None for other values, and for texts other than calls."""
    if not isinstance(value, str):
        return None
    try:
        return ast.parse(value.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # the reader of the setting reports it


def _has_lists(tree: ast.AST) -> bool:
    return any(isinstance(node, ast.List) for node in ast.walk(tree))


def _filled(tree: ast.expr, point: Point) -> ast.expr:
    class Fill(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.AST:
            if not node.id.startswith(_MARK):
                return node
            value = point[node.id[len(_MARK) :]]
            return ast.Name(id=value) if isinstance(value, str) and value.isidentifier() else ast.Constant(value)

    filled: ast.expr = Fill().visit(copy.deepcopy(tree))
    return filled


def _dimension(name: str, node: ast.Call) -> Dimension:
    text = ast.unparse(node)
    if node.keywords:
        raise ValueError(f"{text}: give the values without names, such as {name}(1, 2)")
    values = [_literal(item) for item in node.args]
    if name == "choice":
        return Choice(tuple(values))
    if len(values) != 2 or any(isinstance(v, bool) or not isinstance(v, int | float) for v in values):
        raise ValueError(f"{text}: give two numbers, the smaller one first, such as {name}(1, 2)")
    if name == "whole" and not all(isinstance(v, int) for v in values):
        raise ValueError(f"{text}: give two whole numbers")
    return _KINDS[name](*values)


def _literal(node: ast.expr) -> Any:
    if isinstance(node, ast.Name):
        if node.id in _KINDS:
            raise ValueError(f"{node.id!r} is not allowed in a space")
        return node.id
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        raise ValueError(f"cannot read {ast.unparse(node)!r} in a space; numbers and words are allowed") from None
    return value


def _never(setting: str, text: str) -> bool:
    return False
