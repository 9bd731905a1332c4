"""What saving costs: the time inside the save path over the round's time, in the same run.

``python -m benchmarks saving`` measures it on the paper's workload (Fashion-MNIST, 100 clients, CNN). On a busy
machine rounds are slowed down more than saves, so the seconds are given beside the share.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedalpha.analysis.history import Row
from fedalpha.data import federation
from fedalpha.data.federations import Federation
from fedalpha.engine.embedded import embedded
from fedalpha.fast.threads import single_thread
from fedalpha.round import Algorithm, ServerState
from fedalpha.runs.description import describe
from fedalpha.runs.experiment import Experiment
from fedalpha.runs.folder import Folder
from fedalpha.runs.saved_state import state_tree
from fedalpha.store import Generations
from fedalpha.strategies import FedSoftWorse
from fedalpha.update import sgd

LONG = 100
"""The number of rows with which a save is measured again: earlier rows must not make it slower."""


class TimedFolder(Folder):
    """A run folder that measures how long each round's row and state take to be on disk."""

    def __init__(self, path: Path, config: Mapping[str, Any]) -> None:
        super().__init__(path, config)
        self.seconds: list[float] = []
        self.last: ServerState

    def on_round(self, row: Row, state: ServerState) -> bool | None:
        begun = time.perf_counter()
        stop = super().on_round(row, state)
        self.seconds.append(time.perf_counter() - begun)
        self.last = state
        return stop


def save_cost(data: Federation | None = None, model: str = "cnn", rounds: int = 3) -> dict[str, Any]:
    """Medians over rounds: seconds of a round, of a save, of a save with 100 rows, and the shares."""
    data = data or federation("fashion-mnist", partition="shards(size=30)", clients=100, seed=0)
    algorithm = Algorithm(update=sgd(batch=64), weigh=FedSoftWorse(T=0.2))
    experiment = Experiment(data, algorithm, model, rounds, 0)
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as place, single_thread():
        folder = TimedFolder(Path(place) / "run", describe(experiment))
        with folder:
            engine = embedded().start(data, data.task, algorithm.update, 0)
            try:
                history = experiment.play(engine, [folder])
            finally:
                engine.close()
        rows = [history.rows[-1]] * LONG
        generations, late = Generations(Path(place) / "long"), []
        for number in range(5):
            begun = time.perf_counter()
            generations.save(LONG + number, state_tree(folder.last), rows)
            late.append(time.perf_counter() - begun)
    round_seconds = statistics.median(row["seconds"] for row in history.rows[1:])
    save, long = statistics.median(folder.seconds[1:]), statistics.median(late)
    return {
        "clients": data.clients,
        "model": model,
        "rounds": rounds,
        "round_seconds": round_seconds,
        "save_seconds": save,
        "save_seconds_at_100_rows": long,
        "share": save / round_seconds,
        "share_at_100_rows": long / round_seconds,
    }
