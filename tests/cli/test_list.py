"""``fedalpha list`` shows every registered object of every kind."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from fedalpha.cli import app
from fedalpha.cli.kinds import KINDS
from fedalpha.cli.list import items
from fedalpha.strategies import STRATEGIES


@pytest.mark.parametrize("kind", KINDS)
def test_every_object_is_shown_with_a_meaning_and_an_example(kind: str) -> None:
    found = list(items(kind))
    assert found
    assert all(any(item.lines) and item.example for item in found)


def test_the_command_prints_formulas_and_references() -> None:
    done = CliRunner().invoke(app, ["list", "strategies"])
    assert done.exit_code == 0
    shown = " ".join(done.output.split())
    for entry in STRATEGIES:
        assert " ".join(entry.formula.split()) in shown
    assert "``" not in shown
    wrong = CliRunner().invoke(app, ["list", "strategy"])
    assert isinstance(wrong.exception, ValueError)
    assert "did you mean 'strategies'" in str(wrong.exception)
