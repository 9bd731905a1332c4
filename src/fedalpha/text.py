"""Objects written as text, in Python call syntax, parsed without ``eval``.

Strategies, partitions, selections, client updates, schedules … are frozen objects (`Spelled`) that
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
import importlib
import inspect
import math
import operator
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar, cast, dataclass_transform
from unicodedata import category

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

LONGEST = 100_000
"""No text of an object has more characters: a parsed text takes hundreds of times its own memory."""
_WORDS: dict[str, object] = {
    "inf": math.inf,
    "nan": math.nan,
    "none": None,
    "true": True,
    "false": False,
}


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
    """Names → factories of one kind of object, with a parser for their text form.

    A registry finds the modules of its ``package`` by itself: at the first look-up it imports every one of them, so
    that a file in that folder needs no mention elsewhere. ``arguments``: registries of other kinds whose objects may
    stand as arguments.
    """

    def __init__(
        self, kind: str, base: type[T], arguments: tuple[Registry[Any], ...] = (), *, package: str | None = None
    ) -> None:
        self.kind = kind
        self.base = base
        self._arguments = arguments
        self._package = package
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
            key = name or getattr(make, "text_name", make.__name__)
            inside = make.__module__.startswith(f"{self._package}.")
            if key in (self._entries if inside else self._found()):
                raise ValueError(f"the {self.kind} {key!r} is registered already; choose another name")
            self._entries[key] = Entry(key, make, formula, reference, tuple(examples) or (key,))
            return make

        return add

    def _found(self) -> dict[str, Entry[T]]:
        """All entries by name, including those of modules that were not imported yet."""
        if not self._complete:
            import_all(str(self._package))
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
                f"expected a {self.kind} or its text, got {type(text).__name__}; write for example {self._hint()!r}"
            )
        if len(text) > LONGEST:
            raise ValueError(f"a {self.kind} of {len(text):,} characters; give at most {LONGEST:,}")
        try:
            node = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            reason = f"cannot read the {self.kind} {quoted(text)}: {shown(error)}"
            raise ValueError(f"{reason}; write it like {self._hint()!r}") from None
        if not isinstance(node, ast.Name | ast.Call):
            raise ValueError(f"{quoted(text)} is not a {self.kind}; write it like {self._hint()!r}")
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

    def _hint(self) -> str:
        examples = [text for entry in self for text in entry.examples]
        return min(examples, key=len, default=self.kind)

    def _call(self, node: ast.Call) -> object:
        if not isinstance(node.func, ast.Name):
            raise ValueError(f"a {self.kind} begins with its name, not with {quoted(ast.unparse(node.func))}")
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
            return entry.make(*arguments, **keywords)
        except TypeError as error:  # an argument of a wrong kind, such as a number where a rule is expected
            raise ValueError(f"{name}: {error}") from None

    def _argument(self, node: ast.expr) -> object:
        match node:
            case ast.Constant(value=int(number)) if number > sys.float_info.max:
                raise ValueError("a whole number is beyond float64; write a smaller one, or inf")
            case ast.Constant(value=bool() | int() | float() | str() | None):
                return node.value
            case ast.Name(id=word):
                if word in self:
                    return self._call(ast.Call(func=node, args=[], keywords=[]))
                return _WORDS.get(word.lower(), word)
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
        raise ValueError(
            f"cannot read the argument {quoted(ast.unparse(node))}; numbers, words, lists, text in quotes and "
            f"{self.kind} calls are allowed"
        )


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
class Spelled:
    """Base of all objects that are written as text. Each subclass becomes a frozen dataclass; equal text means equal.

    The name in texts is that of the class, or ``name`` where they differ:

    >>> class Greet(Spelled, name="greet"):
    ...     times: int = 1
    >>> Greet(times=2)
    greet(times=2)
    """

    text_name: ClassVar[str]

    def __init_subclass__(cls, *, name: str | None = None, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls.text_name = name or cls.__name__  # never the name of the class that it is derived from
        builds_itself = "__init__" in vars(cls)
        dataclass(frozen=True, eq=False, repr=False)(cls)
        if builds_itself:  # a class with its own __init__ sets attributes itself; its fields still appear in its text
            del cls.__setattr__, cls.__delattr__

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
    for one in sorted(dataclasses.fields(obj), key=lambda f: f.kw_only is True):
        value = getattr(obj, one.name)
        if one.metadata.get("scalar") and len(value) == 1:
            value = value[0]
        if one.metadata.get("positional"):
            parts += [_value(v) for v in (value if isinstance(value, tuple) else (value,))]
        elif one.metadata.get("always") or _value(value) != _value(one.default):
            parts.append(f"{one.name}={_value(value)}")
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


MOST_SHOWN = 200
"""How much of a foreign text an error repeats."""


def shown(value: object, most: int = MOST_SHOWN) -> str:
    """A text of unknown origin for people: at most ``most`` characters, none of which can steer a terminal.

    >>> shown("lr\\x1b[2J = 0.1"), shown("a" * 300, most=8)
    ('lr\\\\x1b[2J = 0.1', 'aaa…aaaa')
    """
    text = str(value)
    if len(text) > most:
        text = f"{text[: (most - 1) // 2]}…{text[len(text) - most // 2 :]}"
    return plain(text)


def quoted(value: object, most: int = MOST_SHOWN) -> str:
    """The same in quotes, as `repr` writes it; a long text is cut first, so that no copy of it is made."""
    return shown(repr(value[:most] + "…" if isinstance(value, str) and len(value) > most else value), most)


def plain(text: str, lines: bool = False) -> str:
    """A text in which every control character is written as its escape; ``lines`` keeps the ends of lines.

    Terminals obey control characters: they can recolour, hide or overwrite text, or fill the clipboard. Characters
    that reverse the direction of writing can show a name other than it is.

    >>> plain("\\x1b]52;c;cm0=\\x07 α \\u202e")
    '\\\\x1b]52;c;cm0=\\\\x07 α \\\\u202e'
    """
    if text.isprintable():
        return text
    kept = "\n\t" if lines else ""
    return "".join(c if c.isprintable() or category(c) == "Zs" or c in kept else ascii(c)[1:-1] for c in text)


def cleaned(value: Any, kept: frozenset[str] = frozenset()) -> Any:
    """A tree of JSON or TOML with every text made `plain`; those under a key of ``kept`` keep their lines."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, list | tuple):
        return type(value)(cleaned(item, kept) for item in value)
    if isinstance(value, dict):
        return {
            plain(str(key)): plain(item, lines=True) if key in kept and isinstance(item, str) else cleaned(item, kept)
            for key, item in value.items()
        }
    return value


def whole(name: str, value: object, least: int = 0) -> int:
    """``value`` as a whole number; ValueError with its ``name`` if it is not one, or less than ``least``.

    >>> whole("clients", 2.5, least=1)
    Traceback (most recent call last):
    ...
    ValueError: clients = 2.5; give a whole number ≥ 1
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or number < least:
        raise ValueError(f"{name} = {value!r}; give a whole number ≥ {least}")
    return number


def nearest(name: str, valid: Iterable[str]) -> str:
    """The end of an error message about an unknown ``name``: what is close, and what is known."""
    names = list(valid)
    lower = {n.lower(): n for n in names}
    near = str(name).lower()[:MOST_SHOWN]  # comparing takes time that grows with the square of the length
    close = [lower[c] for c in difflib.get_close_matches(near, list(lower), n=3, cutoff=0.5)]
    known = f"known: {', '.join(names) or 'none'}"
    return f"did you mean {' or '.join(repr(c) for c in close)}? ({known})" if close else known
