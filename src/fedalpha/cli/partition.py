"""``fedalpha partition``: who would hold what, before anything is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def partition(
    dataset: Annotated[str, typer.Option(help="A data set, as in `fedalpha data list`.")] = "digits",
    partition: Annotated[
        str, typer.Option(help="How to split it, like iid, shards(size=30), dirichlet(a=0.5).")
    ] = "shards(size=30)",
    clients: Annotated[int, typer.Option(help="Number of clients.")] = 20,
    seed: Annotated[int, typer.Option(help="The seed; a run with it has the same partition.")] = 0,
    plot: Annotated[bool, typer.Option("--plot", help="Draw who holds what to FILE (png, pdf or svg).")] = False,
    file: Annotated[Path, typer.Argument(help="The picture, with --plot.")] = Path("partition.png"),
) -> None:
    """Show how a data set is split over clients."""
    from rich.console import Console

    from fedalpha.data import PARTITIONS, describe_partition, load, plot_partition
    from fedalpha.rng import generator

    rule = PARTITIONS.parse(partition)
    source = load(dataset)
    parts = rule.split(source.train_y, clients, generator(seed, "partition"))
    title = f"{dataset}, {rule}, seed {seed}"
    Console().print(describe_partition(source.train_y, parts, title))
    if plot:
        typer.echo(f"picture: {plot_partition(source.train_y, parts, source.class_names, file, title)}")
