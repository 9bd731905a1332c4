"""Progress of one or several runs: a bar on a terminal, a line that changes in a notebook, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from fedalpha.analysis.history import History, Row
from fedalpha.round import ServerState
from fedalpha.runs.callbacks import Callback
from fedalpha.terminal import console

if TYPE_CHECKING:
    from rich.progress import Progress

_SECONDS_BETWEEN_LINES = 2.0
_SECONDS_BETWEEN_CHANGES = 0.2


def in_notebook() -> bool:
    """Whether this is the kernel of a notebook, which shows more than text."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return shell is not None and hasattr(shell, "kernel")


class NotebookLine:
    """One line of a notebook's output that is replaced during the run: a bar and a text."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, text: str, share: float) -> None:
        """``share`` of the work is done."""
        from IPython.display import display

        bar = f'<progress value="{share:.4f}" max="1" style="width:12em"></progress>'
        bundle = {"text/plain": text, "text/html": f"<div>{bar} <code>{escape(text)}</code></div>"}
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(bundle, raw=True)


class ShowProgress(Callback):
    """Shows round, accuracy and time left; ``total`` counts the rounds of all runs, if there are several."""

    def __init__(self, label: str = "", total: int | None = None) -> None:
        self.label = label
        self._total = total
        self._several = total is not None
        self._done = self._skipped = self._behind = 0
        self._started: float | None = None
        self._printed = 0.0
        self._ended = False
        self._bar: Progress | None = None
        self._line: NotebookLine | None = None

    def on_start(self, rounds: int) -> None:
        self._rounds = rounds
        if self._ended:  # the same object watches another run
            self._started, self._total, self._done, self._skipped, self._ended = None, None, 0, 0, False
        if self._started is not None:
            return
        self._started = time.monotonic()
        self._total = self._total or rounds
        if in_notebook():
            self._line = NotebookLine()
        elif sys.stdout.isatty():
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            self._bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}"),
                TimeRemainingColumn(),
                console=console(),
            )
            self._task = self._bar.add_task(self.label, total=self._total, note="")
            self._bar.start()

    def on_resume(self, rows: Sequence[Row]) -> None:
        done = rows[-1]["round"]
        self._done += done
        self._skipped += done
        if self._bar is None and self._line is None:
            print(f"{self._prefix}resumed after round {done}/{self._rounds}", flush=True)

    def on_round(self, row: Row, state: ServerState) -> bool | None:
        assert self._started is not None
        assert self._total is not None
        self._done += row["round"] > 0
        accuracy = "" if row["accuracy"] is None else f"accuracy {100 * row['accuracy']:.2f} %"
        if self._bar is not None:
            self._bar.update(self._task, description=self.label, completed=self._done, note=accuracy)
            return None
        now = time.monotonic()
        pause = _SECONDS_BETWEEN_LINES if self._line is None else _SECONDS_BETWEEN_CHANGES
        if row["round"] in (0, self._rounds) or now - self._printed >= pause:
            self._printed = now
            played = self._done - self._skipped
            left = (now - self._started) / played * (self._total - self._done) if played else 0.0
            ahead = f"  {left:.0f} s left" if played and self._done < self._total else ""
            text = f"{self._prefix}round {row['round']}/{self._rounds}  {accuracy}{ahead}"
            if self._line is not None:
                self._line.show(text, self._done / self._total if self._total else 1.0)
            else:
                print(text, flush=True)
        return None

    def after_run(self, rounds: int) -> None:
        """Count one of several runs, of ``rounds`` rounds: those that were not played now take no part in the pace."""
        self._behind += rounds
        self._skipped += self._behind - self._done
        self._done = self._behind

    @property
    def _prefix(self) -> str:
        return f"{self.label}  " if self.label else ""

    @property
    def started(self) -> bool:
        """Whether any run has started."""
        return self._started is not None

    def on_end(self, history: History) -> None:
        if not self._several:
            self.close()
            self._ended = True
            self._line = None

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
