"""``fedalpha partition``: how samples would be split over clients, without training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedalpha.cli.kinds import completing
from fedalpha.cli.options import Plugin, use_plugin
from fedalpha.terminal import console


def partition(
    dataset: Annotated[
        str, typer.Option(help="A data set, as in `fedalpha data list`.", autocompletion=completing("--dataset"))
    ] = "digits",
    partition: Annotated[
        str,
        typer.Option(
            help="Rule that splits it, such as iid, shards(size=30) or dirichlet(a=0.5).",
            autocompletion=completing("--partition"),
        ),
    ] = "shards(size=30)",
    clients: Annotated[int, typer.Option(min=1, help="Number of clients.")] = 20,
    seed: Annotated[int, typer.Option(help="Seed; a run with the same seed has the same partition.")] = 0,
    plugin: Plugin = None,
    plot: Annotated[bool, typer.Option("--plot", help="Draw the partition to FILE (png, pdf or svg).")] = False,
    file: Annotated[Path, typer.Argument(help="File of the picture, with --plot.")] = Path("partition.png"),
) -> None:
    """Show how a data set is split among clients."""
    from fedalpha.data import DATASETS, PARTITIONS, Natural, describe_partition, plot_partition

    use_plugin(plugin)
    data, rule = DATASETS.parse(dataset), PARTITIONS.parse(partition)
    labels, parts = data.holdings(rule, clients, seed)
    title = f"{dataset}, {'clients as given' if isinstance(data, Natural) else rule}, seed {seed}"
    console().print(describe_partition(labels, parts, title))
    if plot:
        typer.echo(f"picture: {plot_partition(labels, parts, data.class_names, file, title)}")
