"""Measure what clients upload: FedAvg against rules that let only some of them train.

    python uploads.py --clients 20 --rounds 3

The app is that of the deployment; here it runs on Flower's simulation runtime, one virtual SuperNode per
client. The bytes are counted on the messages that arrive at the server.
"""

from __future__ import annotations

import os

os.environ.update(FLWR_TELEMETRY_ENABLED="0", FLWR_DISABLE_UPDATE_CHECK="1", RAY_USAGE_STATS_ENABLED="0")

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "app"))

from digits_app.client_app import app as client
from digits_app.task import MODEL, SEED, digits
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from fedalpha.flower import FedAlpha, evaluate_on, initial_arrays


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--strategy", action="append", help="fedalpha strategy (repeatable)")
    given = parser.parse_args()
    strategies = given.strategy or ["FedAvg", "FedWorse(k=0.1)"]
    rows = {}
    federation = digits(given.clients)
    server = ServerApp()

    @server.main()
    def serve(grid: Grid, context: Context) -> None:
        for strategy in strategies:
            rule = FedAlpha(strategy, seed=SEED, fraction_evaluate=0.0, min_available_nodes=given.clients)
            start = initial_arrays(MODEL, federation.shape, federation.classes, SEED)
            evaluate = evaluate_on(MODEL, federation.test, classes=federation.classes)
            rule.start(grid, start, num_rounds=given.rounds, evaluate_fn=evaluate)
            rows[strategy] = rule.rows

    run_simulation(server, client, given.clients, backend_config={"client_resources": {"num_cpus": 1}})
    print(f"{'strategy':<24}{'up, kB/round':>14}{'down, kB/round':>16}{'models/round':>14}{'accuracy, %':>13}")
    for strategy, found in rows.items():
        up, down = (sum(row[key] for row in found) / len(found) / 1000 for key in ("bytes_up", "bytes_down"))
        models = sum(sum(a > 0 for a in row["alpha"]) for row in found) / len(found)
        print(f"{strategy:<24}{up:>14.1f}{down:>16.1f}{models:>14.1f}{100 * found[-1]['accuracy']:>13.1f}")


if __name__ == "__main__":
    main()
