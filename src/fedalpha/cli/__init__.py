"""The command line: ``fedalpha``. Each command has a file of its own; torch is imported when one trains."""

from __future__ import annotations

import sys
from unicodedata import category

import click
import typer
import typer.core

from fedalpha.cli import data
from fedalpha.cli.compare import compare
from fedalpha.cli.help import Command, Group
from fedalpha.cli.list import list_
from fedalpha.cli.partition import partition
from fedalpha.cli.report import report
from fedalpha.cli.reproduce import calibrate, reproduce
from fedalpha.cli.resume import resume
from fedalpha.cli.run import run
from fedalpha.cli.study import status, study
from fedalpha.cli.theory import theory
from fedalpha.cli.tune import tune
from fedalpha.terminal import plain_streams
from fedalpha.text import shown
from fedalpha.trust import no_settings_from_here

typer.core.HAS_RICH = False  # typer writes "\\[" for "[" in plain help where rich is installed

app = typer.Typer(
    name="fedalpha",
    help="How a federated-learning server should weigh its clients.",
    cls=Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


class _Command(Command):
    """A command that refuses paths with control characters: they could print lines, or steer a terminal."""

    def invoke(self, ctx: click.Context) -> object:
        for parameter in self.params:
            value = str(ctx.params.get(str(parameter.name)))
            if isinstance(parameter.type, click.Path) and any(category(c) == "Cc" for c in value):
                raise ValueError(f"the name '{shown(value)}' has control characters; rename the file or folder")
        return super().invoke(ctx)


for _command in (run, resume, compare, study, status, tune, report, reproduce, calibrate):
    app.command(cls=_Command)(_command)
app.command("list", cls=_Command)(list_)
app.command(cls=_Command)(partition)
app.command(cls=_Command)(theory)
app.add_typer(data.app, name="data")


_LONGEST = 4_000
"""How much of an error is shown."""


def _version(show: bool) -> None:
    if show:
        from fedalpha import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(
        False, "--version", is_eager=True, callback=_version, help="Show the version and exit.", show_default=False
    ),
) -> None:
    """How a federated-learning server should weigh its clients."""


def main() -> None:
    """Run the command line. The exit code is 2 for wrong input, 1 for a failure and 130 for Ctrl-C."""
    with plain_streams(), no_settings_from_here():
        try:
            app()
        except ValueError as error:
            _fail(error, 2)
        except (OSError, RuntimeError, ImportError) as error:
            _fail(error, 1)
        except KeyboardInterrupt:
            sys.exit(130)


def _fail(error: Exception, code: int) -> None:
    for line in (f"fedalpha: {error}", *getattr(error, "__notes__", [])):
        print(line if len(line) < _LONGEST else f"{line[:_LONGEST]}…", file=sys.stderr)
    sys.exit(code)
