"""A run in MLflow."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedalpha.analysis.history import History
from fedalpha.runs.loggers.base import LOGGERS
from fedalpha.runs.loggers.tracking import Tracker, files, needed

_LONGEST = 500
"""The longest value of a parameter that every MLflow store takes; config.json holds all of it."""


@LOGGERS.register(name="mlflow", examples=("mlflow", "mlflow('sqlite:///mlflow.db')"))
class MLflow(Tracker):
    """Writes a run to the tracking store ``uri``, in the ``experiment`` of that name.

    The configuration becomes parameters and ``config.json``; numbers become metrics; of the values by client the
    minimum, the median and the maximum. Curves, a histogram of α in the last round, the rows and the model are
    artefacts. The default store is a file in this folder. A resumed run is a new run with all of its rounds.
    Needs ``pip install "fedalpha[mlflow]"``.
    """

    def __init__(self, uri: str = "sqlite:///mlflow.db", experiment: str = "fedalpha") -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # it would report its use to its makers
        needed("mlflow", "mlflow", "mlflow")
        self.uri = uri
        self.experiment = experiment
        self._client: Any = None
        self._run = ""
        self._alpha: NDArray[np.float64] | None = None

    def _begin(self, config: Mapping[str, Any]) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Param

        self._client = MlflowClient(tracking_uri=self.uri)
        known = self._client.get_experiment_by_name(self.experiment)
        identity = known.experiment_id if known else self._client.create_experiment(self.experiment, self._artefacts)
        self._run = self._client.create_run(identity, run_name=str(config.get("strategy", "run"))).info.run_id
        parameters = [Param(name, str(value)[:_LONGEST]) for name, value in config.items()]
        self._client.log_batch(self._run, params=parameters)
        self._client.log_dict(self._run, dict(config), "config.json")

    @property
    def _artefacts(self) -> str | None:
        """The folder of artefacts, beside a store that is a file; else where the store says."""
        if not self.uri.startswith("sqlite:///"):
            return None
        return (Path(self.uri.removeprefix("sqlite:///")).absolute().parent / "mlartifacts").as_uri()

    def _write(self, round: int, numbers: Mapping[str, float], clients: Mapping[str, NDArray[np.float64]]) -> None:
        from mlflow.entities import Metric

        found = dict(numbers)
        for name, values in clients.items():
            found |= {f"clients/{name}/{what}": float(of(values)) for what, of in _SPREAD.items()}
        now = int(1000 * time.time())
        self._client.log_batch(self._run, metrics=[Metric(name, value, now, round) for name, value in found.items()])
        self._alpha = clients.get("alpha", self._alpha)

    def _finish(self, history: History) -> None:
        if history.rows:
            self._client.log_figure(self._run, history.plot(), "curves.png")
            with files(history) as folder:
                self._client.log_artifacts(self._run, str(folder))
        if self._alpha is not None:
            from fedalpha.analysis.plots import figure

            fig, (ax,) = figure(6.5, 3.6)
            ax.hist(self._alpha, bins=20)
            ax.set_title("clients by α, last round", loc="left", fontsize=11)
            self._client.log_figure(self._run, fig, "alpha.png")
        self._client.set_terminated(self._run, "KILLED" if history.interrupted else "FINISHED")


_SPREAD: dict[str, Callable[[NDArray[np.float64]], Any]] = {"min": np.min, "median": np.median, "max": np.max}
