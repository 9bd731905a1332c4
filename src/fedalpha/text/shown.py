"""Texts for people: values in errors, whatever they hold, and the usual ends of error messages."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Iterable
from typing import Any
from unicodedata import category


def counted(number: int, one: str, many: str = "") -> str:
    """How many of something.

    >>> counted(1, "cell"), counted(2, "cell"), counted(3, "strategy", "strategies")
    ('1 cell', '2 cells', '3 strategies')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


_LONG_LIST = 300
"""A longer list of all known names is not shown beside those that are close."""
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
    """The end of an error message about an unknown ``name``: what is close, and what is known, unless that is long.

    >>> nearest("fedavg", ["FedAvg", "qFedAvg"])
    "did you mean 'FedAvg'? (known: FedAvg, qFedAvg)"
    """
    names = list(valid)
    lower = {n.lower(): n for n in names}
    near = str(name).lower()[:MOST_SHOWN]  # comparing takes time that grows with the square of the length
    close = [near] if near in lower else difflib.get_close_matches(near, list(lower), n=3, cutoff=0.5)
    known = f"known: {', '.join(names) or 'none'}"
    if not close:
        return known
    meant = f"did you mean {' or '.join(repr(lower[c]) for c in close)}?"
    return meant if len(known) > _LONG_LIST else f"{meant} ({known})"
