"""Nothing that somebody else wrote steers the terminal, whichever command prints it."""

from __future__ import annotations

import ast
import io
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
import typer.main

import fedalpha
from fedalpha import cli
from fedalpha.terminal import Plain, console, plain_streams

EVIL = "a\x1b]52;c;cm0=\x07\x1b[31m"


def test_whoever_prints_is_cleaned(capsys: pytest.CaptureFixture[str]) -> None:
    with plain_streams():
        print(f"{EVIL}\n\tb")
        sys.stderr.writelines([EVIL, "\r"])
        assert not hasattr(sys.stdout, "buffer")
    out, err = capsys.readouterr()
    assert out == "a\\x1b]52;c;cm0=\\x07\\x1b[31m\n\tb\n"
    assert err == "a\\x1b]52;c;cm0=\\x07\\x1b[31m\\r"


def test_a_name_that_is_not_unicode_can_be_printed() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    Plain(stream).write("caf\udce9 α")
    stream.flush()
    assert stream.buffer.getvalue() == "caf\\udce9 α".encode()


def test_tables_and_bars_keep_their_colours_but_not_those_of_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.progress import Progress, TextColumn
    from rich.table import Table

    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    with plain_streams():
        show = console(force_terminal=True, width=100, color_system="standard", legacy_windows=False)
        table = Table(title=EVIL)
        table.add_row(EVIL, style="red")
        show.print(table)
        with Progress(TextColumn("{task.description}", markup=False), console=show) as bar:
            bar.add_task(EVIL)
            print(EVIL)
    text = stream.getvalue()
    assert text.count("\\x1b]52") >= 4
    assert "\x1b]52" not in text
    assert "\x07" not in text
    assert "\x1b[31m│" not in text  # the style of a cell, not of the border
    assert "\x1b[31m" in text


def test_consoles_of_rich_are_made_in_one_place() -> None:
    """Any other console would go round the cleaning, or lose its colours."""
    root = Path(fedalpha.__file__).parent
    found = []
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "rich.console":
                found += [path.relative_to(root).as_posix() for alias in node.names if alias.name == "Console"]
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Progress":
                assert any(word.arg == "console" for word in node.keywords) or not node.args, path
    assert set(found) == {"terminal.py"}


@pytest.mark.parametrize("command", ["run", "resume", "compare", "study", "status", "tune", "report", "theory"])
def test_a_path_with_control_characters_is_refused(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line feed in a folder's name would print lines that look like ours."""
    evil = tmp_path / f"{EVIL}\nfedalpha: all is well"
    given = [str(evil)] if command in ("resume", "status", "report", "study") else ["--out", str(evil)]
    monkeypatch.setattr(sys, "argv", ["fedalpha", command, *given])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capsys.readouterr()
    assert ended.value.code == 2
    assert err.startswith("fedalpha: the name '")
    assert "has control characters; rename" in err
    assert err.count("\n") == 1
    assert not {"\x1b", "\x07"} & set(out + err)
    assert not evil.exists()


def test_every_command_with_a_path_checks_it() -> None:
    group = typer.main.get_command(cli.app)
    commands = group.commands.items()  # type: ignore[attr-defined]
    with_paths = {n for n, c in commands if any(isinstance(p.type, click.Path) for p in c.params)}
    assert with_paths >= {"run", "resume", "compare", "study", "status", "tune", "report", "theory", "partition"}
    assert {n for n, c in commands if isinstance(c, cli._Command)} >= with_paths


def test_hostile_texts_on_the_command_line(tmp_path: Path) -> None:
    """Options, files and plugins with escape sequences: errors by typer, by us and by Python."""
    (tmp_path / "given.toml").write_text(f"strategy = {EVIL!r}\n".replace("'", '"').replace("\\x1b", "\\u001b"))
    (tmp_path / "evil.py").write_text(f"import sys, warnings\nprint({EVIL!r})\nwarnings.warn({EVIL!r})\n")
    for words in (
        ["run", f"--{EVIL}"],
        ["run", "--rounds", EVIL],
        [EVIL],
        ["list", EVIL],
        ["run", "--strategy", EVIL],
        ["run", "given.toml"],
        ["data", "get", EVIL],
        ["strategies", "--plugin", "evil.py"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "fedalpha", *words],
            capture_output=True,
            cwd=tmp_path,
            env={**os.environ, "FEDALPHA_STATE": str(tmp_path)},
            timeout=300,
        )
        assert not {0x1B, 0x07} & set(done.stdout + done.stderr), words
