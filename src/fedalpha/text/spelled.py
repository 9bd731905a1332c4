"""Objects that are written as text: the base class, and how the text is made."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, dataclass_transform

WORDS: dict[str, object] = {
    "inf": math.inf,
    "nan": math.nan,
    "none": None,
    "true": True,
    "false": False,
}
"""Words of a text that are values."""


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
            parts += [value_text(v) for v in (value if isinstance(value, tuple) else (value,))]
        elif one.metadata.get("always") or value_text(value) != value_text(one.default):
            parts.append(f"{one.name}={value_text(value)}")
    return f"{name}({', '.join(parts)})" if parts else name


def value_text(value: object) -> str:
    """An argument as it is written in a text."""
    if isinstance(value, tuple | list):
        return "[" + ", ".join(value_text(v) for v in value) + "]"
    if isinstance(value, str):
        return value if value.isidentifier() and value.lower() not in WORDS else repr(value)
    if value is None:
        return "none"
    return str(value)
