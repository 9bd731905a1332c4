"""Pictures over all cases of a study, from rows made by hand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedalpha.report import gather, write_report
from fedalpha.report.across import across, short_names
from fedalpha.study import Store, study
from fedalpha.study.runner import plan, to_toml
from report.chromium import PROGRAM, Chromium


@pytest.fixture
def varied(tmp_path: Path) -> Path:
    """Two rules, three rates, two seeds; FedWorse never gets to 60 % at the largest rate, and lacks the middle one."""
    grid = {"lr": [0.1, 0.2, 0.4]}
    values = {"name": "x", "strategies": ["FedAvg", "FedWorse"], "seeds": 2, "measures": ["R_60", "accuracy"]}
    found = study({**values, "grid": grid, "settings": {"rounds": 2}})
    store = Store(tmp_path)
    store.write_plan(to_toml(found), plan(found, found.cells()))
    last = {"FedAvg": (0.62, 0.7, 0.8), "FedWorse": (0.61, None, 0.3)}
    for cell in found.cells():
        final = last[cell.strategy][grid["lr"].index(float(cell.case.removeprefix("lr=")))]
        if final is not None:
            accuracy = [0.1, 0.5 + 0.2 * cell.seed if final > 0.6 else 0.2, final]
            rows = {"round": [0, 1, 2], "accuracy": accuracy, "loss": [2.0, 1.0, 0.5]}
            store.put(cell, rows, {"ended": "rounds", "versions": {"fedalpha": "test"}})
    return tmp_path


def test_a_measure_is_laid_out_over_the_cases(varied: Path) -> None:
    rounds, accuracy = across(gather(varied))
    assert (rounds["cases"], rounds["axis"]) == (["0.1", "0.2", "0.4"], "lr=…")
    fedavg, worse = (line["points"] for line in rounds["lines"])
    assert [point["mean"] for point in fedavg] == [1.5, 1.5, 1.5]
    assert [point and (point["mean"], point["reached"]) for point in worse] == [(1.5, True), None, (2.0, False)]
    assert [point["mean"] for point in accuracy["lines"][0]["points"]] == [62.0, 70.0, 80.0]


def test_the_picture_is_a_file_and_in_the_report(varied: Path) -> None:
    write_report(varied)
    assert (varied / "figures" / "across-R_60.png").stat().st_size > 5000
    text = (varied / "report.md").read_text()
    assert re.search(r"!\[(R_60 .*)\]\(figures/across-R_60\.svg\)\n\n\1\.\n", text)


@pytest.mark.skipif(PROGRAM is None, reason="no Chromium here; install it with: apt-get install chromium")
def test_the_page_draws_it(varied: Path) -> None:
    write_report(varied)
    with Chromium() as browser:
        browser.resize(1200, 900)
        browser.open((varied / "report.html").as_uri())
        assert browser.errors == []
        assert browser.value("document.querySelector('h2').innerText") == "All cases"
        assert browser.value("document.querySelectorAll('.charts')[0].querySelectorAll('circle').length") == 2 * (3 + 2)
        hollow = (
            "[...document.querySelectorAll('circle')].filter((c) => c.getAttribute('fill') === 'var(--paper)').length"
        )
        assert browser.value(hollow) == 3  # over the cases; in its own case the mean, and the difference
        browser.mouse("svg", at=(0.9, 0.5))
        tip = browser.value("document.querySelector('.tip:not([hidden])').innerText")
        assert "0.4" in tip
        assert "> 2 in all 2" in tip


def test_only_numbers_are_joined_and_long_names_stand_below(tmp_path: Path) -> None:
    cases = [{"name": f"a long name of a case, number {k}"} for k in range(6)]
    values = {"name": "x", "strategies": ["FedAvg"], "seeds": 1, "measures": ["accuracy"], "settings": {"rounds": 1}}
    found = study({**values, "cases": cases})
    store = Store(tmp_path)
    store.write_plan(to_toml(found), plan(found, found.cells()))
    for cell in found.cells():
        rows = {"round": [0, 1], "accuracy": [0.1, 0.5], "loss": [2.0, 1.0]}
        store.put(cell, rows, {"ended": "rounds", "versions": {"fedalpha": "test"}})
    (item,) = across(gather(tmp_path))
    assert item["cases"][2] == "2"
    assert item["ordered"]
    shuffled = study({**values, "cases": [cases[k] for k in (0, 2, 1, 3, 4, 5)]})
    store.write_plan(to_toml(shuffled), plan(shuffled, shuffled.cells()))
    assert not across(gather(tmp_path))[0]["ordered"]
    cases[2] = {"name": "E = 5"}
    renamed = study({**values, "cases": cases})
    store.write_plan(to_toml(renamed), plan(renamed, renamed.cells()))
    (item,) = across(gather(tmp_path))
    assert not item["ordered"]
    write_report(tmp_path)
    if PROGRAM is None:
        pytest.skip("no Chromium here; install it with: apt-get install chromium")
    with Chromium() as browser:
        browser.open((tmp_path / "report.html").as_uri())
        first = "document.querySelector('.charts figure')"
        assert browser.value(f"{first}.querySelectorAll('path.curve').length") == 0
        assert browser.value(f"{first}.querySelectorAll('circle').length") == 6
        assert "3: E = 5; 4: a long name of a case, number 3;" in browser.value(f"{first}.innerText")
        assert browser.errors == []


def test_one_case_has_no_such_picture(tmp_path: Path) -> None:
    found = study({"name": "x", "strategies": ["FedAvg"], "seeds": 1})
    Store(tmp_path).write_plan(to_toml(found), plan(found, found.cells()))
    assert across(gather(tmp_path)) == []


def test_names_that_share_nothing_or_everything_stay() -> None:
    assert short_names(["a", "a b"]) == (["a", "a b"], "")
    assert short_names(["N = 10, E = 1", "N = 100, E = 1"]) == (["10", "100"], "N = …, E = 1")
