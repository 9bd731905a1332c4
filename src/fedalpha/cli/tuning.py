"""A study that tunes, on the terminal: its progress, its answer, and how far it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedalpha.cli.cells import StudyProgress
from fedalpha.text import counted

if TYPE_CHECKING:
    from fedalpha.study import Study


def tune_and_show(found: Study, folder: Path, text: str, jobs: int | None, ray_address: str | None) -> None:
    """Tune with progress, then print and draw the answer."""
    from fedalpha.report.race import draw_races
    from fedalpha.study import tune as run

    progress = StudyProgress(found.title or found.name)
    try:
        answer = run(
            found, folder, text=text, jobs=jobs, ray_address=ray_address, watch=progress.watch, say=progress.say
        )
    except KeyboardInterrupt:
        print("interrupted; finished cells are kept, and the same command resumes the study")
        raise typer.Exit(130) from None
    finally:
        progress.close()
    drawn = draw_races(folder)
    print()
    for verdict in answer.verdicts.values():
        print(verdict.words())
    print(f"\n{answer.promise()}")
    names = ", ".join(path.name for path in drawn)
    print(f"written to {folder}: answer.md, tune.json, {names}; `fedalpha report {folder}` draws the held-out runs")


def show_tuning(folder: Path) -> None:
    """Print how far the races of a folder are."""
    from fedalpha.study import read_tuning
    from fedalpha.study.tuning.answer import answer

    journal = read_tuning(folder)
    for case, found in journal["cases"].items():
        for name, method in found["methods"].items():
            last = method["generations"][-1]
            left = len(last["scores"]) - len(last["dropped"])
            where = f"{case}: " if case else ""
            print(
                f"{where}{name}: {counted(method['rounds'], 'tuning round')} of {journal['budget']:,}, generation "
                f"{len(method['generations'])}, {left} of {counted(len(last['scores']), 'candidate')} left, leading: "
                f"{method['text']}"
            )
    for verdict in answer(journal).verdicts.values():
        if verdict.seeds:
            print(verdict.words())
    if not journal["complete"]:
        print(f"not finished; `fedalpha tune {folder}` resumes it if it does not run now")
