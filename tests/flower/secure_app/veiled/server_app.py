"""The server of the veiled app."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from fedalpha.flower import FedAlpha

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    strategy = FedAlpha(
        str(config["strategy"]),
        out=str(config["out"]),
        secure=str(config["secure"]),
        fraction_evaluate=0.0,
        min_available_nodes=int(config["clients"]),
    )
    start = ArrayRecord({"w": Array(np.zeros(4, dtype=np.float32))})
    result = strategy.start(grid, start, int(config["rounds"]), float(config["timeout"]))
    np.save(Path(str(config["out"])) / "w.npy", result.arrays["w"].numpy())
