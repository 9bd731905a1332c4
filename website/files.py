"""Which file of the repository is which page of the site, and links between them."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]

BESIDE = {
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "SECURITY.md": "project/security.md",
    "CODE_OF_CONDUCT.md": "project/code-of-conduct.md",
    "studies/README.md": "results/studies.md",
    "examples/flower/README.md": "howto/flower-example.md",
    "examples/README.md": "tutorial/examples.md",
    "notebooks/README.md": "tutorial/notebooks.md",
}
"""Files outside of ``docs`` that are pages of the site."""
STORED = "results/stored.md"
"""The page about everything in ``docs/results``."""

_ELSEWHERE = {"README.md": "index.md", "docs/extending": "extending.md", "docs/results": STORED}
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
_FENCE = re.compile(r"^(\s*)(```+)[^\n]*\n.*?^\1\2[ ]*$|`[^`\n]+`", re.MULTILINE | re.DOTALL)


def outside(text: str, change: re.Pattern[str], to: object) -> str:
    """``text`` with ``change.sub(to)`` everywhere but in code."""
    parts, end = [], 0
    for code in _FENCE.finditer(text):
        parts += [change.sub(to, text[end : code.start()]), code[0]]  # type: ignore[call-overload]
        end = code.end()
    return "".join([*parts, change.sub(to, text[end:])])  # type: ignore[call-overload]


def linked(text: str, source: str, page: str) -> str:
    """The text of the repository's file ``source``, with its links as the site's page ``page`` needs them.

    A link to a file that is no part of the site becomes its text. A link to nothing stays, and the strict build fails.
    """

    def moved(match: re.Match[str]) -> str:
        picture, words, target = match.groups()
        place, _, anchor = target.partition("#")
        if not place or re.match(r"[a-z][a-z0-9+.-]*:", target):
            return match[0]
        file = posixpath.normpath(posixpath.join(posixpath.dirname(source), place))
        found = _page(file)
        if found is None:
            return match[0] if not (ROOT / file).exists() else words
        found, _, own = found.partition("#")
        anchor = f"#{anchor or own}" if anchor or own else ""
        return f"{picture}[{words}]({posixpath.relpath(found, posixpath.dirname(page) or '.')}{anchor})"

    # Code within the words of a link is part of the link, so links are looked for outside of blocks only.
    parts, end = [], 0
    for code in re.finditer(r"^(\s*)(```+)[^\n]*\n.*?^\1\2[ ]*$", text, re.MULTILINE | re.DOTALL):
        parts += [_LINK.sub(moved, text[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, _LINK.sub(moved, text[end:])])


def _page(file: str) -> str | None:
    """The page or file of the site that holds a file of the repository; None if there is none."""
    if file in BESIDE:
        return BESIDE[file]
    if file in _ELSEWHERE:
        return _ELSEWHERE[file]
    if file.startswith("docs/results/") and (ROOT / file).is_dir():
        return f"{STORED}#{file.split('/')[2]}"
    if file.startswith("notebooks/") and file.endswith(".ipynb"):
        return f"tutorial/{Path(file).stem}.md"
    if file.startswith("docs/") and not file.endswith(".py") and (ROOT / file).is_file():
        return file.removeprefix("docs/")
    return None


def as_on_a_host(text: str) -> str:
    """Markdown as code hosts read it, for Python-Markdown: four spaces inside lists, an empty line before them."""
    lines: list[str] = []
    depth = 0  # how far the text of the current list item is indented; 0 outside of lists
    fence = ""
    for line in text.split("\n"):
        body = line.lstrip(" ")
        indent = len(line) - len(body)
        if depth and body and indent >= depth:
            line = " " * (4 * (indent // depth)) + " " * (indent % depth) + body
        item = re.match(r"([-*]|\d+\.) +", body)
        opened = re.match(r"(```+)", body)
        if fence:
            fence = "" if body.strip() == fence else fence
        elif opened:
            fence = opened[1]
        elif item and indent == 0:
            if lines and lines[-1].strip() and not depth:
                lines.append("")
            depth = len(item[0]) if item[1][0] in "-*" else 3
        elif body and indent == 0 and (not lines or not lines[-1].strip()):
            depth = 0
        lines.append(line)
    return "\n".join(lines)
