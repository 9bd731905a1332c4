"""Help: whole sentences, colours on terminals only, and completion of names."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import click
import pytest
import typer.main
from typer.testing import CliRunner

import fedalpha
from fedalpha.analysis.registered import Table
from fedalpha.cli import app
from fedalpha.cli.kinds import KINDS
from fedalpha.text import Registry


def commands(found: Any = None, name: str = "") -> Iterator[tuple[str, click.Command]]:
    found = found or typer.main.get_command(app)
    for sub, command in getattr(found, "commands", {}).items():
        yield from commands(command, f"{name} {sub}".strip())
    if not hasattr(found, "commands"):
        yield name, found


@pytest.mark.parametrize(
    ("name", "command"), list(commands()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_help_text_is_a_sentence(name: str, command: click.Command) -> None:
    assert command.help is not None
    assert command.help.strip().endswith((".", ")"))
    for parameter in command.params:
        text = getattr(parameter, "help", "") or ""
        said = text.split(" [default")[0].strip()
        assert said, parameter
        assert not said[0].islower() or said.startswith(("quadratics(", "p of R_p")), f"{name} {parameter.name}: {text}"


def test_the_list_of_commands_cuts_no_sentence() -> None:
    shown = " ".join(CliRunner().invoke(app, ["--help"]).output.split())
    assert "..." not in shown.partition("Commands:")[2]
    for name, command in commands():
        if " " not in name:
            assert " ".join((command.help or "").split("\n\n")[0].split()).split(". ")[0] in shown


def test_an_unknown_command_is_named_once_with_what_is_close() -> None:
    said = CliRunner().invoke(app, ["runn"]).output
    assert "No such command 'runn'; did you mean 'run' or 'tune'? (known: run, " in said


def test_colours_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[36m--rounds" in CliRunner().invoke(app, ["run", "--help"], color=True).output
    assert "\x1b" not in CliRunner().invoke(app, ["run", "--help"]).output
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in CliRunner().invoke(app, ["run", "--help"], color=True).output


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("run --strategy FedSoftW", ["FedSoftWorse", "FedSoftWorseAvg"]),
        ("run --shadow FedSoftW", ["FedSoftWorse", "FedSoftWorseAvg"]),
        ("compare --strategy FedSoftW", ["FedSoftWorse", "FedSoftWorseAvg"]),
        ("tune --strategy FedSoftW", ["FedSoftWorse", "FedSoftWorseAvg"]),
        ("resume runs/a --log t", ["tensorboard"]),
        ("compare --log t", ["tensorboard"]),
        ("partition --partition dir", ["dirichlet"]),
        ("list mo", ["models"]),
        ("data get dig", ["digits"]),
    ],
)
def test_the_shell_completes_names(line: str, found: list[str]) -> None:
    count = str(len(line.split()))
    words = {"_FEDALPHA_COMPLETE": "complete_bash", "COMP_WORDS": f"fedalpha {line}", "COMP_CWORD": count}
    script = "import sys; sys.argv[0] = 'fedalpha'; from fedalpha.cli import main; main()"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env={**os.environ, **words}, capture_output=True, text=True, timeout=600)
    assert done.stdout.split() == found


def test_every_registry_is_listed() -> None:
    """A new kind of object appears in `fedalpha list`, in completion and in the reference."""
    known = {id(getattr(import_module(module), name)) for module, name, _ in KINDS.values()}
    found = {}
    for module in walk_packages(fedalpha.__path__, "fedalpha."):
        if not module.name.endswith("__main__"):
            for name, value in vars(import_module(module.name)).items():
                if isinstance(value, Registry | Table):
                    found[id(value)] = f"{module.name}.{name}"
    assert [name for key, name in found.items() if key not in known] == []
