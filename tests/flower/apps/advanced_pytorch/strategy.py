"""A strategy with a loop of its own that keeps the best model."""

import time
from collections.abc import Callable

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result


class CustomFedAvg(FedAvg):
    best: tuple[float, int] = (-1.0, 0)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        train_config = ConfigRecord() if train_config is None else train_config
        evaluate_config = ConfigRecord() if evaluate_config is None else evaluate_config
        result, arrays, begun = Result(), initial_arrays, time.time()
        for current_round in range(1, num_rounds + 1):
            replies = grid.send_and_receive(
                messages=self.configure_train(current_round, arrays, train_config, grid), timeout=timeout
            )
            new, metrics = self.aggregate_train(current_round, replies)
            if new is not None:
                result.arrays = arrays = new
            if metrics is not None:
                result.train_metrics_clientapp[current_round] = metrics
            replies = grid.send_and_receive(
                messages=self.configure_evaluate(current_round, arrays, evaluate_config, grid), timeout=timeout
            )
            found = self.aggregate_evaluate(current_round, replies)
            if found is not None and found["eval_acc"] > self.best[0]:
                self.best = (float(found["eval_acc"]), current_round)
        assert time.time() >= begun
        return result
