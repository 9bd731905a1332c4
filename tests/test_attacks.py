"""The list of attacks: each has a test, and the page shows what is stored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("resource")
from attacks import ATTACKS, table

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("one", ATTACKS, ids=lambda one: one.title)
def test_every_attack_has_a_test(one: object) -> None:
    file, _, name = str(one.test).partition("::")  # type: ignore[attr-defined]
    text = (ROOT / "tests" / file).read_text()
    assert f"def {name.partition('[')[0]}(" in text or not name


def test_the_page_shows_the_stored_table() -> None:
    record = json.loads((ROOT / "docs/results/attacks/attacks.json").read_text())
    assert table(record) in (ROOT / "docs/attacks.md").read_text()
    *_, now = record.values()
    assert not any(found["reached"] for found in now.values())
