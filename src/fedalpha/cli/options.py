"""Command-line options made from the fields of `Settings`, so that there is one list of them."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from fedalpha.cli.help import sentence
from fedalpha.cli.kinds import completing
from fedalpha.runs.settings import Settings
from fedalpha.runs.shorthands import SHORTHANDS

File = Annotated[
    Path | None, typer.Argument(help="TOML file (or a run's config.json) with settings; options override it.")
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Number of processes; the result does not depend on it. [default: all cores]")
]
Plugin = Annotated[str | None, typer.Option(help="Python file that registers your own rules and data sets.")]
Log = Annotated[
    list[str] | None,
    typer.Option(
        help="A logger that watches the run, such as csv(rounds.csv) (repeatable).", autocompletion=completing("--log")
    ),
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Allow the plugin, Ray cluster, loggers and files that a file names; a plugin can run any code.",
    ),
]
CheckpointEvery = Annotated[int, typer.Option(min=1, help="Save a checkpoint after every N rounds.")]


def use_plugin(file: str | None) -> None:
    """Load the plugin ``file``, if one was given."""
    if file is not None:
        from fedalpha.plugins import load_plugin

        load_plugin(file)


def with_settings(*without: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command one option per setting; the values that were given arrive as ``options``."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "options"]
        added = []
        for name, info in Settings.model_fields.items():
            if name not in without:
                kind = next((k for k in get_args(info.annotation) if k is not types.NoneType), info.annotation)
                kind = str if name == "lr" else kind
                said, bracket, default = (info.description or "").partition(" [default:")
                option = typer.Option(
                    help=sentence(f"{said}{_short(name)}{bracket}{default}", info.default),
                    show_default=False,
                    autocompletion=completing("--strategy" if name == "shadow" else f"--{name.replace('_', '-')}"),
                )
                annotation = Annotated[kind | None, option]  # type: ignore[valid-type]
                added.append(
                    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
                )

        def wrapper(**values: Any) -> None:
            options = {p.name: values.pop(p.name) for p in added}
            options = {name: value for name, value in options.items() if value not in (None, [])}
            if "lr" in options:
                options["lr"] = _number(options["lr"])
            command(**values, options=options)

        parameters = [*own, *added]
        wrapper.__name__ = command.__name__
        wrapper.__doc__ = command.__doc__
        wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
        return wrapper

    return decorate


def _short(name: str) -> str:
    """What a setting is short for, if it is."""
    stands = [(rule, short[name]) for rule, short in SHORTHANDS.items() if name in short]
    return "".join(f"; short for {rule}=…({argument}=…)" for rule, argument in stands)


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
