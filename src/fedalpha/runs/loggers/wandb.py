"""A run in Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedalpha.analysis.history import History
from fedalpha.runs.loggers.base import LOGGERS
from fedalpha.runs.loggers.tracking import Tracker, files, needed
from fedalpha.store.exports import write_figure


@LOGGERS.register(name="wandb", examples=("wandb", "wandb(project=fedalpha, mode=offline)"))
class Wandb(Tracker):
    """Writes a run of ``project`` to ``folder``/wandb: configuration, numbers, histograms over clients, curves, files.

    Nothing leaves this machine unless ``mode=online`` is given; ``wandb sync`` uploads a run later. A resumed run is a
    new run with all of its rounds. Needs ``pip install "fedalpha[wandb]"``.
    """

    def __init__(self, project: str = "fedalpha", mode: str = "offline", folder: str = "runs") -> None:
        if mode not in ("offline", "online"):
            raise ValueError(f"wandb: mode = {mode!r} is not one of offline, online")
        self._wandb = needed("wandb", "wandb", "wandb")
        self.project, self.mode, self.folder = project, mode, Path(folder)
        self._run: Any = None

    def _begin(self, config: Mapping[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        quiet = self._wandb.Settings(silent=True, console="off", disable_git=True, save_code=False)
        self._run = self._wandb.init(
            project=self.project,
            name=str(config.get("strategy", "run")),
            mode=self.mode,
            dir=str(self.folder),
            config=dict(config),
            settings=quiet,
            reinit="create_new",
        )

    def _write(self, round: int, numbers: Mapping[str, float], clients: Mapping[str, NDArray[np.float64]]) -> None:
        drawn = {f"clients/{name}": self._wandb.Histogram(values) for name, values in clients.items()}
        self._run.log({**numbers, **drawn}, step=round)

    def _finish(self, history: History) -> None:
        if history.rows:
            with files(history) as folder:
                write_figure(history.plot(), folder / "curves.png")
                self._run.log({"curves": self._wandb.Image(str(folder / "curves.png"))}, step=history.rows[-1]["round"])
                artefact = self._wandb.Artifact(f"run-{self._run.id}", type="run")
                for file in sorted(
                    filter(Path.is_file, folder.iterdir())
                ):  # `add_dir` would print a line in the middle of the progress
                    artefact.add_file(str(file))
                self._run.log_artifact(artefact)
                self._run.finish(exit_code=1 if history.interrupted else 0)  # while the files are there
            return
        self._run.finish(exit_code=1)
