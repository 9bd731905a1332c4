"""What every contestant shares: the prepared work, the clock and the report. Needs NumPy only.

A contestant is a separate script that runs in its own environment. It reads the work folder, trains,
and prints one JSON object per line; other output is ignored.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

CHECKED_ROUND = 2
"""The model after so many rounds is kept, and the harness compares its loss with the other contestants'."""


@dataclass(frozen=True, eq=False)
class Work:
    """Samples in client order, where each client's part starts, w_0, and how to train."""

    x: Any
    y: Any
    offsets: Any
    initial: Mapping[str, Any]
    model: str
    batch: int
    lr: float
    seed: int

    @property
    def clients(self) -> int:
        return len(self.offsets) - 1

    def part(self, client: int) -> slice:
        """The samples of one client."""
        return slice(int(self.offsets[client]), int(self.offsets[client + 1]))


def read(folder: str | Path, mapped: bool = False) -> Work:
    """The work in ``folder``; ``mapped`` leaves the samples on disk until they are touched."""
    folder = Path(folder)
    mode = "c" if mapped else None
    x, y = (np.load(folder / f"{name}.npy", mmap_mode=mode) for name in ("x", "y"))
    settings = json.loads((folder / "work.json").read_text())
    initial = dict(np.load(folder / "initial.npz"))
    names = ("model", "batch", "lr", "seed")
    return Work(x, y, np.load(folder / "offsets.npy"), initial, **{name: settings[name] for name in names})


kept_work = lru_cache(maxsize=1)(read)
"""`read`, remembered by long-lived worker processes."""


def arguments(*extra: str) -> argparse.Namespace:
    """``work``, ``rounds``, ``model`` (where to keep the checked model) and ``extra`` options."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--model", required=True)
    for name in extra:
        parser.add_argument(f"--{name}")
    return parser.parse_args()


def say(event: str, **values: Any) -> None:
    """One line of the report."""
    print(json.dumps({"event": event, **values}), flush=True)


def versions(*packages: str) -> None:
    """Report the versions of what is measured."""
    say("versions", **{name: importlib.metadata.version(name) for name in packages})


class Clock:
    """Reports the seconds of each round: `start`, then `stop` and `keep` after every round."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.done = 0

    def start(self) -> None:
        self.started = time.perf_counter()

    def stop(self, seconds: float | None = None) -> None:
        """End of a round; ``seconds`` if the framework has measured the time itself."""
        seconds = time.perf_counter() - self.started if seconds is None else seconds
        self.done += 1
        say("round", round=self.done, seconds=seconds)

    def keep(self, parameters: Mapping[str, Any]) -> None:
        """The arrays of the new model, by the names of w_0; the clock starts again."""
        if self.done == CHECKED_ROUND:
            np.savez(self.model, **{name: np.asarray(value) for name, value in parameters.items()})
        self.start()
