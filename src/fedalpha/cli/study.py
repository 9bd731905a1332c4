"""``fedalpha study`` and ``fedalpha status``: strategies × seeds × settings, and how far they are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedalpha.cli.cells import Jobs, RayAddress, Rounds, Seeds, StudyProgress, duration
from fedalpha.cli.options import Trust
from fedalpha.cli.tuning import show_tuning, tune_and_show
from fedalpha.text import counted

if TYPE_CHECKING:
    from fedalpha.study import Study


def study(
    file: Annotated[Path, typer.Argument(help="A study's TOML file, or the folder of a study to resume.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the study. [default: runs/NAME]")] = None,
    seeds: Seeds = None,
    rounds: Rounds = None,
    jobs: Jobs = None,
    ray_address: RayAddress = None,
    trust: Trust = False,
) -> None:
    """Run a study of strategies × seeds × cases.

    Strategies are compared on the same seeds (a paired design). If the file has a [tune] table, they are tuned first.

    Finished cells are not run again: the same command resumes an interrupted study, and after seeds or strategies
    were added to the file it runs what is missing.
    """
    from fedalpha.study import read_study
    from fedalpha.study.reading import study_text

    found = read_study(file, trust=trust)
    changed = seeds is not None or rounds is not None
    text = "" if changed else study_text(file)[1]
    folder = out or (file if file.is_dir() else Path("runs") / found.name)
    if found.tune is not None:
        tune_and_show(found.with_changes(seeds=seeds, rounds=rounds), folder, text, jobs, ray_address)
        return
    run_and_show(found.with_changes(seeds=seeds, rounds=rounds), folder, text, jobs, ray_address)
    print(f"written to {folder}; `fedalpha report {folder}` draws it")


def run_and_show(
    found: Study, folder: Path, text: str = "", jobs: int | None = None, ray_address: str | None = None
) -> None:
    """Run a study with progress, then print its tables."""
    from fedalpha.report import console_tables, gather
    from fedalpha.study import Store, run_study

    for reason in found.unanswered():
        print(f"no value can be expected for {reason}")
    with_progress = StudyProgress(found.title or found.name)
    try:
        run_study(found, folder, text=text, jobs=jobs, ray_address=ray_address, watch=with_progress.watch)
    except KeyboardInterrupt:
        print("interrupted; finished cells are kept, and the same command resumes the study")
        raise typer.Exit(130) from None
    finally:
        with_progress.close()
    console_tables(gather(folder))
    if strangers := Store(folder).strangers(found.cells()):
        cells = counted(strangers, "cell")
        print(f"{folder} has {cells} that are not part of this study; they are kept but not shown")


def status(folder: Annotated[Path, typer.Argument(help="A study's folder.")]) -> None:
    """Show the progress of a study: finished and running cells, time left."""
    from fedalpha.study import status as read

    if (folder / "tune.json").exists():
        show_tuning(folder)
        return
    found = read(folder)
    print(f"{found.done} of {found.total} cells done", end="")
    notes = [f"{found.coinciding} coincide with another"] * bool(found.coinciding)
    notes += [f"{found.stopped} stopped early: question answered"] * bool(found.stopped)
    print(f" ({'; '.join(notes)})" if notes else "")
    for record in found.running:
        accuracy = "" if record["accuracy"] is None else f"  accuracy {100 * record['accuracy']:.2f} %"
        print(f"running: {record['label']}  round {record['round']}/{record['rounds']}{accuracy}")
    for label in found.failed:
        print(f"failed: {label} (see {folder}/log)")
    if found.done < found.total:
        left = "unknown yet" if found.seconds_left is None else f"about {duration(found.seconds_left)}"
        if found.seconds_left is not None and found.not_begun:
            left += f", if {counted(found.not_begun, 'case')} not begun yet cost the same per round"
        print(f"time left: {left}" if found.running else f"not running now; `fedalpha study {folder}` resumes it")
