"""Own strategies in a file, named on the command line and in studies."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from commands import fedalpha
from fedalpha.plugins import load_plugin
from fedalpha.runs.settings import settings

README = Path(__file__).parents[1] / "README.md"


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """The README's example of a new strategy."""
    file = tmp_path / "rules.py"
    (code,) = re.findall(r"```python\n([^`]*?class Tempered.*?)```", README.read_text(), re.DOTALL)
    file.write_text(code)
    return file


def test_a_run_with_an_own_strategy_goes_on_and_belongs_to_its_code(rules: Path) -> None:
    run = ("run", "--plugin", "rules.py", "--strategy", "cap(Tempered(power=2.0), 0.2)", "--rounds", "2", "--out", "a")
    done = fedalpha(*run, cwd=rules.parent)
    assert done.returncode == 0, done.stderr
    config = json.loads((rules.parent / "a" / "config.json").read_text())
    assert re.fullmatch(re.escape(str(rules.parent / "rules.py")) + "@[0-9a-f]{16}", config["plugin"])
    again = fedalpha("resume", "a", cwd=rules.parent)
    assert "nothing is left to do" in again.stdout
    assert "`fedalpha run a/config.json --rounds N --out a` lengthens it" in again.stdout
    elsewhere = fedalpha("resume", str(rules.parent / "a"), cwd=rules.parent / "a")  # by the absolute path
    assert "nothing is left to do" in elsewhere.stdout, elsewhere.stderr

    rules.write_text(rules.read_text().replace("0.5", "0.7"))
    changed = fedalpha("resume", "a", cwd=rules.parent)
    assert changed.returncode == 2
    assert "rules.py has changed since" in changed.stderr


def test_a_study_compares_an_own_strategy_and_runs_it_again_when_its_code_changes(rules: Path) -> None:
    pandas = pytest.importorskip("pandas")
    (rules.parent / "mine.toml").write_text(
        'name = "mine"\nstrategies = ["FedAvg", "Tempered", "switch(Tempered, FedAvg, at=1)"]\nseeds = 2\n'
        '[settings]\nplugin = "rules.py"\nrounds = 2\nclients = 5\n'
    )

    def run() -> int:
        done = fedalpha("study", "mine.toml", "--trust", cwd=rules.parent)
        assert done.returncode == 0, done.stderr
        assert "Tempered" in done.stdout
        return len(pandas.read_parquet(rules.parent / "runs" / "mine" / "cells.parquet").cell.unique())

    assert [run(), run()] == [6, 6]
    rules.write_text(rules.read_text().replace("0.5", "0.7"))
    assert run() == 12
    rules.unlink()
    for command in ("status", "report"):  # the rows are there, so the rules are not needed
        done = fedalpha(command, "runs/mine", cwd=rules.parent)
        assert done.returncode == 0, done.stderr


def test_own_strategies_are_listed(rules: Path) -> None:
    listed = fedalpha("list", "strategies", "--plugin", "rules.py", cwd=rules.parent).stdout
    assert "Tempered(power=0.5)" in listed


def test_a_rule_that_forgets_its_state_is_told(rules: Path) -> None:
    rules.write_text(rules.read_text().replace("return a / a.sum(), state", "return a / a.sum()"))
    done = fedalpha("run", "--plugin", "rules.py", "--strategy", "Tempered", "--rounds", "1", cwd=rules.parent)
    assert "let it return the pair (alpha, state)" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_is_run_once(tmp_path: Path) -> None:
    file = tmp_path / "once.py"
    file.write_text("import sys\nsys.modules.setdefault('fedalpha_test_count', []).append(1)\n")
    try:
        named = settings({"plugin": str(file)}).plugin
        assert named == settings({"plugin": named}).plugin == load_plugin(str(file))
        assert sys.modules["fedalpha_test_count"] == [1]
    finally:
        sys.modules.pop("fedalpha_test_count", None)
    file.write_text("changed = True\n")
    with pytest.raises(ValueError, match="start a new process"):
        load_plugin(str(file))


@pytest.mark.parametrize(
    ("name", "text", "named"),
    [
        ("broken.py", "x = 1\n\nraise KeyError('gone')\n", r"broken\.py, line 3: KeyError: 'gone'"),
        ("syntax.py", "def f(:\n", r"syntax\.py.*SyntaxError"),
        ("rules.txt", "", "must end in .py"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, name: str, text: str, named: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=named):
        settings({"plugin": str(tmp_path / name)})


@pytest.mark.parametrize(
    ("code", "options", "named"),
    [
        (
            "from fedalpha.analysis.columns import COLUMNS, Column\n\n\n@COLUMNS.register\nclass Mine(Column):\n"
            '    name = "accuracy"\n\n    def value(self, context):\n        return None\n',
            (),
            "the column 'accuracy' is registered already; choose another name",
        ),
        (
            "from fedalpha.select import SELECTIONS, Select\n\n\n@SELECTIONS.register()\nclass nobody(Select):\n"
            "    def select(self, state, population, losses, rng):\n        return [], state\n",
            ("--select", "nobody", "--ratio", "0.5"),
            "nobody has no C; leave ratio = 0.5 out",
        ),
    ],
    ids=["a column of a built-in's name", "a selection without a ratio"],
)
def test_a_rule_that_does_not_fit_is_told(tmp_path: Path, code: str, options: tuple[str, ...], named: str) -> None:
    (tmp_path / "rules.py").write_text(code)
    done = fedalpha("run", "--plugin", "rules.py", *options, "--rounds", "1", cwd=tmp_path)
    assert done.returncode == 2
    assert named in done.stderr
    assert "Traceback" not in done.stderr
