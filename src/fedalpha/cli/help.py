"""Help texts: colours on a terminal (none with ``NO_COLOR`` or in a file), whole sentences in the list of commands."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

import click
import typer.core

from fedalpha.text import nearest, quoted


class Formatter(click.HelpFormatter):
    """Headings are bold, and names of options and commands have a colour."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(prog, args, _styled(prefix or "Usage: ", bold=True))

    def write_heading(self, heading: str) -> None:
        super().write_heading(_styled(heading, bold=True))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        super().write_dl([(_styled(name, fg="cyan"), said) for name, said in rows], col_max, col_spacing)


def _styled(text: str, *, bold: bool = False, fg: str | None = None) -> str:
    return text if os.environ.get("NO_COLOR") else click.style(text, bold=bold or None, fg=fg)


class Context(click.Context):
    formatter_class = Formatter


def _show(ctx: click.Context, stderr: bool = False) -> None:
    """Print the help past `fedalpha.terminal.Plain`, which would escape its colours: no text of others is in it."""
    stream = sys.stderr if stderr else sys.stdout
    click.echo(ctx.get_help(), file=getattr(stream, "unchecked", stream), color=ctx.color)


def _asked(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        _show(ctx)
        ctx.exit()


class _Coloured(click.Command):
    """Shows its help in colours."""

    context_class = Context

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        option = super().get_help_option(ctx)
        if option is not None:
            option.callback = _asked
        return option


class Command(_Coloured, typer.core.TyperCommand):
    """A command with coloured help."""


class Group(_Coloured, typer.core.TyperGroup):
    """Commands with coloured help; each is listed with its whole first sentence."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            _show(ctx, stderr=True)
            ctx.exit(2)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of the first word. typer and click would both append what is close to an unknown one."""
        if not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None:
            ctx.fail(f"No such command {quoted(args[0])}; {nearest(args[0], self.commands)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _first_sentence(found)) for name, found in self.commands.items()])


def _first_sentence(command: click.Command) -> str:
    paragraph = " ".join((command.help or "").split("\n\n")[0].split())
    return paragraph.split(". ")[0].rstrip(".") + "." if paragraph else ""


def sentence(text: str, default: object = None) -> str:
    """The description of a setting as the help of an option.

    >>> sentence("number of rounds", 30)
    'Number of rounds. [default: 30]'
    >>> sentence("model, such as cnn [default: the data set's]")
    "Model, such as cnn. [default: the data set's]"
    """
    said, bracket, own = text.partition(" [default:")
    if isinstance(default, float):
        default = f"{default:g}"
    shown = f" [default: {default}]" if default is not None else f"{bracket}{own}"
    return f"{said[:1].upper()}{said[1:]}.{shown}" if said else shown.strip()
