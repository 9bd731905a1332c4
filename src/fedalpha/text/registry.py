"""Objects written as text, in Python call syntax, parsed without ``eval``.

Strategies, partitions, selections, client updates, schedules … are frozen objects (`fedalpha.text.Spelled`) that
can be written as ``name(argument, key=value)``. One `Registry` per kind of object maps
names to factories; the same text works in Python, on the command line and in files.

>>> shapes = Registry[object]("shape", object)
>>> @shapes.register(formula="r")
... def circle(radius: float = 1.0) -> object:
...     return ("circle", radius)
>>> shapes.parse("circle(radius=2.5)")
('circle', 2.5)
>>> shapes.parse("circl")
Traceback (most recent call last):
...
ValueError: unknown shape 'circl'; did you mean 'circle'? (known: circle)
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from fedalpha.text.shown import nearest, quoted, shown
from fedalpha.text.spelled import WORDS, value_text

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

LONGEST = 100_000
"""No text of an object has more characters: a parsed text takes hundreds of times its own memory."""


def import_all(package: str) -> None:
    """Import every module of a package, so that a file in its folder needs no mention elsewhere.

    Importing a module again is harmless: a look-up while another one is under way (in a module of the package, or in
    another thread) simply does the same.
    """
    folder = importlib.import_module(package).__path__
    for module in pkgutil.iter_modules(folder, f"{package}."):
        importlib.import_module(module.name)


@dataclass(frozen=True)
class Entry(Generic[T]):
    """One registered factory: what ``fedalpha list`` and its siblings list."""

    name: str
    make: Callable[..., T]
    formula: str
    reference: str
    examples: tuple[str, ...]

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.make) or "").split("\n\n")[0].replace("\n", " ")

    @property
    def signature(self) -> str:
        parameters = []
        for p in inspect.signature(self.make).parameters.values():
            if p.kind is p.VAR_POSITIONAL:
                parameters.append(f"{p.name}…")
            elif p.default is p.empty:
                parameters.append(p.name)
            else:
                parameters.append(f"{p.name}={value_text(p.default)}")
        return f"{self.name}({', '.join(parameters)})"


class Registry(Generic[T]):
    """Names → factories of one kind of object, with a parser for their text form.

    A registry finds the modules of its ``package`` by itself: at the first look-up it imports every one of them, so
    that a file in that folder needs no mention elsewhere. ``arguments``: registries of other kinds whose objects may
    stand as arguments. ``usual`` is the text that errors give as an example, the shortest one by default.
    """

    def __init__(
        self,
        kind: str,
        base: type[T],
        arguments: tuple[Registry[Any], ...] = (),
        *,
        package: str | None = None,
        usual: str = "",
    ) -> None:
        self.kind = kind
        self.base = base
        self._arguments = arguments
        self.package = package
        self._usual = usual
        self._complete = package is None
        self._entries: dict[str, Entry[T]] = {}

    def register(
        self, *misused: object, name: str = "", formula: str = "", reference: str = "", examples: Iterable[str] = ()
    ) -> Callable[[F], F]:
        """Decorator: make a class available under its name in texts, or a function under ``name`` (or its own).

        ``examples`` are texts that the contract suites run; the default is the bare name.
        """
        if misused:
            raise TypeError(f"write @register() with parentheses above the {self.kind}, not @register")

        def add(make: F) -> F:
            made: object = make
            if isinstance(made, type) and not issubclass(made, self.base):
                raise TypeError(
                    f"{made.__name__} is not {self._a_kind()}; write class {made.__name__}({self.base.__name__})"
                )
            key = name or getattr(make, "text_name", make.__name__)
            inside = make.__module__.startswith(f"{self.package}.")
            if key in (self._entries if inside else self._found()):
                raise ValueError(f"the {self.kind} {key!r} is registered already; choose another name")
            self._entries[key] = Entry(key, make, formula, reference, tuple(examples) or (key,))
            return make

        return add

    def _found(self) -> dict[str, Entry[T]]:
        """All entries by name, including those of modules that were not imported yet."""
        if not self._complete:
            import_all(str(self.package))
            self._complete = True
        return self._entries

    def __iter__(self) -> Iterator[Entry[T]]:
        """The entries, sorted by name: their order does not depend on the order of imports."""
        return iter(sorted(self._found().values(), key=lambda entry: entry.name))

    def __contains__(self, name: object) -> bool:
        return name in self._found()

    def parse(self, text: str | T) -> T:
        """The object that ``text`` describes; an object of the right kind is returned as it is."""
        if isinstance(text, self.base) and not isinstance(text, str):
            return text
        if not isinstance(text, str):
            raise TypeError(
                f"expected {self._a_kind()} or its text, got {type(text).__name__}; write for example {self._hint()!r}"
            )
        if not text.strip():
            raise ValueError(f"the {self.kind} is empty; write it like {self._hint()!r}")
        if len(text) > LONGEST:
            raise ValueError(f"{self._a_kind()} of {len(text):,} characters; give at most {LONGEST:,}")
        try:
            node = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            said = error.msg if isinstance(error, SyntaxError) else error  # without the line of a file that is none
            reason = f"cannot read the {self.kind} {quoted(text)}: {shown(said)}"
            paths = " (and put a path in quotes: csv('/tmp/rounds.csv'))" if "/" in text or "\\" in text else ""
            raise ValueError(f"{reason}; write it like {self._hint()!r}{paths}") from None
        if not isinstance(node, ast.Name | ast.Call):
            raise ValueError(f"{quoted(text)} is not {self._a_kind()}; write it like {self._hint()!r}")
        if isinstance(node, ast.Name):
            node = ast.Call(func=node, args=[], keywords=[])
        try:
            return cast(T, self._call(node))
        except RecursionError:
            raise ValueError(f"the {self.kind} is nested too deeply; write it like {self._hint()!r}") from None

    def given(self, text: str) -> frozenset[str]:
        """The names of the arguments that are written in a text; empty if it cannot be read.

        >>> shapes = Registry[object]("shape", object)
        >>> _ = shapes.register(name="box")(lambda width=1, height=1: (width, height))
        >>> sorted(shapes.given("box(2, height=3)")), shapes.given("box")
        (['height', 'width'], frozenset())
        """
        try:
            node = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return frozenset()  # `parse` says what is wrong
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in self:
            return frozenset()
        names = list(inspect.signature(self._entries[node.func.id].make).parameters)
        return frozenset([*names[: len(node.args)], *(k.arg for k in node.keywords if k.arg is not None)])

    def _a_kind(self) -> str:
        return f"{'an' if self.kind[0] in 'aeiou' else 'a'} {self.kind}"

    def _hint(self) -> str:
        examples = [text for entry in self for text in entry.examples]
        return self._usual or min(examples, key=len, default=self.kind)

    def _call(self, node: ast.Call) -> object:
        if not isinstance(node.func, ast.Name):
            raise ValueError(f"{self._a_kind()} begins with its name, not with {quoted(ast.unparse(node.func))}")
        name = node.func.id
        if name not in self:
            raise ValueError(f"unknown {self.kind} {quoted(name)}; {nearest(name, [entry.name for entry in self])}")
        entry = self._entries[name]
        arguments = [self._argument(a) for a in node.args]
        keywords: dict[str, object] = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                raise ValueError(f"{name}: ** is not allowed; name each argument")
            if keyword.arg in keywords:
                raise ValueError(f"{name}: the argument {keyword.arg!r} is given twice; keep one of them")
            keywords[keyword.arg] = self._argument(keyword.value)
        signature = inspect.signature(entry.make)
        for key in keywords:
            if key not in signature.parameters:
                valid = [p.name for p in signature.parameters.values() if p.kind is not p.VAR_POSITIONAL]
                raise ValueError(f"{name} has no argument {quoted(key)}; {nearest(key, valid)}")
        try:
            signature.bind(*arguments, **keywords)
        except TypeError as error:
            raise ValueError(f"{name}: {error}; its form is {entry.signature}") from None
        try:
            made = entry.make(*arguments, **keywords)
        except TypeError as error:  # an argument of a wrong kind, such as a number where a rule is expected
            raise ValueError(f"{name}: {error}") from None
        _check_words(name, made)
        return made

    def _argument(self, node: ast.expr) -> object:
        match node:
            case ast.Constant(value=int(number)) if number > sys.float_info.max:
                raise ValueError("a whole number is beyond float64; write a smaller one, or inf")
            case ast.Constant(value=bool() | int() | float() | str() | None):
                return node.value
            case ast.Name(id=word):
                if word in self:
                    return self._call(ast.Call(func=node, args=[], keywords=[]))
                return WORDS.get(word.lower(), word)
            case ast.Attribute():  # the name of a file, such as rounds.csv
                return ast.unparse(node)
            case ast.Call(func=ast.Name(id=word)):
                owner = next((r for r in self._arguments if word in r), self)
                return owner._call(node)
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return tuple(self._argument(item) for item in items)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                value = self._argument(operand)
                if isinstance(value, int | float):
                    return -value
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                a, b = self._argument(left), self._argument(right)
                if isinstance(a, int | float) and isinstance(b, int | float) and b != 0:
                    return a / b
        path = " (put a path in quotes)" if isinstance(node, ast.BinOp | ast.Attribute) else ""
        raise ValueError(
            f"cannot read the argument {quoted(ast.unparse(node))}; numbers, words, lists, text in quotes{path} and "
            f"{self.kind} calls are allowed"
        )


_KINDS = {"float": "a number", "int": "a whole number", "bool": "true or false"}


def _check_words(name: str, made: object) -> None:
    """Raise where a field for a number holds a word; a rule that checks its arguments itself says more."""
    for field in dataclasses.fields(made) if dataclasses.is_dataclass(made) else ():
        kind = field.type if isinstance(field.type, str) else getattr(field.type, "__name__", "")
        value = getattr(made, field.name, None)
        if kind in _KINDS and isinstance(value, str):
            raise ValueError(f"{name}: {field.name} = {quoted(value)}; give {_KINDS[kind]}")
