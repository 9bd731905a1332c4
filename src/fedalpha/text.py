"""Objects written as text, in Python call syntax, parsed without ``eval``.

Strategies, partitions, selections, client updates, schedules … are frozen objects that
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
import difflib
import inspect
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar, cast

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_WORDS: dict[str, object] = {
    "inf": math.inf,
    "nan": math.nan,
    "none": None,
    "true": True,
    "false": False,
}


@dataclass(frozen=True)
class Entry(Generic[T]):
    """One registered factory: what ``fedalpha strategies`` and its siblings list."""

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
                parameters.append(f"{p.name}={_value(p.default)}")
        return f"{self.name}({', '.join(parameters)})"


class Registry(Generic[T]):
    """Names → factories of one kind of object, with a parser for their text form."""

    def __init__(self, kind: str, base: type[T], arguments: tuple[Registry[Any], ...] = ()) -> None:
        """``arguments``: registries of other kinds whose objects may stand as arguments."""
        self.kind = kind
        self.base = base
        self._arguments = arguments
        self._entries: dict[str, Entry[T]] = {}

    def register(
        self,
        name: str | None = None,
        *,
        formula: str = "",
        reference: str = "",
        examples: Iterable[str] = (),
    ) -> Callable[[F], F]:
        """Decorator: make a class or function available under ``name`` (its own by default).

        ``examples`` are texts that the contract suites run; the default is the bare name.
        """
        if name is not None and not isinstance(name, str):
            raise TypeError(f"write @register() with parentheses above the {self.kind}, not @register")

        def add(make: F) -> F:
            key = name or make.__name__
            if key in self._entries:
                raise ValueError(f"the {self.kind} {key!r} is registered already; choose another name")
            self._entries[key] = Entry(key, make, formula, reference, tuple(examples) or (key,))
            return make

        return add

    def __iter__(self) -> Iterator[Entry[T]]:
        return iter(self._entries.values())

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def parse(self, text: str | T) -> T:
        """The object that ``text`` describes; an object of the right kind is returned as it is."""
        if isinstance(text, self.base) and not isinstance(text, str):
            return text
        if not isinstance(text, str):
            raise TypeError(
                f"expected a {self.kind} or its text, got {type(text).__name__}; write for example {self._hint()!r}"
            )
        try:
            node = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ValueError(f"cannot read the {self.kind} {text!r}: {error}; write it like {self._hint()!r}") from None
        if not isinstance(node, ast.Name | ast.Call):
            raise ValueError(f"{text!r} is not a {self.kind}; write it like {self._hint()!r}")
        if isinstance(node, ast.Name):
            node = ast.Call(func=node, args=[], keywords=[])
        try:
            return cast(T, self._call(node))
        except RecursionError:
            raise ValueError(f"the {self.kind} is nested too deeply; write it like {self._hint()!r}") from None

    def _hint(self) -> str:
        return next(iter(self._entries.values())).examples[0] if self._entries else self.kind

    def _call(self, node: ast.Call) -> object:
        if not isinstance(node.func, ast.Name):
            raise ValueError(f"a {self.kind} begins with its name, not with {ast.unparse(node.func)!r}")
        name = node.func.id
        if name not in self._entries:
            raise ValueError(f"unknown {self.kind} {name!r}; {nearest(name, self._entries)}")
        make = self._entries[name].make
        arguments = [self._argument(a) for a in node.args]
        keywords: dict[str, object] = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                raise ValueError(f"{name}: ** is not allowed; name each argument")
            if keyword.arg in keywords:
                raise ValueError(f"{name}: the argument {keyword.arg!r} is given twice; keep one of them")
            keywords[keyword.arg] = self._argument(keyword.value)
        signature = inspect.signature(make)
        for key in keywords:
            if key not in signature.parameters:
                valid = [p.name for p in signature.parameters.values() if p.kind is not p.VAR_POSITIONAL]
                raise ValueError(f"{name} has no argument {key!r}; {nearest(key, valid)}")
        try:
            signature.bind(*arguments, **keywords)
        except TypeError as error:
            usage = self._entries[name].signature
            raise ValueError(f"{name}: {error}; its form is {usage}") from None
        try:
            return make(*arguments, **keywords)
        except TypeError as error:  # an argument of a wrong kind, such as a number where a rule is expected
            raise ValueError(f"{name}: {error}") from None

    def _argument(self, node: ast.expr) -> object:
        match node:
            case ast.Constant(value=int(number)) if number > sys.float_info.max:
                raise ValueError("a whole number is beyond float64; write a smaller one, or inf")
            case ast.Constant(value=bool() | int() | float() | str() | None):
                return node.value
            case ast.Name(id=word):
                if word in self._entries:
                    return self._call(ast.Call(func=node, args=[], keywords=[]))
                return _WORDS.get(word.lower(), word)
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
        raise ValueError(
            f"cannot read the argument {ast.unparse(node)!r}; numbers, words, lists and {self.kind} calls are allowed"
        )


class Spelled:
    """Mixin of frozen dataclasses that are written as text; equal text means equal."""

    text_name: ClassVar[str]
    """The name in texts; the class's own by default, never that of the class it is derived from."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "text_name" not in vars(cls):
            cls.text_name = cls.__name__

    def __str__(self) -> str:
        return call(self, self.text_name)

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


def call(obj: Any, name: str) -> str:
    """The text of a frozen dataclass: ``name`` and the fields that differ from their defaults.

    Field metadata: ``positional`` prints the value (or each item of a tuple) without its
    name, ``always`` prints it even at its default, ``scalar`` prints a 1-tuple as its item.
    """
    parts = []
    for field in sorted(dataclasses.fields(obj), key=lambda f: f.kw_only is True):
        value = getattr(obj, field.name)
        if field.metadata.get("scalar") and len(value) == 1:
            value = value[0]
        if field.metadata.get("positional"):
            parts += [_value(v) for v in (value if isinstance(value, tuple) else (value,))]
        elif field.metadata.get("always") or _value(value) != _value(field.default):
            parts.append(f"{field.name}={_value(value)}")
    return f"{name}({', '.join(parts)})" if parts else name


def _value(value: object) -> str:
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_value(v) for v in value) + "]"
    if isinstance(value, str):
        return value if value.isidentifier() and value.lower() not in _WORDS else repr(value)
    if value is None:
        return "none"
    return str(value)


def counted(number: int, one: str, many: str = "") -> str:
    """How many of something.

    >>> counted(1, "cell"), counted(2, "cell"), counted(3, "strategy", "strategies")
    ('1 cell', '2 cells', '3 strategies')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def nearest(name: str, valid: Iterable[str]) -> str:
    """The end of an error message about an unknown ``name``: what is close, and what is known."""
    names = list(valid)
    lower = {n.lower(): n for n in names}
    close = [lower[c] for c in difflib.get_close_matches(name.lower(), list(lower), n=3, cutoff=0.5)]
    known = f"known: {', '.join(names) or 'none'}"
    return f"did you mean {' or '.join(repr(c) for c in close)}? ({known})" if close else known
