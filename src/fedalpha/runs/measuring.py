"""What is measured after each round, and the row that it makes."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedalpha.analysis import columns
from fedalpha.analysis.fairness import Owners
from fedalpha.analysis.history import Row
from fedalpha.analysis.scores import scores
from fedalpha.defence.tolerance import influence
from fedalpha.round import Engine, Evaluation, Outcome, ServerState
from fedalpha.runs.setup import Setup


@dataclass(frozen=True)
class Measuring:
    """Measures the models of a run on its engine."""

    setup: Setup
    engine: Engine

    def look(
        self,
        state: ServerState,
        outcome: Outcome | None,
        shadow: dict[str, Any] | None,
        rows: Sequence[Row],
        started: float,
    ) -> tuple[ServerState, Row]:
        """Measure the model. Returns the state with what was measured and is used later, and the row."""
        setup, engine = self.setup, self.engine
        due = setup.due(state.round) or state.round == setup.rounds
        tested = engine.evaluate(state.broadcast, "test") if due else None
        validated = engine.evaluate(state.broadcast, "validation") if setup.looks_at("validation") else None
        state = self._noted(state, tested if setup.evaluate.signal == "test" else validated)
        weighs = "accuracy" in setup.algorithm.weigh.requires
        best = state.watch.get("best")
        context = columns.Context(
            round=state.round,
            outcome=outcome,
            secure=setup.algorithm.secure is not None,
            influence=self._influence(outcome),
            **timed_part(setup, state.clock.get("time")),
            **tested_part(setup, tested),
            validation_accuracy=validated.accuracy if validated and (weighs or setup.watch.looks) else None,
            validation_loss=validated.loss if validated and setup.watch.looks else None,
            shadow=shadow,
            best_round=None if best is None else best["round"],
            seconds=time.perf_counter() - started,
        )
        row = columns.row(context)
        if stopped := setup.watch.stopped([*rows, row]):
            test = {} if tested else tested_part(setup, engine.evaluate(state.broadcast, "test"))
            row = columns.row(dataclasses.replace(context, stopped=stopped, **test))
        return state, row

    def _noted(self, state: ServerState, signal: Evaluation | None) -> ServerState:
        """The state with the accuracy that the strategy may see, if it looks at one, and with the best model."""
        if signal is None:
            return state
        setup = self.setup
        watch = setup.watch.best(state.watch, state.round, state.broadcast.parameters, signal.accuracy, signal.loss)
        if setup.watch.weighs_by_accuracy:
            watch = {**watch, "accuracy": signal.accuracy}
        seen = signal.accuracy if "accuracy" in setup.algorithm.weigh.requires else state.accuracy
        return dataclasses.replace(state, watch=watch, accuracy=seen)

    def _influence(self, outcome: Outcome | None) -> dict[str, Any] | None:
        """The influence of any ``liars`` clients in the round."""
        if outcome is None or outcome.kept is not None:
            return None
        rules = self.setup.algorithm.weigh, self.setup.algorithm.combine
        found = influence(*rules, outcome.cohort, outcome.alpha, self.setup.evaluate.liars, outcome.lost)
        return found.row() if found else None


def timed_part(setup: Setup, time: float | None) -> dict[str, Any]:
    """Simulated time as arguments of a row's context; empty without a clock."""
    return {"time": time, "late": not setup.pace.server.waits} if setup.pace.timed else {}


def tested_part(setup: Setup, tested: Evaluation | None) -> dict[str, Any]:
    """An evaluation on the test set, or that there is none, as arguments of a row's context."""
    known = setup.federation.task.correct is not None  # without an accuracy, targets need not be labels
    found: dict[str, Any] = {"owners": Owners.of(setup.federation) if known else None}
    if tested is None:
        return {**found, "scores": dict.fromkeys(setup.federation.task.scores)}
    found |= {"accuracy": tested.accuracy, "loss": tested.loss, "correct": tested.correct}
    targets = math.prod(setup.federation.test.y.shape[1:])
    return {**found, "scores": scores(setup.federation.task, tested.records, targets)}
