"""``fedalpha list``: everything that can be written as text, by kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer

from fedalpha.cli.kinds import KINDS, kinds
from fedalpha.cli.options import Plugin, use_plugin
from fedalpha.terminal import console
from fedalpha.text import nearest


@dataclass(frozen=True)
class Item:
    """One registered object, as it is shown."""

    signature: str
    lines: tuple[str, ...]
    example: str


def list_(
    kind: Annotated[
        str | None, typer.Argument(help=f"One of: {', '.join(KINDS)} [default: all].", autocompletion=kinds)
    ] = None,
    plugin: Plugin = None,
) -> None:
    """List all registered objects, or those of one kind.

    Each is shown with its formula, its meaning, its reference and an example.
    """
    from rich.padding import Padding

    if kind is not None and kind not in KINDS:
        raise ValueError(f"unknown kind {kind!r}; {nearest(kind, KINDS)}")
    use_plugin(plugin)
    show = console(highlight=False)
    for name in KINDS if kind is None else [kind]:
        show.print(f"\n{name.upper()}", style="bold", markup=False)
        for item in items(name):
            show.print(item.signature, style="bold", markup=False, soft_wrap=True)
            for line in (*item.lines, item.example):
                if line:
                    show.print(Padding(show.render_str(line.replace("``", "`"), markup=False), (0, 0, 0, 4)))
        if name == "strategies":
            show.print(
                "\np: the prior (sizes, or prior=uniform); x_i = F_i − F_i*. They combine, for example:", markup=False
            )
            show.print('  --strategy "cap(switch(FedSoftBetter(T=0.2), FedAvg, at=20), 0.1)"', markup=False)


def items(kind: str) -> Iterator[Item]:
    """The registered objects of a kind."""
    module, registry, use = KINDS[kind]
    show: Callable[[Any, str], Item] = {"measures": _measure, "columns": _column}.get(kind, _entry)
    for found in getattr(import_module(module), registry):
        yield show(found, use)


def _entry(entry: Any, use: str) -> Item:
    return Item(entry.signature, (entry.formula, entry.summary, entry.reference), f'{use} "{entry.examples[0]}"')


def _measure(cls: Any, use: str) -> Item:
    return Item(cls.name, (_first(cls),), f"{use} [{', '.join(repr(text) for text in cls.examples())}]")


def _column(cls: Any, use: str) -> Item:
    return Item(cls.name, (cls.heading, _first(cls)), f'{use}["{cls.name}"]')


def _first(cls: type) -> str:
    return (cls.__doc__ or "").split("\n\n")[0].replace("\n    ", " ")
