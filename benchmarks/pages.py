"""Tables that a command puts into a page, between two comments."""

from __future__ import annotations

from pathlib import Path

from fedalpha.store.files import write_atomically


def put(page: Path, name: str, text: str) -> None:
    """Replace what stands between ``<!-- name -->`` and ``<!-- end of name -->`` in a page."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise ValueError(f"{page} has no lines {begin} and {end}; put them where the table belongs")
    write_atomically(page, f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}".encode())


def shown(page: Path, name: str) -> str:
    """What stands there."""
    _, _, rest = page.read_text(encoding="utf-8").partition(f"<!-- {name} -->")
    return rest.partition(f"<!-- end of {name} -->")[0].strip()
