"""A run as TensorBoard shows it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedalpha.analysis.history import History
from fedalpha.runs.loggers.base import LOGGERS
from fedalpha.runs.loggers.tracking import Tracker, needed


@LOGGERS.register(name="tensorboard", examples=("tensorboard", "tensorboard('runs/tensorboard/a')"))
class TensorBoard(Tracker):
    """Writes event files to ``folder``: the configuration, numbers, histograms over clients, and the curves.

    A run replaces what an earlier one wrote to the same folder. ``tensorboard --logdir runs/tensorboard`` shows it.
    Needs ``pip install "fedalpha[tensorboard]"``.
    """

    def __init__(self, folder: str = "runs/tensorboard") -> None:
        needed("tensorboard", "tensorboard", "tensorboard")
        self.folder = Path(folder)
        self._writer: Any = None

    def _begin(self, config: Mapping[str, Any]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # The reader drops every earlier event from this step on: an earlier run in this folder is replaced.
        self._writer = SummaryWriter(str(self.folder), purge_step=0)
        shown = json.dumps(config, indent=1, ensure_ascii=False)
        self._writer.add_text("config", f"<pre>{shown.replace('<', '&lt;')}</pre>", 0)

    def _write(self, round: int, numbers: Mapping[str, float], clients: Mapping[str, NDArray[np.float64]]) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, round)
        for name, values in clients.items():
            self._writer.add_histogram(f"clients/{name}", values, round)
        self._writer.flush()

    def _finish(self, history: History) -> None:
        if history.rows:
            self._writer.add_figure("curves", history.plot(), history.rows[-1]["round"], close=False)
        self._writer.close()
