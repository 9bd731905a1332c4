"""``fedalpha tune``: find the settings of every method with the same budget, then race the best of each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedalpha.cli.cells import Jobs, RayAddress, Seeds
from fedalpha.cli.kinds import completing
from fedalpha.cli.options import Trust, with_settings
from fedalpha.cli.tuning import tune_and_show

if TYPE_CHECKING:
    from fedalpha.study import Study

FilePath = Annotated[
    Path | None, typer.Argument(help="A study's TOML file with a [tune] table, or a folder to resume.")
]
Strategies = Annotated[
    list[str] | None,
    typer.Option(
        help='A strategy to tune, such as "FedSoftWorse(T=log(0.05, 5))" (repeatable).',
        autocompletion=completing("--strategy"),
    ),
]
Spaces = Annotated[
    list[str] | None,
    typer.Option(help='A setting that is searched for all strategies, such as "lr=log(0.01, 1)" (repeatable).'),
]


@with_settings("strategy", "seed", "part", "ray_address", "stop", "keep", "shadow", "log")
def tune(
    file: FilePath = None,
    strategy: Strategies = None,
    space: Spaces = None,
    budget: Annotated[
        int | None, typer.Option(min=1, help="Number of rounds that may be spent on tuning each strategy.")
    ] = None,
    measure: Annotated[
        str | None, typer.Option(help="Measure that is optimised and compared. [default: accuracy]")
    ] = None,
    error: Annotated[float | None, typer.Option(help="Probability of a false winner. [default: 0.05]")] = None,
    seeds: Seeds = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the study. [default: runs/NAME]")] = None,
    jobs: Jobs = None,
    ray_address: RayAddress = None,
    trust: Trust = False,
    *,
    options: dict[str, Any],
) -> None:
    """Tune strategies with equal budgets.

    The best setting of each strategy is then compared on held-out seeds and clients, and the command names the winner.

    A candidate is dropped as soon as the paired seeds show that another one is better; the test allows a look after
    every seed. The same command resumes an interrupted one. docs/tune.md states the guarantees.
    """
    from fedalpha.study import read_study
    from fedalpha.study.reading import study_text

    table = {"budget": budget, "measure": measure, "error": error, "space": _pairs(space or [])}
    changes = {key: value for key, value in table.items() if value not in (None, {})}
    if file is None:
        found = _from_options(strategy or [], seeds, changes, options)
        tune_and_show(found, out or Path("runs") / found.name, "", jobs, ray_address)
        return
    if strategy or options or "space" in changes:
        raise ValueError("strategies, spaces and settings come from the file; change them there, or leave the file out")
    found = read_study(file, trust=trust)
    folder = out or (file if file.is_dir() else Path("runs") / found.name)
    text = study_text(file)[1]
    if found.tune is not None and (changes or seeds is not None):
        merged = found.tune.model_dump(exclude_unset=True) | changes
        found, text = found.with_changes(seeds=seeds, tune=merged), ""
    tune_and_show(found, folder, text, jobs, ray_address)


def _from_options(strategies: list[str], seeds: str | None, table: dict[str, Any], options: dict[str, Any]) -> Study:
    from fedalpha.study import study

    if len(strategies) < 2:
        raise ValueError("give a file, or at least two strategies: --strategy FedAvg --strategy FedWorse")
    if "budget" not in table:
        raise ValueError(
            "give --budget: the rounds that may be spent on tuning each strategy, such as those of 100 runs"
        )
    values = {"name": "tune", "strategies": strategies, "seeds": seeds or 20, "settings": options, "tune": table}
    return study(values)


def _pairs(texts: list[str]) -> dict[str, Any]:
    found = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not value.strip():
            raise ValueError(f"--space {text!r}: write a setting and its space, such as lr=log(0.01, 1)")
        found[name.strip()] = value.strip()
    return found
