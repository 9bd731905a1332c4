"""The comparison of pins with advisories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

pytest.importorskip("yaml")
import advisories

PINS = {"pillow": Version("10.1.0"), "ruamel-yaml": Version("1.0")}


def record(name: str = "Pillow", ecosystem: str = "PyPI", **more: Any) -> dict[str, Any]:
    return {"id": "X-1", "affected": [{"package": {"name": name, "ecosystem": ecosystem}, **more}]}


def within(*events: dict[str, str], kind: str = "ECOSYSTEM") -> dict[str, Any]:
    return {"ranges": [{"type": kind, "events": list(events)}]}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (record(versions=["9.0", "10.1"]), ["pillow"]),
        (record(versions=["10.1.1", "not a version"]), []),
        (record(**within({"introduced": "0"}, {"fixed": "10.2"})), ["pillow"]),
        (record(**within({"introduced": "0"}, {"fixed": "10.1.0"})), []),
        (record(**within({"introduced": "0"}, {"last_affected": "10.1.0"})), ["pillow"]),
        (record(**within({"introduced": "0"}, {"fixed": "9"}, {"introduced": "10"}, {"fixed": "11"})), ["pillow"]),
        (record(**within({"introduced": "11"})), []),
        (record(**within({"introduced": "0"}, kind="GIT")), []),
        (record(ecosystem="npm", versions=["10.1.0"]), []),
        (record("Ruamel.YAML", versions=["1.0.0"]), ["ruamel-yaml"]),
        ({"affected": [{"ranges": []}]}, []),
    ],
)
def test_which_pins_an_advisory_affects(given: dict[str, Any], expected: list[str]) -> None:
    assert list(advisories.affected(given, PINS)) == expected


def test_records_are_read_from_both_forms(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one.json").write_text(json.dumps(record()))
    (tmp_path / "two.yaml").write_text("id: X-2\naffected:\n- package: {ecosystem: PyPI, name: torch}\n")
    (tmp_path / "three.json").write_text(json.dumps({**record(), "withdrawn": "2024"}))
    (tmp_path / "other.yaml").write_text("name: workflow\n")
    assert [found["id"] for found in advisories.records(tmp_path)] == ["X-1", "X-2"]
