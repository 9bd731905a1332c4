"""Plays as text, one role after the other: which role speaks, and what is not speech.

The plays of Project Gutenberg's older editions share one layout. A speech begins, after an empty line, with the name
of the role on a line of its own; stage directions stand in brackets; acts and scenes have headings. A name has a full
stop at its end, or capital letters only. A line that has the form of a name but is not one ("Amen." alone on a line)
is taken for one; this is rare.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Literal

Kind = Literal["speech", "name", "direction", "heading", "front"]

_HEADING = re.compile(r"\s*(ACT|SCENE|Act|Scene)\b[ .:]*([IVXL]+\b|FIRST|SECOND|THIRD|FOURTH|FIFTH|\d+)?.*")
_DIRECTION = re.compile(r"\[[^\[\]]{0,800}\]|\[[^\n]*")  # a bracket that is never closed ends with its line
_NAME = re.compile(r"\s*((?:\d )?[A-Z][A-Za-z'’&,. -]{0,38}?)(\.?)[ ]*")
_NUMERAL = re.compile(r"[IVXL]+")
_SHORT = re.compile(r"(\d )?[A-Z][a-z]+( [A-Z][a-z]+)?")


@dataclass(frozen=True)
class Play:
    """The speeches of each role, in the order of the play, and how many characters are of which kind."""

    roles: dict[str, list[str]]
    characters: dict[Kind, int]

    @property
    def left_out(self) -> int:
        """The characters that no role speaks."""
        return sum(count for kind, count in self.characters.items() if kind != "speech")


def read_play(text: str) -> Play:
    """The roles of a play.

    >>> play = read_play("A PLAY\\n\\nACT I. SCENE I.\\n\\nANN.\\nGood day,\\n[Bows.]\\nBob.\\n\\nBOB.\\nGood day.\\n")
    >>> play.roles
    {'ANN': ['Good day,\\nBob.'], 'BOB': ['Good day.']}
    >>> play.characters["direction"]
    7
    """
    bare = _DIRECTION.sub(lambda found: "\n" * found[0].count("\n"), text.replace("\r", ""))
    lines = bare.split("\n")
    directions = len(text.replace("\r", "")) - len(bare)
    first = next((i for i, line in enumerate(lines) if _HEADING.fullmatch(line)), len(lines))
    named = _names(lines, first)
    roles: dict[str, list[str]] = {}
    counts: Counter[Kind] = Counter({"direction": directions, "front": sum(map(len, lines[:first]))})
    role, speech = None, list[str]()
    for i in range(first, len(lines)):
        line = lines[i]
        name = named.get(i)
        if name is None and not _HEADING.fullmatch(line):
            counts["heading" if role is None else "speech"] += len(line)
            speech.append(line)
            continue
        _end(roles, role, speech)
        role, speech = name, []
        counts["heading" if name is None else "name"] += len(line)
    _end(roles, role, speech)
    return Play(roles, dict(counts))


def _names(lines: list[str], first: int) -> dict[int, str]:
    """The role that each line names, where a line names one: capitals, or a short name with a full stop."""
    found: dict[int, tuple[str, bool]] = {}
    for i in range(max(first, 1), len(lines) - 1):
        match = _NAME.fullmatch(lines[i])
        if match and not lines[i - 1].strip() and lines[i + 1].strip() and not _HEADING.fullmatch(lines[i]):
            capitals = match[1] == match[1].upper() and not _NUMERAL.fullmatch(match[1])
            if match[2] or capitals:
                found[i] = match[1].upper(), capitals or bool(_SHORT.fullmatch(match[1]))
    times = Counter(name for name, _ in found.values())
    return {i: name for i, (name, sure) in found.items() if sure or times[name] > 2}


def _end(roles: dict[str, list[str]], role: str | None, speech: list[str]) -> None:
    text = "\n".join(line.strip() for line in speech if line.strip())
    if role is not None and text:
        roles.setdefault(role, []).append(text)
