"""The command line of the benchmarks: where results go, and what is said about wrong options."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

from benchmarks.__main__ import app

ROOT = Path(__file__).parents[2]


def test_results_go_to_runs_unless_told_otherwise() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    outs = {name: p.default for name, command in commands.items() for p in command.params if p.name == "out"}
    assert set(outs) == set(commands) - {"saving"}
    assert all(out.parts[:2] == ("runs", "benchmarks") for out in outs.values())


def test_the_stored_results_are_extended_where_they_are_named(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs/results/methods", tmp_path / "methods")
    (tmp_path / "methods/methods.png").unlink(missing_ok=True)
    page = Path(shutil.copy(ROOT / "docs/methods.md", tmp_path))
    arguments = ["methods", "--draw", "--out", str(tmp_path / "methods"), "--page", str(page)]
    assert CliRunner().invoke(app, arguments, catch_exceptions=False).exit_code == 0
    assert page.read_text() == (ROOT / "docs/methods.md").read_text()
    assert (tmp_path / "methods/methods.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["speed", "--workload", "F"], "unknown workload 'F'"),
        (["speed", "--peer", "pfll"], "did you mean 'pfl'"),
        (["speed", "--peer", "pfl", "--no-peers"], "exclude each other"),
        (["methods", "--only", "digit"], "did you mean 'digits'"),
        (["methods", "--only", "fashion-mnist"], "run digits first"),
        (["methods", "--draw"], "holds no results"),
    ],
)
def test_wrong_options_are_named(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path)])
    assert isinstance(done.exception, ValueError)
    assert message in str(done.exception)
    assert list(tmp_path.iterdir()) == []


def test_a_checkout_runs_them_and_an_error_is_one_line() -> None:
    command = [sys.executable, "-m", "benchmarks", "methods", "--only", "digit"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("benchmarks: unknown federation 'digit'")
    assert len(done.stderr.splitlines()) == 1
