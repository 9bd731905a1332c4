"""The server of a client_fn app, in Flower's present form."""

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    arrays = ArrayRecord([np.zeros((2, 2), dtype=np.float32), np.zeros(3, dtype=np.float32)])
    strategy = FedAvg()
    result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=context.run_config["num-server-rounds"])
    context.state["result"] = result.arrays
