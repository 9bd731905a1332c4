"""The page about ``docs/results``: what is stored, and the pictures that are drawn from it."""

from __future__ import annotations

import re
from pathlib import Path

from website.files import ROOT, STORED

_INTRODUCTION = """# Stored runs

Every figure in these pages comes from a run that is stored here and that a command repeats. [The studies](studies.md)
lists the commands of studies; the pages under *Results* name the others. Files in `.parquet` hold a row per cell and
round; `study.toml` and `study.json` say what was run, with which versions.
"""
_MADE = re.compile(r"report\.|rounds\.csv|clients\.csv|statistics\.csv|.*\.tmp")
"""What `fedalpha report` writes beside the stored files (see .gitignore)."""


def pages() -> dict[str, str]:
    """The generated page."""
    folders = sorted(folder for folder in (ROOT / "docs" / "results").iterdir() if folder.is_dir())
    return {STORED: _INTRODUCTION + "".join(_folder(folder) for folder in folders)}


def _folder(folder: Path) -> str:
    files = sorted(file for file in folder.rglob("*") if file.is_file() and _stored(file.relative_to(folder)))
    places = {file.relative_to(folder.parent).as_posix(): file for file in files}
    listed = [f"- [{place.partition('/')[2]}]({place}) ({_size(file)})" for place, file in places.items()]
    drawn = [f"![{folder.name}: {file.stem}]({place})\n" for place, file in places.items() if file.suffix == ".png"]
    study = folder / "study.toml"
    title = re.search(r'^title = "(.*)"$', study.read_text(), re.MULTILINE) if study.exists() else None
    return "\n".join(["", f"## {folder.name}", "", *([title[1], ""] if title else []), *drawn, "", *listed, ""])


def _stored(place: Path) -> bool:
    return place.parts[0] != "log" and not _MADE.match(place.name)


def _size(file: Path) -> str:
    size = file.stat().st_size
    return f"{size} bytes" if size < 1000 else f"{size / 1000:.0f} kB"
