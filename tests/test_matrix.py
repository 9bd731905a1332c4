"""The matrix of settings: what is counted, and that the page shows what is stored."""

from __future__ import annotations

from pathlib import Path

import pytest

import matrix

REPORT = """<testsuites><testsuite tests="4" errors="0" failures="1" skipped="2">
<testcase classname="a" name="one"/>
<testcase classname="a" name="two"><failure message="no">text</failure></testcase>
<testcase classname="b" name="three"><skipped message="no AVX2"/></testcase>
<testcase classname="b" name="four"><skipped message="no AVX2"/></testcase>
</testsuite></testsuites>"""


def test_the_page_shows_what_is_stored() -> None:
    found = matrix.stored(matrix.STORED)
    shown = matrix.PAGE.read_text().partition(matrix.BEGIN)[2].partition(matrix.END)[0]
    assert shown.strip() == matrix.table(found).strip()


def test_a_report_is_counted_stored_and_shown(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    counts = matrix.counted(tmp_path / "report.xml")
    assert counts == {"passed": 1, "failed": ["a::two"], "skipped": {"no AVX2": 2}}
    facts = {"python": "3.11.7", "torch": "2.9.1+cpu", "numpy": "2.3", "scipy": "1.16", "numba": "0.62", "threads": "2"}
    setting = matrix.SETTINGS[0].name
    matrix.Outcome(setting, "abc", facts, **counts).store(tmp_path)
    (found,) = matrix.stored(tmp_path)
    assert matrix.table([found]).splitlines()[2:] == [
        f"| {setting} | 3.11.7 | 2.9.1 | 2.3 | 1.16 | 0.62 | 2 | 1 | 1 | 2 | abc |",
        "",
        f"- {setting}: `a::two`",
    ]


def test_settings_have_names_of_their_own_and_cover_threads_numba_versions_and_processors() -> None:
    names = [setting.name for setting in matrix.SETTINGS]
    assert len(set(names)) == len(names)
    for part in ("=1", "=2", "=4", "numba", "3.12", "3.13", "no AVX", "AVX2", "Intel"):
        assert any(part in name for name in names), part


def test_the_short_form_is_a_row_of_its_own(tmp_path: Path) -> None:
    one = matrix.SETTINGS[1]
    short = matrix.replace(one, short=True)
    assert short.runs(["-n", "2"]) == [["-p", "no:xdist", *one.machine.part]] != one.runs(["-n", "2"])
    for setting in (short, one):
        matrix.Outcome(setting.name, reason="no time").store(tmp_path)
    assert {found.setting for found in matrix.stored(tmp_path)} == {one.name, f"{one.name}, short form"}


def test_without_the_emulator_the_reason_is_stored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(matrix.shutil, "which", lambda _: None)
    outcome = matrix.tried(matrix.SETTINGS[-1], tmp_path, ())
    assert "qemu-x86_64 is not installed" in outcome.reason
    assert "not run: qemu-x86_64" in outcome.row()
