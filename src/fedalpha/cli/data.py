"""``fedalpha data``: which data sets there are, and getting them."""

from __future__ import annotations

from typing import Annotated

import typer

from fedalpha.cli.help import Command, Group
from fedalpha.cli.kinds import completing
from fedalpha.cli.options import Plugin, use_plugin
from fedalpha.terminal import console

app = typer.Typer(help="List and fetch data sets.", cls=Group, no_args_is_help=True)


@app.command("list", cls=Command)
def list_(plugin: Plugin = None) -> None:
    """List the data sets.

    Shows their sizes, shapes and classes, and where their files are or would be fetched from.
    """
    from rich.table import Table

    from fedalpha.data import DATASETS
    from fedalpha.data.fetching import cache_folder

    use_plugin(plugin)
    table = Table("name", "train", "test", "shape", "classes", "MB", "where")
    for entry in DATASETS:
        data = DATASETS.parse(entry.examples[0])
        train, test = ("–", "–") if data.samples is None else (f"{count:,}" for count in data.samples)
        shape = "×".join(map(str, data.shape))
        _, origin = data.origin()
        table.add_row(entry.name, train, test, shape, str(len(data.class_names)), f"{data.megabytes:g}", origin)
    console().print(table)
    typer.echo(f"cache: {cache_folder()}")


@app.command("get", cls=Command)
def get(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME…", help="Data sets, as in `fedalpha data list`.", autocompletion=completing("--dataset")
        ),
    ],
    plugin: Plugin = None,
) -> None:
    """Fetch data sets and check their files.

    The files are stored in the cache folder.
    """
    from fedalpha.data import DATASETS

    use_plugin(plugin)
    for name in names:
        typer.echo(f"{name}: {DATASETS.parse(name).fetch() or 'made on demand, nothing to fetch'}")
