"""``fedalpha bench``: long measurements, each with a page under docs/results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedalpha.cli.bench_speed import profile, speed

app = typer.Typer(help="Long measurements: each writes a page with tables and pictures.", no_args_is_help=True)


@app.callback()
def bench() -> None:
    """Long measurements."""


app.command()(speed)
app.command()(profile)


@app.command()
def reliability(
    out: Annotated[Path, typer.Option(help="Folder for the tables.")] = Path("docs/results/reliability"),
    seeds: Annotated[str, typer.Option(help="Seeds of the Byzantine table: a count (3) or which (4,5).")] = "3",
    faults: Annotated[int, typer.Option(min=1, help="Faults per strategy in the fault matrix, at least.")] = 1000,
    byzfl: Annotated[
        Path | None, typer.Option(help="Environment for ByzFL, made if it is not there; none leaves ByzFL out.")
    ] = None,
) -> None:
    """The fault matrix, the Byzantine table, ByzFL's aggregators on the same vectors, and what saving costs.

    Stopped, it goes on where it was: finished cells of the Byzantine table are not run again.
    """
    from fedalpha.bench.reliability import measure
    from fedalpha.study.plan import parse_seeds

    measure(out, parse_seeds(seeds), faults, byzfl, lambda line: print(line, flush=True))
    print(f"written to {out}: README.md, faults.json, vectors.json, saving.json, byzantine.jsonl, byzantine.png")
