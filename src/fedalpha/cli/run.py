"""``fedalpha run``: train one federated model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedalpha.cli.options import CheckpointEvery, File, Log, Trust, Workers, with_settings
from fedalpha.text import shown

if TYPE_CHECKING:
    from fedalpha.analysis.history import History
    from fedalpha.runs.settings import Settings


@with_settings("log")
def run(
    file: File = None,
    out: Annotated[Path | None, typer.Option(help="Folder for config, history, model, curves and checkpoints.")] = None,
    workers: Workers = None,
    checkpoint_every: CheckpointEvery = 1,
    log: Log = None,
    trust: Trust = False,
    *,
    options: dict[str, Any],
) -> None:
    """Train a federated model under one strategy. The same command again resumes an interrupted run."""
    from fedalpha.runs.reading import read_settings

    settings = read_settings(file, options, trust=trust)
    execute(settings, out, workers, checkpoint_every, [*(settings.log or []), *(log or [])])


def execute(
    settings: Settings, out: Path | None, workers: int | None, checkpoint_every: int, log: list[str] | None
) -> None:
    """Run with a progress display, and print the result."""
    from fedalpha.runs.loggers import LOGGERS
    from fedalpha.runs.loggers.progress import ShowProgress

    if serves := settings.place(workers).serves:
        print(serves)
    progress = ShowProgress(settings.strategy)
    callbacks = [progress, *(LOGGERS.parse(text) for text in log or [])]
    history = settings.run(out=out, workers=workers, checkpoint_every=checkpoint_every, callbacks=callbacks)
    if out is not None and not progress.started:
        print(f"{out} holds this run, and it is finished; nothing is left to do")
        if history.stopped is None:
            print(f"`fedalpha run {shown(out / 'config.json')} --rounds N --out {shown(out)}` lengthens it")
    if history.rows:
        print(result(history))
        _tell(history, settings)
    if out is not None and progress.started:
        best = ", best.safetensors" if history.best is not None else ""
        print(f"written to {out}: config.json, history.jsonl, model.safetensors{best}, curves.png")
    if out is None:
        print("the history and the model were not kept; --out FOLDER keeps them")
    if history.interrupted:
        print(f"interrupted; `fedalpha resume {out}` resumes it" if out else "interrupted")
        raise typer.Exit(130)


def result(history: History) -> str:
    """The last row of a run in a line.

    >>> from fedalpha.analysis.history import History
    >>> result(History([{"round": 0, "accuracy": 0.7, "loss": 1.0}], {}))  # the initial model reaches 60 %
    'after round 0: accuracy 70.00 %, loss 1.0000, R_60 0'
    """
    last, end = history.rows[-1], history.summary()
    accuracy = "–" if last.get("accuracy") is None else f"{100 * last['accuracy']:.2f} %"
    loss = "–" if last.get("loss") is None else f"{last['loss']:.4f}"
    found = f"after round {last['round']}: accuracy {accuracy}, loss {loss}, R_60 {_number(end['R_60'])}"
    if "time" not in end:
        return found
    return f"{found}; {_number(end['time'])} simulated seconds, T_60 {_number(end['T_60'])}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.6g}"


def _tell(history: History, settings: Settings) -> None:
    """Print why the run stopped, its best model, and what shadow rules would have weighed."""
    from fedalpha.analysis.shadows import shadow_summaries

    if history.stopped is not None:
        print(f"stopped early: {history.stopped}")
    if history.best is not None:
        where = (
            "on the validation part"
            if settings.signal == "validation"
            else "on the test set: its figures are optimistic"
        )
        row = history.best.row
        accuracy = "" if row.get("accuracy") is None else f", test accuracy {100 * row['accuracy']:.2f} %"
        print(f"{settings.keep} model: after round {row['round']} ({where}){accuracy}")
    if summaries := shadow_summaries(history.rows):
        print("shadow rules (distance: total variation between their weights and those that were applied)")
        for summary in summaries:
            print(f"  {summary.text}")
