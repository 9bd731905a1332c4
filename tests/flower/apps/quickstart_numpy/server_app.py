"""FedAvg over NumPy arrays."""

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    num_rounds = context.run_config["num-server-rounds"]
    arrays = ArrayRecord([np.zeros((3, 2)), np.zeros(2)])
    strategy = FedAvg()
    result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=num_rounds)
    context.state["result"] = result.arrays
