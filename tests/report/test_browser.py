"""The page in a real browser: curves drawn, legend works, hover shows values, no complaint."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedalpha.report.single import write_run_report
from fedalpha.study import study
from fedalpha.study.runner import to_toml
from packs import unpack
from report.chromium import PROGRAM, Chromium
from report.conftest import VALUES

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium here; install it with: apt-get install chromium")

CURVES = "document.querySelectorAll('.charts:not(.small) path.curve').length"


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as found:
        yield found


@pytest.fixture
def page(browser: Chromium, shown: Path) -> Iterator[Chromium]:
    browser.errors.clear()
    browser.requests.clear()
    browser.resize(1200, 900)
    browser.open((shown / "report.html").as_uri())
    yield browser
    assert browser.errors == []
    assert all(url.startswith(("file:", "data:")) for url in browser.requests)


def test_curves_are_drawn_inside_their_charts(page: Chromium) -> None:
    assert page.value(CURVES) == 3 * 4  # accuracy, loss, zoom × strategies
    inside = """[...document.querySelectorAll('path.curve')].every((path) => {
        const box = path.getBBox();
        return box.width > 100 && box.height >= 0 && !/NaN/.test(path.getAttribute('d')); })"""
    assert page.value(inside)
    assert page.value("document.querySelectorAll('g.row').length") >= 4 + 5 * 3 - 1
    pixels = "document.querySelector('canvas').getContext('2d').getImageData(0, 0, 6, 6).data"
    assert page.value(f"new Set({pixels}).size") > 5
    assert page.value("document.title") == "Which <rule> is first & best?"


def test_the_diagnostics_are_small_multiples(page: Chromium) -> None:
    titles = page.value("[...document.querySelectorAll('.charts.small h3')].map((h) => h.innerText)")
    assert [title[0] for title in titles] == ["ρ", "π", "Π", "e", "l"]
    assert page.value("document.querySelectorAll('.charts.small path.curve').length") == 5 * 4


def test_a_click_on_the_legend_hides_a_curve_and_another_shows_it(page: Chromium) -> None:
    button = '.legend button[data-strategy="FedWorse"]'
    page.mouse(button, click=True)
    assert page.value(CURVES) == 3 * 3
    assert page.value("document.querySelectorAll('path.curve[data-strategy=FedWorse]').length") == 0
    assert page.value(f"document.querySelector('{button}').getAttribute('aria-pressed')") == "false"
    page.mouse(button, click=True)
    assert page.value(CURVES) == 3 * 4


def test_hover_shows_the_values_of_the_table(page: Chromium, shown: Path) -> None:
    page.mouse("svg", at=(0.999, 0.5))
    tip = page.value("document.querySelector('.tip:not([hidden])').innerText")
    assert "round 6" in tip
    line = next(x for x in (shown / "report.md").read_text().splitlines() if "final round | FedAvg" in x)
    assert line.split("|")[4].strip() in tip


def test_it_reads_well_on_a_phone_in_the_dark_and_on_paper(page: Chromium) -> None:
    page.scheme("dark")
    assert page.value("getComputedStyle(document.body).backgroundColor") == "rgb(22, 24, 27)"
    page.scheme("light")
    assert page.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.resize(390, 844, mobile=True)
    page.wait("document.querySelector('svg').getBoundingClientRect().width < 380")
    assert page.value("document.documentElement.scrollWidth") <= 390
    page.value("document.querySelectorAll('details').forEach((e) => { e.open = true; })")
    assert page.value("document.querySelectorAll('details pre').length") > 0
    assert page.value("document.documentElement.scrollWidth") <= 390
    page.value("document.querySelectorAll('details').forEach((e) => { e.open = false; })")
    page.resize(1200, 900)
    assert page.pdf().startswith(b"%PDF")
    page.medium("print")
    page.resize(900, 700)  # A4, lying, within its margins
    cut = "[...document.querySelectorAll('.scroll')].filter((e) => e.scrollWidth > e.clientWidth).length"
    assert page.value("document.querySelectorAll('.scroll table').length") == 1
    assert page.value(cut) == 0
    page.medium("screen")
    page.resize(390, 844, mobile=True)
    assert page.value(cut) == 0  # there a row is a card


def test_every_number_of_the_table_is_on_a_phones_screen(page: Chromium) -> None:
    page.resize(390, 844, mobile=True)
    page.wait("document.querySelector('svg').getBoundingClientRect().width < 380")
    outside = """[...document.querySelectorAll('.scroll td.number')].filter((cell) => {
        const box = cell.getBoundingClientRect(); return box.left < 0 || box.right > 390; }).length"""
    assert page.value("document.querySelectorAll('.scroll td.number').length") > 10
    assert page.value(outside) == 0
    heads = "getComputedStyle(document.querySelector('.scroll td.number'), '::before').content"
    assert len(page.value(heads)) > 4  # the column's name stands beside the number


def test_the_page_of_a_run_stays_on_a_phones_screen(browser: Chromium, tmp_path: Path) -> None:
    rule = "switch(FedSoftWorse(T=0.2), cap(FedAvg, 0.1), at=10)"
    row = {"round": 1, "accuracy": 0.5, "loss": 1.0, "bytes_up": 10**9, "seconds": 12.5, "cohort": [0], "alpha": [1.0]}
    row |= {"effective_clients": 1.0}
    row["shadow"] = {rule: {"alpha": [1.0], "distance": 0.0, "effective_clients": 1.0, "heaviest": 1.0}}
    (tmp_path / "history.jsonl").write_text(f"{json.dumps(row)}\n")
    browser.resize(390, 844, mobile=True)
    browser.open(write_run_report(tmp_path).as_uri())
    outside = """[...document.querySelectorAll('td')].filter((cell) => {
        const box = cell.getBoundingClientRect(); return box.left < 0 || box.right > 390; }).length"""
    assert browser.value("document.querySelectorAll('td').length") > 10
    assert browser.value(outside) == 0
    (tmp_path / "history.jsonl").write_text(f"{json.dumps({**row, 'round': 0})}\n{json.dumps(row)}\n")
    browser.open(write_run_report(tmp_path).as_uri())
    size = "(() => { const i = document.querySelector('img'); return [i.naturalWidth < i.naturalHeight, i.width]; })()"
    upright, width = browser.value(size)
    assert upright
    assert 300 < width <= 390
    assert "bytes up" in browser.value("getComputedStyle(document.querySelectorAll('td')[12], '::before').content")


def test_names_are_written_in_full_and_the_target_has_its_name(page: Chromium) -> None:
    names = """[...document.querySelectorAll('g.row')].every((row) =>
        [...row.querySelectorAll('.name')].map((t) => t.textContent).join(' ') === row.dataset.strategy)"""
    assert page.value(names)
    page.resize(390, 844, mobile=True)
    page.wait("document.querySelector('svg').getBoundingClientRect().width < 380")
    assert page.value(names)
    cut = """[...document.querySelectorAll('text.name')].filter((name) => {
        const box = name.getBoundingClientRect(); return box.left < 0 || box.right > 390; }).length"""
    assert page.value(cut) == 0
    targets = page.value("[...document.querySelectorAll('text.target')].map((t) => t.textContent)")
    assert set(targets) == {"60 %"}


def test_the_live_page_follows_a_running_study(browser: Chromium, shown: Path, tmp_path: Path) -> None:
    """A cell that appears on disk appears on the page, without a reload."""
    folder = tmp_path / "live"
    shutil.copytree(shown, folder)
    (folder / "study.toml").write_text(to_toml(study(VALUES)))
    missing = {p: p.read_bytes() for p in unpack(folder) if b"FedWorse" in p.read_bytes()}
    assert len(missing) == 3
    for path in missing:
        path.unlink()
    command = [sys.executable, "-c", "from fedalpha.cli import main; main()", "report", str(folder), "--live"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    try:
        assert server.stdout is not None
        browser.errors.clear()
        browser.resize(1200, 900)
        browser.open(server.stdout.readline().split()[0])
        browser.wait(f"{CURVES} === 9")
        assert "9 of 12 cells" in browser.value("document.getElementById('live').innerText")
        for path, content in missing.items():
            path.write_bytes(content)
        browser.wait(f"{CURVES} === 12", seconds=60)
        assert "finished" in browser.value("document.getElementById('live').innerText")
        assert browser.errors == []
    finally:
        server.terminate()
        server.wait()
        assert server.stdout is not None
        server.stdout.close()
