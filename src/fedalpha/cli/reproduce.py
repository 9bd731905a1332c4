"""``fedalpha reproduce`` and ``fedalpha calibrate``: tables and figures of the paper, and of the systems it cites."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedalpha.cli.cells import Jobs, Rounds, Seeds, StudyProgress
from fedalpha.cli.study import run_and_show
from fedalpha.terminal import console

if TYPE_CHECKING:
    from fedalpha.study.reproduction import Form


def reproduce(
    name: Annotated[str, typer.Argument(help="An experiment of the paper or of a cited system, all, or cited.")],
    protocol: Annotated[
        str | None, typer.Option(help="The paper's settings: printed, authors or calibrated. [default: calibrated]")
    ] = None,
    seeds: Seeds = None,
    rounds: Rounds = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Use fewer seeds, rounds and strategies, for a result within minutes.")
    ] = False,
    table: Annotated[
        bool,
        typer.Option(
            "--table", help="Run only the paper's R_60 tables, with 96 seeds for narrower intervals; this takes hours."
        ),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the study. [default: runs/NAME-PROTOCOL, or runs/NAME]")
    ] = None,
    jobs: Jobs = None,
) -> None:
    """Reproduce a table or figure of the paper, or of a system that it cites.

    The published figures are shown beside ours.

    NAME is mnist-iid, mnist-hybrid, fmnist-noniid, fmnist-hybrid, fmnist-topk, further, or all of these; or
    mcmahan-2017, cho-2020, yurochkin-2019, fedpage-2021, feddist-2021, li-2020, karimireddy-2020, jhunjhunwala-2023, or
    cited for all of those.
    """
    from fedalpha.report import write_report
    from fedalpha.study.protocols import PROTOCOLS
    from fedalpha.study.reproduction import CITED, NAMES, TABLES, experiment

    if quick and table:
        raise ValueError("--quick and --table exclude each other; give one of them")
    groups: dict[str, tuple[str, ...]] = {"all": TABLES if table else NAMES, "cited": CITED}
    names = groups.get(name, (name,))
    form: Form | None = "quick" if quick else "table" if table else None
    given = {n: protocol if n in CITED else protocol or "calibrated" for n in names}
    studies = [experiment(n, given[n], form=form, seeds=seeds, rounds=rounds) for n in names]
    for study in studies:
        study.cells()
        print(
            study.title
            + (f"; protocol {study.protocol}: {PROTOCOLS[study.protocol].summary}" if study.protocol else "")
        )
        folder = Path("runs") / study.name if out is None else out / study.name if name in groups else out
        run_and_show(study, folder, jobs=jobs)
        print(f"written to {folder}; to look at: {write_report(folder)}")


def calibrate(
    name: Annotated[str, typer.Argument(help="An experiment that has its own learning rate.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the calibration. [default: runs/calibrate-NAME]")] = None,
    jobs: Jobs = None,
) -> None:
    """Find the learning rate of the protocol `calibrated` for an experiment.

    It is the rate with which FedAvg is best, on seeds that are not reported.

    NAME is mnist-iid or fmnist-noniid.
    """
    from rich.table import Table

    from fedalpha.analysis.measures import Measure
    from fedalpha.study.reproduction import calibrate as find
    from fedalpha.study.reproduction import experiment

    plan = experiment(name, "calibrated").calibration
    progress = StudyProgress(f"calibrate {name}")
    try:
        rates, best = find(name, out or Path("runs") / f"calibrate-{name}", jobs, progress.watch)
    finally:
        progress.close()
    assert plan is not None
    measure = Measure.parse(plan.measure)
    target = f"{measure.scale * plan.target:.{measure.digits}f}"
    table = Table(title=f"FedAvg, seeds {plan.seeds}; target: {measure.heading} = {target}", title_justify="left")
    for heading in ("lr", measure.heading, "not reached", ""):
        table.add_column(heading, justify="right")
    for rate in rates:
        shown = rate.mean.text(measure.digits, measure.scale)
        table.add_row(f"{rate.lr:g}", shown, str(rate.unreached), "chosen" if rate is best else "")
    console().print(table)
    print(f'put into the experiment\'s file: [protocols.calibrated] lr = "exponential({best.lr:g}, rate=0.99)"')
