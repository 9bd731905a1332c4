"""Folders of studies that tune, made by somebody else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from fedalpha import trust
from fedalpha.cli.tuning import show_tuning
from fedalpha.report.race import draw_races
from fedalpha.study import Study, read_study, read_tuning, study, tune
from fedalpha.study.tuning.answer import answer
from fedalpha.study.tuning.spaces import Space

pytest.importorskip("pyarrow")
EVIL = "=x\x1b]52;c;cm0=\x07 <script>alert(1)</script> [x](javascript:y)"


def small() -> Study:
    values = {"name": "small", "strategies": ["FedAvg", "FedSoftWorse(T=log(0.05, 5))"], "seeds": 3}
    settings = {"partition": "iid", "clients": 4, "model": "softmax", "rounds": 1}
    return study({**values, "settings": settings, "tune": {"budget": 16, "candidates": 2, "sampler": "random"}})


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuning") / "given"
    tune(small(), folder, jobs=2)
    return folder


@pytest.fixture
def given(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "given"))


def changed(folder: Path, change: Any) -> None:
    journal = json.loads((folder / "tune.json").read_text())
    change(journal)
    (folder / "tune.json").write_text(json.dumps(journal))


def test_a_picture_that_is_a_link_is_replaced(given: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (given / "race.png").symlink_to(tmp_path / "precious")
    draw_races(given)
    assert (tmp_path / "precious").read_text() == "mine"
    assert not (given / "race.png").is_symlink()


@pytest.mark.parametrize(
    "change",
    [
        lambda journal: journal.pop("cases"),
        lambda journal: journal.update(cases={"": []}),
        lambda journal: journal.update(reference="x" * 10**6),
        lambda journal: journal.update(measure=7),
        lambda journal: journal.update(error=0),
        lambda journal: journal["cases"][""]["methods"].popitem(),
        lambda journal: journal["cases"][""]["reported"].update(scores={}),
        lambda journal: journal["cases"][""]["reported"]["scores"].update(FedAvg=[None]),
        lambda journal: journal["cases"][""]["reported"].update(dropped={"FedAvg": {"seeds": 1, "behind": "nobody"}}),
        lambda journal: journal["cases"][""]["methods"]["FedAvg"].update(generations=[]),
        lambda journal: journal.update(format="\x1b[2J"),
    ],
)
def test_a_forged_journal_is_a_short_error(given: Path, change: Any) -> None:
    changed(given, change)
    for read in (show_tuning, draw_races):
        with pytest.raises(ValueError, match=r"tune\.json (is damaged|has format)") as error:
            read(given)
        assert len(str(error.value)) < 1_000
        assert "\x1b" not in str(error.value)


def test_a_journal_nested_without_end_is_a_short_error(given: Path) -> None:
    (given / "tune.json").write_text('{"format": 1, "study": ' + "[" * 100_000)
    with pytest.raises(ValueError, match=r"cannot read .*tune\.json"):
        read_tuning(given)


def test_names_in_a_journal_are_cleaned(given: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (given / "tune.json").write_text((given / "tune.json").read_text().replace('"FedAvg"', json.dumps(EVIL)))
    changed(given, lambda journal: journal.update(name=EVIL))
    show_tuning(given)
    assert "\x1b" not in capsys.readouterr().out
    markdown = answer(read_tuning(given)).markdown()
    assert "<script" not in markdown
    assert "](javascript" not in markdown


def test_proposed_points_that_are_not_of_the_space_are_not_used(given: Path) -> None:
    """A resumed search takes its points from tune.json: no other setting, and no other value, may come in that way."""

    def forge(journal: dict[str, Any]) -> None:
        generation = journal["cases"][""]["methods"]["FedSoftWorse(T=log(0.05, 5))"]["generations"][0]
        generation["new"] = [{"strategy.T": 10**6, "plugin": "evil.py"}]

    before = (given / "tune.json").read_bytes()
    changed(given, forge)
    tune(small(), given, jobs=1)
    assert (given / "tune.json").read_bytes() == before


def test_a_space_stands_for_no_name_of_a_rule() -> None:
    """What a search may try is met at the corners of its space, so that the user is asked; names would multiply it."""
    with pytest.raises(ValueError, match="a space cannot stand for the name of a rule"):
        Space.of({"clock": "choice(trace, jitter)('constant')"})


def test_a_space_knows_its_points() -> None:
    space = Space.of({"strategy": "FedWorse(k=whole(1, 3))", "lr": "log(0.01, 1)", "batch": [8, 16]})
    good = {"strategy.k": 2, "lr": 0.1, "batch": 8}
    assert space.holds(good)
    bad: list[dict[str, Any]] = [{"strategy.k": 2.5}, {"strategy.k": True}, {"lr": 2}, {"lr": "0.1"}, {"batch": 8.0}]
    for change in (*bad, {"batch": [8]}, {"x": 1}):
        assert not space.holds({**good, **change})
    assert not space.holds({"lr": 0.1})
    assert not space.holds([1])  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["plugin", "engine", "ray_address", "log"])
def test_what_needs_the_users_word_is_not_searched(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods are laid out after the file was read, when nobody would ask any more."""
    monkeypatch.setenv("FEDALPHA_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(trust, "_allowed", set())
    value = '["csv(x)"]' if key == "log" else '"x.py"'
    file = tmp_path / "study.toml"
    for where in (f'[[methods]]\nname = "m"\n{key} = {value}\n', f"[tune.space]\n{key} = {value}\n"):
        file.write_text(f'name = "x"\nstrategies = ["FedAvg", "FedWorse"]\nseeds = 2\n[tune]\nbudget = 64\n{where}')
        with pytest.raises(ValueError, match=f"{key} is the same for all methods"):
            read_study(file)
    assert not trust.trusted_file().exists()
