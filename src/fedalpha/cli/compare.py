"""``fedalpha compare``: several strategies over several seeds, paired."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedalpha.cli.kinds import completing
from fedalpha.cli.options import File, Trust, Workers, with_settings
from fedalpha.terminal import console

if TYPE_CHECKING:
    from fedalpha.analysis.compared import Comparison
    from fedalpha.analysis.history import History
    from fedalpha.runs.settings import Settings


@with_settings("strategy", "seed", "stop", "keep", "shadow", "log")
def compare(
    file: File = None,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            help="A strategy to compare (repeatable); the first is the reference.",
            autocompletion=completing("--strategy"),
        ),
    ] = None,
    seeds: Annotated[str, typer.Option(help="Number of seeds (5), or the seeds (3,4,5 or 10-19).")] = "3",
    target: Annotated[
        float, typer.Option(min=0, max=1, help="Accuracy p whose R_p, the rounds to reach it, is shown.")
    ] = 0.6,
    out: Annotated[Path | None, typer.Option(help="Folder for all runs, the table and the curves.")] = None,
    workers: Workers = None,
    log: Annotated[
        list[str] | None,
        typer.Option(
            help="A logger of each run, such as csv('logs/{run}.csv') (repeatable); {run} is the run's name.",
            autocompletion=completing("--log"),
        ),
    ] = None,
    trust: Trust = False,
    *,
    options: dict[str, Any],
) -> None:
    """Compare strategies on the same seeds.

    For each seed all strategies have the same initial model, partition, cohorts and batches.
    """
    from fedalpha.analysis.compared import Comparison
    from fedalpha.analysis.comparison import diverged_notes
    from fedalpha.runs.reading import read_settings
    from fedalpha.strategies import STRATEGIES
    from fedalpha.study.seeds import parse_seeds

    base = read_settings(file, options, trust=trust)
    for name in ("stop", "keep", "shadow"):
        if getattr(base, name) is not None:
            raise ValueError(f"{name} belongs to a single run; a comparison plays all rounds. Leave it out of {file}")
    chosen = list(dict.fromkeys(str(STRATEGIES.parse(s)) for s in strategy or ["FedAvg", "FedSoftWorse(T=0.2)"]))
    numbers = parse_seeds(seeds)
    base = base.model_copy(update={"validation": base.validation_for(chosen)})
    runs, interrupted = _play(base, chosen, numbers, out, workers, [*(base.log or []), *(log or [])])
    if runs:
        count = f"{len(numbers)} seeds, mean with 95 % band" if len(numbers) > 1 else f"seed {numbers[0]}"
        title = f"{base.dataset}, {base.partition}, {base.clients} clients; {count}"
        found = Comparison(runs, target, title, interrupted)
        _show(found)
        for name, note in diverged_notes(found.curves).items():
            print(f"{name}: {note}")
        if out is not None:
            found.write_tables(out, numbers)
            print(f"written to {out}: a folder per run, comparison.json, curves.png, table.csv, table.md, table.tex")
    if interrupted:
        print("interrupted; the finished runs are shown" + ("; the same command resumes the rest" if out else ""))
        raise typer.Exit(130)


def _play(
    base: Settings, strategies: list[str], seeds: list[int], out: Path | None, workers: int | None, log: list[str]
) -> tuple[dict[str, dict[int, History]], bool]:
    """Play every strategy with every seed: the finished histories, and whether Ctrl-C ended it early."""
    from fedalpha.analysis.compared import run_name
    from fedalpha.runs.comparing import check_folders, play_all, run_loggers
    from fedalpha.runs.loggers.progress import ShowProgress
    from fedalpha.runs.settings import settings

    given = base.model_dump(exclude_none=True)
    cells = {(s, n): settings({**given, "strategy": s, "seed": n}).resolved() for n in seeds for s in strategies}
    loggers = {key: run_loggers(log, run_name(*key), several=len(cells) > 1) for key in cells}
    check_folders(out, cells)
    progress = ShowProgress("", total=len(cells) * base.rounds)

    def play(strategy: str, seed: int) -> History:
        progress.label = f"{strategy}, seed {seed}"
        folder = None if out is None else out / run_name(strategy, seed)
        watchers = [progress, *loggers[strategy, seed]]
        history = cells[strategy, seed].run(out=folder, workers=workers, callbacks=watchers)
        progress.after_run(base.rounds)
        return history

    try:
        return play_all(strategies, seeds, play)
    finally:
        progress.close()


def _show(found: Comparison) -> None:
    from rich.table import Table

    header, body = found.rows
    here = console() if console().is_terminal else console(width=120)
    shown = Table(title="mean ± 95 % over seeds (Student t); the final round", title_justify="left")
    # On 80 columns a least width would push the last column off the screen.
    shown.add_column("strategy", overflow="fold", min_width=24 if here.width >= 100 else None)
    for heading in header[1:]:
        shown.add_column(heading, justify="right")
    for row in body:
        shown.add_row(*row)
    here.print(shown)
