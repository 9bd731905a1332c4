"""``fedalpha theory``: the bounds against measured paths, on problems whose constants are known."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedalpha.terminal import console

if TYPE_CHECKING:
    from rich.table import Table

    from fedalpha.theory.checks import Check
    from fedalpha.theory.constants import Constants
    from fedalpha.theory.fixed_points import FixedPoint
    from fedalpha.theory.monte_carlo import Run
    from fedalpha.theory.study import Verification

_WIDE = 160
"""Columns that the table of distances needs; an output that is no terminal has them."""
DEFAULT = ["FedAvg", "FedWorse", "FedSoftWorse(T=0.5)", "switch(FedWorse, FedAvg, at=40)"]


def theory(
    problem: Annotated[
        str, typer.Option(help="Problem: quadratics(…), ridge(…) or softmax(…), with seed=, n=, spread= and others.")
    ] = "quadratics(sigma=1)",
    strategy: Annotated[list[str] | None, typer.Option(help="A strategy to simulate (repeatable).")] = None,
    E: Annotated[int, typer.Option("--E", "-E", min=1, help="Local steps per round.")] = 1,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Number of rounds. [default: 1000; 30 with --verify]")
    ] = None,
    replicas: Annotated[int, typer.Option(min=2, help="Number of Monte-Carlo paths.")] = 64,
    fraction: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the clients that take part in a round.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the noise, or of the problems with --verify.")] = 0,
    verify: Annotated[int, typer.Option(min=0, help="Instead, check all statements on this many random problems.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for the figure and the results.")] = None,
) -> None:
    """Compare the theoretical bounds with simulations.

    Simulates strategies on a problem whose constants are known, and measures their distance from the optimum.
    """
    if verify:
        _verify(verify, strategy, rounds or 30, replicas, seed, out)
        return
    from fedalpha.strategies import STRATEGIES
    from fedalpha.theory.checks import MOST_STATEMENTS, checks
    from fedalpha.theory.figure import plot_study
    from fedalpha.theory.hypotheses import hypotheses
    from fedalpha.theory.monte_carlo import simulate
    from fedalpha.theory.problems import PROBLEMS

    chosen = PROBLEMS.parse(problem)
    rules = list(dict.fromkeys(STRATEGIES.parse(s) for s in strategy or DEFAULT))
    length = rounds or 1000
    console = _console()
    console.print(_constants(chosen.constants))
    options: dict[str, Any] = {"E": E, "rounds": length, "replicas": replicas, "seed": seed, "fraction": fraction}
    with _bar("Monte-Carlo", length * len(rules)) as advance:
        runs = [simulate(chosen, rule, **options, progress=advance) for rule in rules]
    ends = [_end(run) for run in runs]
    upper = len(runs) * MOST_STATEMENTS * (length * E + 1)  # comparisons, at most
    found = {run.strategy: [] if hypotheses(run) else checks(run, comparisons=upper) for run in runs}
    rows = _summary(runs, ends, found)
    console.print(_distances(rows, length * E, console.width < _WIDE))
    for run in runs:
        for sentence in hypotheses(run):
            console.print(f"Outside the theory: {sentence}", markup=False)
    total = sum(check.comparisons for group in found.values() for check in group)
    broken = [c for group in found.values() for c in group if c.violations]
    console.print(f"{total:,} comparisons; violations: {', '.join(c.statement for c in broken) or 'none'}")
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        paths = f"{replicas} paths" if chosen.constants.sigma2 > 0 or fraction < 1 else "no noise"
        title = f"{problem}, {chosen.n} clients, Γ = {chosen.constants.Gamma:.3g}, E = {E}, {paths}"
        plot_study(runs, ends, out / "bounds.png", title)
        _save(out / "summary.csv", list(rows[0]), [list(row.values()) for row in rows])
        _save(out / "bounds.csv", *_paths(runs))
        console.print(f"written to {out}: bounds.png, bounds.csv, summary.csv")
    if broken:
        raise typer.Exit(1)


def _verify(problems: int, rules: list[str] | None, rounds: int, replicas: int, seed: int, out: Path | None) -> None:
    from fedalpha.theory.study import verify

    with _bar("random problems", problems) as advance:
        result = verify(problems, rules, seed=seed, rounds=rounds, replicas=replicas, progress=advance)
    console = _console()
    console.print(_verification(result))
    console.print(f"{result.runs:,} runs on {problems} problems; violations: {result.violations or 'none'}")
    if out is not None:
        result.save(out, seed=seed, rounds=rounds, replicas=replicas)
        console.print(f"written to {out}: verification.json, verification.csv")
    if result.violations:
        raise typer.Exit(1)


def _end(run: Run) -> FixedPoint | None:
    from fedalpha.theory.fixed_points import fixed_point

    try:
        return fixed_point(run.problem, run.strategy) if run.fraction >= 1 else None
    except ValueError:  # no limit is known for this rule
        return None


def _constants(c: Constants) -> Table:
    table = _new_table("The problem's constants")
    names = {"N": len(c.p), "p_min": c.p_min, "L": c.L, "L_F": c.L_F, "μ": c.mu, "σ²": c.sigma2, "G²": c.G2}
    names |= {"F*": c.F_star, "Γ": c.Gamma}
    for name in names:
        table.add_column(name, justify="right")
    table.add_row(*(f"{value:.4g}" for value in names.values()))
    return table


def _summary(runs: list[Run], ends: list[FixedPoint | None], found: dict[Any, list[Check]]) -> list[dict[str, Any]]:
    """One row per strategy: the last distance, its bounds, ρ̄, violations and where the strategy ends."""
    from fedalpha.theory.figure import STYLES, distance_bounds

    rows = []
    for run, end in zip(runs, ends, strict=True):
        bounds = distance_bounds(run)
        broken = sum(check.violations for check in found[run.strategy])
        rows.append(
            {
                "strategy": str(run.strategy),
                "measured": f"{run.distance[-1].mean():.3g}",
                **{name: f"{bounds[name][-1]:.3g}" if name in bounds else "–" for name in STYLES},
                "ρ̄": f"{run.rho_bar():.3g}",
                "violations": (str(broken) if broken else "none") if found[run.strategy] else "–",
                "ends at": end.law if end is not None else "no law",
                "away from it": f"{end.distance(run.w[-1]).mean():.2g}" if end is not None else "–",
            }
        )
    return rows


def _distances(rows: list[dict[str, Any]], steps: int, narrow: bool) -> Table:
    """A line per strategy; on a ``narrow`` terminal a column, because its lines have no room for all quantities."""
    table = _new_table(
        f"E‖w_t − w*‖² after t = {steps} steps, and its bounds; where the strategy ends, and E‖w_t − end‖²"
    )
    for heading in ["strategy", *(row["strategy"] for row in rows)] if narrow else rows[0]:
        left = heading in ("strategy", "ends at")
        table.add_column(heading, justify="left" if left else "right", overflow="fold")
    names = [name for name in rows[0] if name != "strategy"]
    lines = [[name, *(row[name] for row in rows)] for name in names] if narrow else [row.values() for row in rows]
    for line in lines:
        table.add_row(*line)
    return table


def _verification(result: Verification) -> Table:
    table = _new_table("Bound / measured over all runs (1 is tight; with noise a mean may fall below by chance)")
    table.add_column("statement")
    for heading in ("runs", "comparisons", "violations", "least", "median", "median, last step"):
        table.add_column(heading, justify="right")
    for row in result.rows(by_strategy=False):
        ratios = [row[name] for name in ("least_ratio", "median_ratio", "median_last_ratio")]
        numbers = [f"{row['runs']:,}", f"{row['comparisons']:,}", str(row["violations"])]
        table.add_row(row["statement"], *numbers, *("–" if r is None else f"{r:,.4g}" for r in ratios))
    return table


def _paths(runs: list[Run]) -> tuple[list[str], list[list[Any]]]:
    """Measured distance and bounds at up to 60 steps, evenly spread on the logarithmic axis."""
    import numpy as np

    from fedalpha.theory.figure import STYLES, distance_bounds

    rows: list[list[Any]] = []
    for run in runs:
        T, bounds = len(run.eta), distance_bounds(run)
        for t in np.unique(np.geomspace(1, T + 1, 60).round().astype(int)) - 1:
            values = [run.distance[t].mean(), *(bounds[n][t] if n in bounds else np.nan for n in STYLES)]
            rows.append([str(run.strategy), t, *(f"{v:.6g}" for v in (*values, run.rho[min(t, T - 1)]))])
    return ["strategy", "t", "measured", *STYLES, "rho"], rows


def _save(path: Path, header: list[str], rows: list[list[Any]]) -> None:
    from fedalpha.store import write_atomically
    from fedalpha.store.exports import csv_text

    write_atomically(path, csv_text([header, *rows]).encode())


def _console() -> Any:
    here = console(highlight=False)
    return here if here.is_terminal else console(width=_WIDE, highlight=False)


def _new_table(title: str) -> Table:
    from rich.table import Table

    return Table(title=title, title_justify="left")


@contextmanager
def _bar(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on a terminal; silent elsewhere. Yields the function that advances it."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(), disable=not sys.stdout.isatty()) as bar:
        task = bar.add_task(label, total=total)
        yield lambda _: bar.advance(task)
