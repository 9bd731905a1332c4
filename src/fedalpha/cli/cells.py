"""What the commands that run cells share: options, and the progress of the cells."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from fedalpha.terminal import console

if TYPE_CHECKING:
    from fedalpha.study.crew import Watch

Jobs = Annotated[
    int | None,
    typer.Option(
        min=1, help="Number of cells to run at a time; the result does not depend on it. [default: all cores]"
    ),
]
RayAddress = Annotated[
    str | None, typer.Option(help="Run the cells on the Ray cluster at this address (host:6379, or auto).")
]
Seeds = Annotated[str | None, typer.Option(help="Number of seeds (5), or the seeds (3,4,5 or 10-19).")]
Rounds = Annotated[int | None, typer.Option(min=0, help="Number of rounds.")]


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
            self._bar = Progress(
                name, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), note, console=console()
            )
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

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        if self._bar is not None:
            self._bar.console.print(line, markup=False, highlight=False)
        else:
            print(line, flush=True)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
