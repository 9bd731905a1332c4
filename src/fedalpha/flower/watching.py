"""Early stopping, the best model and shadow rules in a live federation; see `fedalpha.analysis.watch`.

The signal is the evaluation of each round: on the server's data (``evaluate_fn``), otherwise that of the clients.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from fedalpha.analysis.history import Best, Row
from fedalpha.analysis.watch import Watch
from fedalpha.flower.rounds import Round
from fedalpha.round import Algorithm, AskLosses, Gate, Outcome, ServerState
from fedalpha.round.cohorts import gather
from fedalpha.round.shadow import Asked
from fedalpha.runs.evaluate import Evaluate

Losses = Callable[[AskLosses], tuple[Any, dict[int, str]]]


class Watching:
    """The rules of `Evaluate` in a `FedAlpha`, and their part of the state and the rows."""

    def __init__(self, algorithm: Algorithm, evaluate: Evaluate) -> None:
        self.watch = Watch("evaluation", evaluate.stop, evaluate.keep, evaluate.shadow)
        self.algorithm = algorithm
        self.watch.shadows.check(algorithm)

    def check(self, evaluated: bool) -> None:
        """Raise if a setting needs an evaluation that is not made."""
        if not evaluated and (self.watch.looks or self.watch.weighs_by_accuracy):
            raise ValueError(
                "stop, keep or a shadow rule looks at accuracy or loss: pass evaluate_fn= to start, or "
                "fraction_evaluate > 0"
            )

    def check_loop(self) -> None:
        """Raise if another loop drives the rounds, so that the run cannot be stopped."""
        if self.watch.condition is not None:
            raise RuntimeError(
                f"stop = {str(self.watch.condition)!r} needs FedAlpha.start; this run is driven by another loop (a "
                "wrapper, or a start() of your own), which does not ask whether to stop. Leave stop= out"
            )

    def begin(self, state: ServerState, clients: int | None) -> ServerState:
        return dataclasses.replace(state, watch=self.watch.init(clients))

    def ask(self, now: Round, losses: Losses) -> None:
        """Ask the clients that train for their losses, if only a shadow rule needs them."""
        assert now.order is not None
        if not self.watch.shadows.rules:
            return
        cohort = gather(now.population, now.order.ids, now.state)
        if "before" in self.algorithm.weigh.needs(now.state.weigh, cohort):
            return
        if self.watch.shadows.asks(now.state.watch["shadow"], cohort):
            now.asked = Asked(now.order.ids, *losses(AskLosses(now.order.ids)))

    def weigh(self, now: Round, outcome: Outcome, accuracy: float | None) -> ServerState:
        """The state after the round with those of the shadow rules; their weights are stored."""
        state, shadows = outcome.state, self.watch.shadows
        if not shadows.rules:
            return state
        gate = Gate(self.algorithm.admission, now.state.broadcast, now.seed, now.state.round)
        now.shadow, states = shadows.weigh(now.state.watch["shadow"], outcome, gate, now.asked, accuracy)
        return dataclasses.replace(state, watch={**state.watch, "shadow": states})

    def look(self, state: ServerState, accuracy: float | None, loss: float | None) -> ServerState:
        """The state, with its model as the best one if it is."""
        if accuracy is None and loss is None:
            return state
        found = self.watch.best(state.watch, state.round, state.broadcast.parameters, accuracy, loss)
        return dataclasses.replace(state, watch=found)

    def best_round(self, state: ServerState) -> int | None:
        found = state.watch.get("best")
        return None if found is None else int(found["round"])

    def best(self, state: ServerState | None, rows: Sequence[Row]) -> Best | None:
        found = None if state is None else state.watch.get("best")
        return None if found is None else Best(rows[found["round"]], dict(found["model"]))
