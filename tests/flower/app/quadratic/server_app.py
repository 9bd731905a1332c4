"""The server of the quadratic app."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from fedalpha import Evaluate
from fedalpha.flower import FedAlpha

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    strategy = FedAlpha(
        str(config["strategy"]),
        server=str(config["server"]),
        out=str(config["out"]),
        evaluate=Evaluate(
            stop=str(config["stop"]) or None,
            keep=str(config["keep"]),
            shadow=[str(config["shadow"])] if config["shadow"] else [],
        ),
        fraction_evaluate=0.0,
        min_train_nodes=1,
        min_available_nodes=int(config["clients"]),
        wait_for_nodes=float(config["wait"]),
    )
    targets = np.array([[i, 1, -i, 0.5] for i in range(int(config["clients"]))])

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        return MetricRecord({"loss": float(((arrays["w"].numpy() - targets) ** 2).sum(axis=1).mean())})

    start, timeout = ArrayRecord({"w": Array(np.zeros(4, dtype=np.float32))}), float(config["timeout"])
    result = strategy.start(grid, start, int(config["rounds"]), timeout, evaluate_fn=evaluate)
    np.save(Path(str(config["out"])) / "w.npy", result.arrays["w"].numpy())
