"""The study of methods: its page, its stored results and its summary agree."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.methods import MARK, SETTINGS, methods, play, summary, table
from fedalpha.apply import APPLIES
from fedalpha.combine import COMBINES
from fedalpha.select import SELECTIONS
from fedalpha.strategies import STRATEGIES
from fedalpha.update import UPDATES

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "methods.md").read_text()
STORED = {path.stem: json.loads(path.read_text()) for path in sorted((DOCS / "results/methods").glob("*.json"))}
KINDS = {"strategy": STRATEGIES, "select": SELECTIONS, "update": UPDATES, "combine": COMBINES, "apply": APPLIES}


def test_every_method_of_the_study_has_a_place_on_the_page() -> None:
    texts = {text for setting in SETTINGS.values() for c in methods(setting).values() for p in c for text in p.values()}
    names = {re.match(r"\w+", text)[0] for text in texts}
    assert len(names) > 20
    assert [name for name in sorted(names) if f"`{name}`" not in PAGE and f"`{name}(" not in PAGE] == []


def test_every_method_in_the_table_of_the_page_can_be_written() -> None:
    rows = [line.split("|")[2] for line in PAGE.partition("## All methods")[2].splitlines() if line.startswith("| ")]
    texts = [text for cell in rows[1:] for text in re.findall(r"`([^`]*)`", cell)]
    assert len(texts) > 40
    names = {entry.name for registry in KINDS.values() for entry in registry}
    assert [text for text in texts if re.match(r"\w+", text)[0] not in names] == []


@pytest.mark.parametrize("name", SETTINGS)
def test_every_method_of_the_study_parses(name: str) -> None:
    for choices in methods(SETTINGS[name]).values():
        for plugs in choices:
            for kind, text in plugs.items():
                KINDS[kind].parse(text)


def test_the_page_shows_what_is_stored() -> None:
    assert "digits" in STORED
    shown = PAGE.partition(MARK)[2]
    for stored in STORED.values():
        assert table(stored) in shown


def test_a_summary_by_hand() -> None:
    def runs(*finals: float) -> dict[str, object]:
        return {
            "plugs": {"strategy": "FedAvg"},
            "runs": [{"accuracy": [0.1, 0.6, final], "megabytes": 2.0} for final in finals],
        }

    stored = {
        "setting": {"rounds": 2, "seeds": 3},
        "methods": {"FedAvg": runs(0.6, 0.7, 0.8), "other": runs(0.62, 0.72, 0.85)},
    }
    first, second = summary(stored)
    assert first["accuracy"].text(2, 100) == "70.00 ± 24.84"
    assert second["difference"].text(2, 100) == "3.00 ± 4.30"
    assert second["rounds"] == "1.0 ± 0.0"
    assert 0 < second["p"] < 0.1


def test_a_stored_run_comes_out_again() -> None:
    """Other processors round differently, and 40 rounds amplify it: so within two points."""
    stored = STORED["digits"]["methods"]["FedAvg"]
    again = play(SETTINGS["digits"], stored["plugs"], 0)
    assert again["accuracy"][-1] == pytest.approx(stored["runs"][0]["accuracy"][-1], abs=0.02)
    assert again["accuracy"][0] == pytest.approx(stored["runs"][0]["accuracy"][0], abs=0.01)
    assert again["megabytes"] == stored["runs"][0]["megabytes"]
