"""The server: Flower's loop with a fedalpha strategy."""

from __future__ import annotations

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from digits_app.task import MODEL, SEED, digits
from fedalpha.flower import FedAlpha, evaluate_on, initial_arrays

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    clients = int(config["clients"])
    federation = digits(clients)
    strategy = FedAlpha(
        str(config["strategy"]),
        **{name: str(config[name]) for name in ("select", "combine", "apply") if config[name]},
        seed=SEED,
        out=str(config["out"]) or None,
        fraction_evaluate=0.0,
        min_train_nodes=1,
        min_available_nodes=clients,
    )
    strategy.start(
        grid,
        initial_arrays(MODEL, federation.shape, federation.classes, SEED),
        num_rounds=int(config["rounds"]),
        timeout=float(config["timeout"]),
        evaluate_fn=evaluate_on(MODEL, federation.test, classes=federation.classes),
    )
