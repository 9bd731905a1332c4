"""False winners and known winners: a short form of the stored measurement, and what the page says of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from benchmarks.tune import ERROR, MARK, NAMES, SEEDS, Tally, dealt, play, shifted, streams, tables, tally, upper_limit
from fedalpha.rng import generator
from fedalpha.study.tuning.race import Race

Array = NDArray[np.float64]
DOCS = Path(__file__).parents[2] / "docs"
RECORD = json.loads((DOCS / "results/tune/results.json").read_text())
SCORES = json.loads((DOCS / "results/tune/scores.json").read_text())
RACES = 200
MOST = int(stats.binom.ppf(1 - 1e-6, RACES, ERROR))
"""More false winners than this would have a probability below 1e-6 if each had one of 5 %."""


@pytest.mark.parametrize("draw", [*streams().values(), *(lambda rng, d=d: shifted(d)(0) for d in (1.0, 3.0))])
def test_many_races_at_once_are_those_of_the_library(draw: Callable[[np.random.Generator], Array]) -> None:
    scores = np.stack([draw(generator(i, "the same races")) for i in range(6)])
    winner, took = play(scores, error=0.5)
    for number, table in enumerate(scores):
        race = Race([str(i) for i in range(table.shape[1])], 0.25)
        for seed, row in enumerate(table):
            if race.winner is None:
                race.add(seed, {name: float(row[int(name)]) for name in race.running})
        assert race.winner == (None if winner[number] < 0 else str(winner[number]))
        assert len(race.seeds) == took[number]


@pytest.mark.parametrize("kind", streams())
def test_null_races_of_every_kind(kind: str) -> None:
    assert tally("null", kind, lambda i: streams()[kind](generator(i, f"suite {kind}")), RACES).winners <= MOST


def test_null_races_with_scores_of_real_federations() -> None:
    same = np.array(SCORES["same"])
    assert same.shape[1] == NAMES
    assert np.ptp(same, axis=1).min() > 0
    assert tally("null", "digits", lambda i: dealt(same, RACES + i), RACES).winners <= MOST


def test_a_known_winner_is_found() -> None:
    found = tally("winner", "2", shifted(2.0), 60, best=0)
    assert found.right >= 48
    assert found.false <= int(stats.binom.ppf(1 - 1e-6, 60, ERROR))


def test_the_stored_measurement_is_large_enough_and_says_what_was_promised() -> None:
    found = [Tally(**t) for t in RECORD["tallies"]]
    null = [t for t in found if t.kind.startswith("null")]
    assert {t.kind for t in null} == {"null, simulated", "null, real"}
    assert all(t.races >= 2000 and t.upper <= ERROR for t in null)
    assert all(t.upper == pytest.approx(upper_limit(t.false, t.races)) for t in found if t.kind != "outside")
    assert all(n / RECORD["coverage"]["sequences"] <= ERROR for n in RECORD["coverage"]["missed"].values())
    power = {float(t.what): t.right / t.races for t in found if t.kind == "winner, simulated"}
    assert power[1.5] >= 0.8
    assert len(SCORES["same"]) > SEEDS


def test_the_page_shows_what_is_stored() -> None:
    assert (DOCS / "tune.md").read_text().partition(MARK)[2].strip() == tables(RECORD).strip()
    assert (DOCS / "results/tune/table.md").read_text() == tables(RECORD)
