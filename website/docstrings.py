"""Docstrings as Markdown."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any

import griffe

sys.path.insert(0, str(Path(__file__).parents[1]))

from website.files import outside


def markdown(text: str) -> str:
    """A docstring as Markdown: doctests and literal blocks become code blocks."""
    lines = text.split("\n")
    out: list[str] = []
    code: list[str] = []
    literal = False

    def flush() -> None:
        if code:
            body = inspect.cleandoc("\n".join(code)).rstrip()
            out.extend([f"```{'pycon' if body.startswith('>>>') else 'text'}", body, "```", ""])
            code.clear()

    for line in lines:
        if code and not code[0].lstrip().startswith(">>>"):  # a literal block, which ends with the indentation
            if line.startswith("  ") or not line.strip():
                code.append(line)
                continue
            flush()
        if code and line.strip():  # a doctest, which ends with an empty line
            code.append(line)
        elif code:
            flush()
        elif line.startswith(">>>") or (literal and line.startswith("  ")):
            code.append(line)
        else:
            literal = line.endswith("::") or (literal and not line.strip())
            out.append(re.sub(r"::$", ":", line))
    flush()
    # Two pairs of brackets in a sentence are no reference to a name.
    return outside("\n".join(out), re.compile(r"\]\["), r"]\\[")


class Docstrings(griffe.Extension):
    """mkdocstrings shows every docstring as Markdown."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)
