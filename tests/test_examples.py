"""The scripts of ``examples`` are short and named on their page, whose code blocks `website.blocks` runs."""

from __future__ import annotations

from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_there_are_five_short_examples_and_the_page_names_them() -> None:
    scripts = sorted(EXAMPLES.glob("*.py"))
    assert len(scripts) == 5
    page = (EXAMPLES / "README.md").read_text()
    for script in scripts:
        assert f"\npython examples/{script.name}" in page
        assert len(script.read_text().splitlines()) <= 35
