"""A page per kind of addition, cut out of docs/extending.md."""

from __future__ import annotations

import re

from website.files import ROOT

FOLDER = "extending"
_GENERAL = ("What all rules share", "Plugins")


def slug(heading: str) -> str:
    """The anchor of a heading, as code hosts make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def sections() -> dict[str, str]:
    """The sections of the guide by heading, with the text below each."""
    parts = re.split(r"^## (.*)\n", (ROOT / "docs" / "extending.md").read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def pages() -> dict[str, str]:
    """The generated pages: one for each kind."""
    return {f"{FOLDER}/{slug(h)}.md": f"# {h}\n{text}" for h, text in sections().items() if h not in _GENERAL}


def overview(text: str) -> str:
    """The guide without the sections that have pages; each keeps its anchor and links to its page."""
    for heading, body in sections().items():
        if heading not in _GENERAL:
            text = text.replace(
                f"## {heading}\n{body}", f"## {heading}\n\n[{heading}]({FOLDER}/{slug(heading)}.md)\n\n"
            )
    return text
