"""``fedalpha data``: which data sets there are, and getting them."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(help="List and fetch data sets.", no_args_is_help=True)


@app.command("list")
def list_() -> None:
    """List the data sets: what they hold, and where they are or would come from."""
    from rich.console import Console
    from rich.table import Table

    from fedalpha.data.fetching import cache_folder
    from fedalpha.data.sources import catalogue

    table = Table("name", "train", "test", "shape", "classes", "MB", "where")
    for row in catalogue():
        shape = "×".join(map(str, row.shape))
        table.add_row(
            row.name, f"{row.train:,}", f"{row.test:,}", shape, str(row.classes), f"{row.megabytes:g}", row.origin
        )
    Console().print(table)
    typer.echo(f"cache: {cache_folder()}")


@app.command("get")
def get(
    names: Annotated[list[str], typer.Argument(metavar="NAME…", help="Data sets, as in `fedalpha data list`.")],
) -> None:
    """Fetch data sets, check them, and keep them in the cache folder."""
    from fedalpha.data.sources import fetch

    for name in names:
        typer.echo(f"{name}: {fetch(name)}")
