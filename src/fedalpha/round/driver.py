"""Plays a round on an engine: carries out the orders of the protocol, one after the other."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from fedalpha.round.gate import Refusal
from fedalpha.round.orders import AskLosses, Heard, Ids, Learn, Measure, Sample, Train
from fedalpha.round.protocol import advance
from fedalpha.round.state import Algorithm, Outcome, ServerState
from fedalpha.select import Population
from fedalpha.strategies import Array

log = logging.getLogger(__name__)
Part = Literal["test", "validation"]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The mean loss, and one number per sample for correctness (None where accuracy has no meaning).

    If the task asks for scores, each sample has further numbers after that one (NaN without accuracy): ``records``.
    """

    loss: float
    correct: Array | None
    records: Array | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.correct is not None and self.correct.ndim == 2:
            first = self.correct[:, 0]
            object.__setattr__(self, "records", self.correct[:, 1:])
            object.__setattr__(self, "correct", None if np.isnan(first).all() else first)

    @property
    def accuracy(self) -> float | None:
        return None if self.correct is None else float(self.correct.mean())


class Engine(Protocol):
    """Computes the work of clients. It does not depend on the strategy."""

    def losses(self, broadcast: Any, ids: Ids, sample: Sample | None = None) -> Array:
        """F_i of the broadcast model on each client's training data, or on a sample of it."""

    def update(self, broadcast: Any, order: Train) -> Any:
        """Train the clients of an order; reports sorted by id."""

    def evaluate(self, broadcast: Any, part: Part) -> Evaluation:
        """Loss and correctness of the broadcast model on the server's data."""

    def close(self) -> None:
        """Release the engine's resources."""


def play(
    algorithm: Algorithm,
    state: ServerState,
    engine: Engine,
    population: Population,
    seed: int,
    heard: Heard | None = None,
    deliver: Callable[[Train], tuple[Train, Mapping[int, str]]] | None = None,
) -> Outcome:
    """Play one round on an engine.

    ``heard`` is what is known when the round begins. ``deliver`` says which of the clients of an order deliver, and
    by client id why the others do not; without it all do.
    """
    broadcast, heard = state.broadcast, heard or Heard()
    absent: Mapping[int, str] = {}
    while True:
        match advance(algorithm, state, population, seed, heard):
            case AskLosses() as order:
                heard = heard.and_losses(order, engine.losses(broadcast, order.ids, order.sample))
            case Train() as order:
                order, absent = (order, {}) if deliver is None else deliver(order)
                reports = engine.update(broadcast, order)
                heard = heard.and_reports(reports, {**reports.problems, **absent})
            case Measure() as order:
                heard = heard.and_measured({of: _measured(engine, state, heard, of) for of in order.of})
            case Learn() as order:
                found = algorithm.combine.learn(broadcast, order.reports, order.alpha, population)
                heard = heard.and_learnt(found)
            case outcome:
                outcome = _with_planned(outcome, absent)
                tell(outcome)
                return outcome


def _with_planned(outcome: Outcome, problems: Mapping[int, str]) -> Outcome:
    """The outcome in which refusals for these reasons, by client id, are marked as planned."""
    if not problems:
        return outcome
    refusals = [dataclasses.replace(r, planned=problems.get(r.client) == r.reason) for r in outcome.refusals]
    return dataclasses.replace(outcome, refusals=refusals)


def _measured(engine: Engine, state: ServerState, heard: Heard, of: int | None) -> float:
    """The loss on the server's validation data: of the current model, or of a client's."""
    sent = state.broadcast
    if of is not None:
        report = next(r for r in heard.reports.items if r.id == of)
        sent = dataclasses.replace(sent, parameters=report.parameters)
    return engine.evaluate(sent, "validation").loss


def tell(outcome: Outcome, say: Callable[..., None] = log.log, nodes: Mapping[int, str] | None = None) -> None:
    """Log what the server did not accept in a round, and why; ``say(level, text, *arguments)`` writes a line.

    Clients that are refused for the same reason share a line. ``nodes`` names the node behind each client.
    """
    round = outcome.state.round
    tell_refusals(round, outcome.refusals, say, nodes)
    if outcome.idle:
        say(logging.INFO, "round %d: %s sent the model back unchanged", round, _name(outcome.idle, nodes))
    if outcome.dominant is not None:
        share = 100 * float(outcome.alpha.max())
        say(logging.INFO, "round %d: %s has %.4g %% of alpha", round, _name([outcome.dominant], nodes), share)
    if outcome.kept is not None:
        say(logging.WARNING, "round %d: the model is kept: %s", round, outcome.kept)


def tell_refusals(
    round: int,
    refusals: Iterable[Refusal],
    say: Callable[..., None] = log.log,
    nodes: Mapping[int, str] | None = None,
) -> None:
    """Log the refusals of a round, a line for each reason. Refusals because of the virtual clock are not warnings."""
    refused: dict[tuple[str, bool], dict[int, None]] = {}
    for refusal in refusals:
        refused.setdefault((refusal.reason, refusal.planned), {})[refusal.client] = None
    for (reason, planned), clients in refused.items():
        say(
            logging.INFO if planned else logging.WARNING,
            "round %d: %s refused: %s",
            round,
            _name(clients, nodes),
            reason,
        )


def _name(clients: Iterable[int], nodes: Mapping[int, str] | None) -> str:
    named = {i: (nodes or {}).get(i, str(i)) for i in clients}
    listed = ", ".join(str(i) if node == str(i) else f"{i} (node {node})" for i, node in named.items())
    return f"clients {listed}" if len(named) > 1 else f"client {listed}"
