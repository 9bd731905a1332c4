"""``fedalpha compare``: several strategies over several seeds, paired."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedalpha.cli.options import File, Workers, with_settings

if TYPE_CHECKING:
    from fedalpha.history import History


@with_settings("strategy", "seed")
def compare(
    file: File = None,
    strategy: Annotated[
        list[str] | None, typer.Option(help="A strategy to compare (repeatable); the first is the reference.")
    ] = None,
    seeds: Annotated[str, typer.Option(help="How many seeds (5), or which (3,4,5 or 10-19).")] = "3",
    target: Annotated[float, typer.Option(min=0, max=1, help="p of R_p, the rounds to reach that accuracy.")] = 0.6,
    out: Annotated[Path | None, typer.Option(help="Folder for all runs, the table and the curves.")] = None,
    workers: Workers = None,
    *,
    options: dict[str, Any],
) -> None:
    """Compare strategies on the same seeds: the same models, partitions, cohorts and batches for each."""
    from fedalpha.settings import VALIDATION_SHARE, read_settings, settings
    from fedalpha.strategies import STRATEGIES

    base = read_settings(file, options)
    chosen = list(dict.fromkeys(str(STRATEGIES.parse(s)) for s in strategy or ["FedAvg", "FedSoftWorse(T=0.2)"]))
    numbers = parse_seeds(seeds)
    if base.validation is None:  # one decision for all strategies, so that they train on the same data
        looks = base.signal == "validation" and any("accuracy" in STRATEGIES.parse(s).requires for s in chosen)
        base = base.model_copy(update={"validation": VALIDATION_SHARE if looks else 0.0})
    cells = [
        settings({**base.model_dump(exclude_none=True), "strategy": s, "seed": n}).resolved()
        for n in numbers
        for s in chosen
    ]
    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} is not an empty folder; choose another one or remove it")

    from fedalpha.cli.progress import ShowProgress
    from fedalpha.comparison import table

    runs: dict[str, list[History]] = {s: [] for s in chosen}
    progress = ShowProgress("", total=len(cells) * base.rounds)
    interrupted = False
    try:
        for cell in cells:
            progress.label = f"{cell.strategy}, seed {cell.seed}"
            folder = None if out is None else out / f"{folder_name(cell.strategy)}-seed{cell.seed}"
            history = cell.run(out=folder, workers=workers, callbacks=[progress])
            if history.interrupted:
                interrupted = True
                break
            runs[cell.strategy].append(history)
    finally:
        progress.close()
    finished = {s: histories for s, histories in runs.items() if histories}
    if finished:
        rows = table(finished, target)
        _show(rows, target)
        if out is not None:
            from fedalpha.plots import plot_comparison

            count = f"{len(numbers)} seeds, mean with 95 % band" if len(numbers) > 1 else f"seed {numbers[0]}"
            title = f"{base.dataset}, {base.partition}, {base.clients} clients; {count}"
            plot_comparison(finished, out / "curves.png", title, target)
            record = {"strategies": chosen, "seeds": numbers, "target": target, "table": rows}
            (out / "comparison.json").write_text(json.dumps(record, indent=2) + "\n")
            print(f"written to {out}: a folder per run, comparison.json, curves.png")
    if interrupted:
        print("interrupted; what is shown are the finished runs")
        raise typer.Exit(130)


def _show(rows: list[dict[str, Any]], target: float) -> None:
    from rich.console import Console
    from rich.table import Table

    shown = Table(title="mean ± 95 % over seeds (Student t); the final round", title_justify="left")
    shown.add_column("strategy", overflow="fold", min_width=24)
    for heading in ("seeds", "final accuracy (%)", f"R_{100 * target:g} (rounds)", "paired difference (points)"):
        shown.add_column(heading, justify="right")
    for row in rows:
        shown.add_row(
            row["strategy"], str(row["seeds"]), row["accuracy_text"], row["rounds_text"], row["difference_text"]
        )
    console = Console()
    (console if console.is_terminal else Console(width=120)).print(shown)


def folder_name(strategy: str) -> str:
    """A strategy's text as a folder's name.

    >>> folder_name("switch(FedSoftBetter(T=0.2), FedAvg, at=20)")
    'switch-FedSoftBetter-T=0.2-FedAvg-at=20'
    """
    kept = "".join(c if c.isalnum() or c in "=." else " " for c in strategy)
    return "-".join(kept.split())


def parse_seeds(text: str) -> list[int]:
    """Seeds from a count, a list or a range.

    >>> parse_seeds("3"), parse_seeds("4,7"), parse_seeds("10-12")
    ([0, 1, 2], [4, 7], [10, 11, 12])
    """
    try:
        if "," in text:
            found = [int(part) for part in text.split(",") if part.strip()]
        elif "-" in text.strip("-"):
            first, last = (int(part) for part in text.split("-"))
            found = list(range(first, last + 1))
        else:
            found = list(range(int(text)))
    except ValueError:
        found = []
    if not found or min(found) < 0 or len(set(found)) != len(found):
        raise ValueError(f"seeds = {text!r}; give a count (5), a list (3,4,5) or a range (10-19)")
    return found
