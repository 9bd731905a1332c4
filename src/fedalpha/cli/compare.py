"""``fedalpha compare``: several strategies over several seeds, paired."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedalpha.cli.options import File, Trust, Workers, with_settings

if TYPE_CHECKING:
    from fedalpha.analysis.comparison import Summary
    from fedalpha.analysis.history import History
    from fedalpha.runs.callbacks import Callback
    from fedalpha.runs.settings import Settings


@with_settings("strategy", "seed", "stop", "keep", "shadow")
def compare(
    file: File = None,
    strategy: Annotated[
        list[str] | None, typer.Option(help="A strategy to compare (repeatable); the first is the reference.")
    ] = None,
    seeds: Annotated[str, typer.Option(help="How many seeds (5), or which (3,4,5 or 10-19).")] = "3",
    target: Annotated[float, typer.Option(min=0, max=1, help="p of R_p, the rounds to reach that accuracy.")] = 0.6,
    out: Annotated[Path | None, typer.Option(help="Folder for all runs, the table and the curves.")] = None,
    workers: Workers = None,
    log: Annotated[
        list[str] | None,
        typer.Option(help="A logger of each run, such as csv('logs/{run}.csv') (repeatable); {run} is the run's name."),
    ] = None,
    trust: Trust = False,
    *,
    options: dict[str, Any],
) -> None:
    """Compare strategies on the same seeds: the same models, partitions, cohorts and batches for each."""
    from fedalpha.runs.settings import read_settings, settings
    from fedalpha.store.inside import names
    from fedalpha.strategies import STRATEGIES
    from fedalpha.study.plan import parse_seeds

    base = read_settings(file, options, trust=trust)
    for name in ("stop", "keep", "shadow"):
        if getattr(base, name) is not None:
            raise ValueError(f"{name} belongs to a single run; a comparison plays all rounds. Leave it out of {file}")
    chosen = list(dict.fromkeys(str(STRATEGIES.parse(s)) for s in strategy or ["FedAvg", "FedSoftWorse(T=0.2)"]))
    numbers = parse_seeds(seeds)
    base = base.model_copy(update={"validation": base.validation_for(chosen)})
    cells = [
        settings({**base.model_dump(exclude_none=True), "strategy": s, "seed": n}).resolved()
        for n in numbers
        for s in chosen
    ]
    loggers = [_loggers(log or [], cell, several=len(cells) > 1) for cell in cells]
    if out is not None and out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; give a folder to --out")
    if out is not None and out.is_dir():
        for cell in cells:
            names(out / _name(cell), out)  # a run's folder that is a link is refused

    from fedalpha.analysis.comparison import summarise
    from fedalpha.analysis.measures import Measure, curve
    from fedalpha.analysis.measures.until import Rounds
    from fedalpha.cli.progress import ShowProgress

    runs: dict[str, dict[int, History]] = {s: {} for s in chosen}
    progress = ShowProgress("", total=len(cells) * base.rounds)
    interrupted = False
    try:
        for cell, watchers in zip(cells, loggers, strict=True):
            progress.label = f"{cell.strategy}, seed {cell.seed}"
            folder = None if out is None else out / _name(cell)
            history = cell.run(out=folder, workers=workers, callbacks=[progress, *watchers])
            if history.interrupted:
                interrupted = True
                break
            runs[cell.strategy][cell.seed] = history
    finally:
        progress.close()
    finished = {s: histories for s, histories in runs.items() if histories}
    if finished:
        curves = {s: {n: curve(h.rows) for n, h in histories.items()} for s, histories in finished.items()}
        measures = [Measure.parse("accuracy"), Rounds(100 * target)]
        tables = [summarise(curves, measure) for measure in measures]
        _show(tables)
        if out is not None:
            from fedalpha.analysis.plots import plot_comparison
            from fedalpha.store import write_atomically

            count = f"{len(numbers)} seeds, mean with 95 % band" if len(numbers) > 1 else f"seed {numbers[0]}"
            title = f"{base.dataset}, {base.partition}, {base.clients} clients; {count}"
            plot_comparison({s: list(h.values()) for s, h in finished.items()}, out / "curves.png", title, target)
            record = {"strategies": chosen, "seeds": numbers, "target": target, "table": _record(tables)}
            write_atomically(out / "comparison.json", (json.dumps(record, indent=2) + "\n").encode())
            print(f"written to {out}: a folder per run, comparison.json, curves.png")
    if interrupted:
        print("interrupted; the finished runs are shown" + ("; the same command resumes the rest" if out else ""))
        raise typer.Exit(130)


def _name(cell: Settings) -> str:
    return f"{folder_name(cell.strategy)}-seed{cell.seed}"


def _loggers(texts: list[str], cell: Settings, several: bool) -> list[Callback]:
    """The loggers of one run. With several runs each text must contain {run}, so that each run has its own file."""
    from fedalpha.runs.loggers import LOGGERS

    for text in texts:
        if several and "{run}" not in text:
            raise ValueError(f"log = {text!r} is the same for every run; write {{run}} in it, as in csv('{{run}}.csv')")
    return [LOGGERS.parse(text.replace("{run}", _name(cell))) for text in texts]


def _show(tables: list[list[Summary]]) -> None:
    from rich.console import Console
    from rich.table import Table

    shown = Table(title="mean ± 95 % over seeds (Student t); the final round", title_justify="left")
    shown.add_column("strategy", overflow="fold", min_width=24)
    for heading in ("seeds", "final accuracy (%)", tables[1][0].measure.heading, "paired difference (points)"):
        shown.add_column(heading, justify="right")
    for final, reach in zip(*tables, strict=True):
        difference = "reference" if final is tables[0][0] else final.difference_text
        shown.add_row(final.strategy, str(len(final.values)), final.text, reach.text, difference)
    console = Console()
    (console if console.is_terminal else Console(width=120)).print(shown)


def _record(tables: list[list[Summary]]) -> list[dict[str, Any]]:
    return [
        {
            "strategy": final.strategy,
            "seeds": len(final.values),
            "accuracy": [v.value for v in final.values.values()],
            "rounds_to_target": [int(v.value) if v.reached else None for v in reach.values.values()],
            "accuracy_text": final.text,
            "rounds_text": reach.text,
            "difference_text": "reference" if final is tables[0][0] else final.difference_text,
        }
        for final, reach in zip(*tables, strict=True)
    ]


def folder_name(strategy: str) -> str:
    """A strategy's text as a folder's name.

    >>> folder_name("switch(FedSoftBetter(T=0.2), FedAvg, at=20)")
    'switch-FedSoftBetter-T=0.2-FedAvg-at=20'
    """
    kept = "".join(c if c.isalnum() or c in "=." else " " for c in strategy)
    return "-".join(kept.split())
