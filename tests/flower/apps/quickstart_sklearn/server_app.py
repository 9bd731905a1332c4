"""FedAvg over the parameters of scikit-learn."""

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from task import create_model, get_params

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    arrays = ArrayRecord(get_params(create_model(1)))
    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=1.0)
    result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=context.run_config["num-server-rounds"])
    context.state["result"] = result.arrays
