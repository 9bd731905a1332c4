"""FedAvg without evaluation."""

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    arrays = ArrayRecord([np.zeros(3)])
    strategy = FedAvg(fraction_evaluate=0.0)
    result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=context.run_config["num-server-rounds"])
    context.state["result"] = result.arrays
