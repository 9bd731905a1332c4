"""The notebooks as pages: their stored cells and outputs, without running them."""

from __future__ import annotations

import base64
import json
import re
from functools import cache
from typing import Any

from website.files import ROOT


@cache
def _read() -> tuple[dict[str, str], dict[str, bytes]]:
    texts: dict[str, str] = {}
    pictures: dict[str, bytes] = {}
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text())["cells"]
        texts[f"tutorial/{path.stem}.md"] = "\n\n".join(_cell(cell, path.stem, pictures) for cell in cells) + "\n"
    return texts, pictures


def pages() -> dict[str, str]:
    """A page per notebook."""
    return _read()[0]


def pictures() -> dict[str, bytes]:
    """The pictures among the outputs."""
    return _read()[1]


def _cell(cell: dict[str, Any], name: str, pictures: dict[str, bytes]) -> str:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return source
    parts = [f"```python\n{source}\n```"]
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        if "image/png" in data:
            place = f"{name}-{len([p for p in pictures if p.startswith(f'tutorial/{name}-')])}.png"
            pictures[f"tutorial/{place}"] = base64.b64decode("".join(data["image/png"]))
            parts.append(f"![Output of the cell above]({place})")
        elif "text/html" in data:
            parts.append(_html("".join(data["text/html"])))
        else:
            text = "".join(output.get("text", data.get("text/plain", "")))
            parts.append(f"```text\n{text.rstrip()}\n```")
    return "\n\n".join(parts)


def _html(text: str) -> str:
    """Markup in one block: without empty lines, which would end it."""
    return re.sub(r"\n\s*\n", "\n", text)
