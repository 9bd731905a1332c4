"""A strategy of the app's own."""

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from strategy import CustomFedAvg
from task import Net

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    torch.manual_seed(0)
    arrays = ArrayRecord(Net().state_dict())
    strategy = CustomFedAvg(fraction_train=1.0, fraction_evaluate=1.0)
    rounds, config = context.run_config["num-server-rounds"], ConfigRecord({"lr": 0.05})
    result = strategy.start(grid=grid, initial_arrays=arrays, train_config=config, num_rounds=rounds)
    context.state["result"] = result.arrays
