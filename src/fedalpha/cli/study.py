"""``fedalpha study`` and ``fedalpha status``: strategies × seeds × settings, and how far they are."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedalpha.cli.options import Trust
from fedalpha.text import counted

if TYPE_CHECKING:
    from fedalpha.study import Study
    from fedalpha.study.crew import Watch

Jobs = Annotated[int | None, typer.Option(min=1, help="Cells at a time [default: all cores]; changes no result.")]
RayAddress = Annotated[
    str | None, typer.Option(help="Run the cells on the Ray cluster at this address (host:6379, or auto).")
]
Seeds = Annotated[str | None, typer.Option(help="How many seeds (5), or which (3,4,5 or 10-19).")]
Rounds = Annotated[int | None, typer.Option(min=0, help="Number of rounds.")]


def study(
    file: Annotated[Path, typer.Argument(help="A study's TOML file, or the folder of a study to resume.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the study [default: runs/NAME].")] = None,
    seeds: Seeds = None,
    rounds: Rounds = None,
    jobs: Jobs = None,
    ray_address: RayAddress = None,
    trust: Trust = False,
) -> None:
    """Run a study: every strategy on every seed in every setting, paired.

    Finished cells are never run again: stop it whenever you like and start it again, or add seeds and
    strategies to the file later.
    """
    from fedalpha.study import read_study
    from fedalpha.study.plan import study_text

    found = read_study(file, trust=trust)
    changed = seeds is not None or rounds is not None
    text = "" if changed else study_text(file)[1]
    folder = out or (file if file.is_dir() else Path("runs") / found.name)
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
    """Show how far a study is: done, running, time left."""
    from fedalpha.study import status as read

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


def duration(seconds: float) -> str:
    """Seconds for people.

    >>> duration(42), duration(200), duration(9000)
    ('42 s', '3 min', '2 h 30 min')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


class StudyProgress:
    """A bar on a terminal, plain lines elsewhere."""

    def __init__(self, title: str) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._said = (-1, 0.0)
        self._started = time.monotonic()
        self._first: int | None = None
        self._bar = None
        if sys.stdout.isatty():
            name, note = (TextColumn(f"{{task.{field}}}", markup=False) for field in ("description", "fields[note]"))
            self._bar = Progress(name, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), note)
            self._task = self._bar.add_task(title, total=None, note="")
            self._bar.start()

    @property
    def watch(self) -> Watch:
        return self._watch

    def _watch(self, done: int, total: int, running: list[str]) -> None:
        if self._bar is not None:
            self._bar.update(self._task, total=total, completed=done, note=" | ".join(running))
            return
        self._first = done if self._first is None else self._first
        now = time.monotonic()
        if done != self._said[0] or now - self._said[1] > 30:
            self._said = (done, now)
            fresh = done - self._first
            left = f", about {duration((now - self._started) / fresh * (total - done))} left" if fresh else ""
            print(f"{done} of {total} cells{left}{': ' if running else ''}{' | '.join(running)}", flush=True)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
