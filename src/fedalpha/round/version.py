"""One version of a server that does not wait: to which clients it is sent, and of which updates the next one is made.

A protocol without input or output, as `fedalpha.round.protocol`: a driver gives `Version` the clients in training,
carries out its orders, and reports the clients that were lost. `fedalpha.round.buffered` lets virtual time pass in
between, `fedalpha.flower.buffered` real time.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fedalpha.clock import Server
from fedalpha.clock.timeline import Among
from fedalpha.rng import generator
from fedalpha.round.answers import Answers
from fedalpha.round.choosing import choose
from fedalpha.round.gate import Gate, Refusal
from fedalpha.round.orders import AskLosses, Heard, Ids, Nothing
from fedalpha.round.protocol import advance
from fedalpha.round.state import Algorithm, Outcome, ServerState
from fedalpha.select import Population, Question
from fedalpha.strategies import Array


@dataclass(frozen=True, eq=False)
class Send:
    """Send the current version to these clients; ``before``: their losses of it that were asked for, by client id."""

    ids: Ids
    before: Mapping[int, float]


class Training(Protocol):
    """A client's training: the version that it was sent, and its loss of that version if it was asked for."""

    @property
    def version(self) -> int: ...
    @property
    def before(self) -> float | None: ...


class Version:
    """The current version, until its successor is made. ``number`` counts from 0.

    ``asks``: ask clients for the loss of the version when they are sent it, if the strategy weighs by it; otherwise
    they tell it when they arrive.
    """

    def __init__(
        self, algorithm: Algorithm, state: ServerState, server: Server, seed: int, *, asks: bool = False
    ) -> None:
        self.algorithm, self.state, self.server, self.seed = algorithm, state, server, seed
        self.asks = asks and "before" in algorithm.weigh.requires
        self.number = state.round
        self.out: dict[int, Refusal] = {}
        """client → why nothing comes from it; such a client is not sent this version again"""
        self._select = state.select
        self._heard = Heard()
        self._drawn = self._asked = self._known = 0
        self._reached: set[int] = set()

    @property
    def size(self) -> int:
        """How many updates make the next version."""
        return self.server.size(self.number)

    @property
    def places(self) -> int:
        """How many clients train at once."""
        return self.server.places(self.number)

    def lose(self, client: int, reason: str, planned: bool = False) -> None:
        """A client was lost; ``planned``: by the virtual clock."""
        self.out[client] = Refusal(client, reason, planned)

    # Sending the version to clients

    def order(self, population: Population, busy: Iterable[int], free: int) -> AskLosses | Send | None:
        """What is to be done now; None if no client is to be sent the model.

        ``population`` are the clients that can be reached, ``busy`` are in training or in the buffer, and ``free``
        places are left. The driver calls it again with the answer (`hear`), or after it has sent the version. Cohorts
        of the selection fill the places; if one is larger, a random part of it is sent the version.
        """
        while free > 0 and (idle := self._idle(population, busy)) is not None:
            gate = Gate(self.algorithm.admission, self.state.broadcast, self.seed, self.number)
            losses = Answers(gate, self._heard, self.number)
            chosen = choose(self.algorithm.select, self._select, idle, self._cohort_rng, losses)
            if isinstance(chosen, AskLosses):
                return chosen
            ids, selected = chosen
            if len(ids) > free:
                rng = generator(self.seed, "places", self.number, self._drawn + 1)  # as docs/async.md was measured
                ids = np.sort(rng.choice(ids, size=free, replace=False))
            if self.asks and (missing := losses.missing(Question(ids))):
                return missing
            self._select, self._heard = selected, Heard()
            self._drawn += 1
            self._asked += losses.count
            self._reached |= losses.clients
            self.out |= {refusal.client: refusal for refusal in gate.refusals}
            ids = gate.present(ids)
            if len(ids):
                self._reached |= set(ids.tolist())
                return Send(ids, losses.whole(ids))
            if not gate.refusals:  # the selection wants nobody
                return None
        return None

    def hear(self, order: AskLosses, losses: Array, problems: Mapping[int, str] | None = None) -> None:
        """The answer to an order for losses."""
        self._heard = self._heard.and_losses(order, losses, problems)

    def _cohort_rng(self) -> np.random.Generator:
        return generator(self.seed, "cohort", self.number, self._drawn)

    def _idle(self, population: Population, busy: Iterable[int]) -> Population | None:
        """The clients that can be sent the version; None if there are none."""
        away = {*busy, *self.out}
        if not away:
            return population if population.clients else None
        ids = population.named(np.arange(population.clients))
        idle = ids[~np.isin(ids, list(away))]
        return Among(population, idle) if len(idle) else None

    # The round of the clients that have delivered

    @property
    def begun(self) -> ServerState:
        """The state with which the round of the next version begins."""
        return dataclasses.replace(self.state, select=self._select)

    def heard(self, arrived: Mapping[int, Training], sent: Mapping[int, Any]) -> Heard:
        """What is known when the round begins; ``sent``: what a client was sent, by id, if it is an older version."""
        known = {id: flight.before for id, flight in sorted(arrived.items()) if flight.before is not None}
        self._known = len(known)
        stale = {id: self.number - flight.version for id, flight in arrived.items()}
        few = len(arrived) < self.size
        heard = Heard(arrived=stale, sent=sent, rebase=self.server.rebases, few=few)
        if not known:
            return heard
        losses = np.array(list(known.values()), dtype=np.float64)
        return heard.and_losses(AskLosses(np.array(list(known), dtype=np.int64)), losses)

    def finished(self, outcome: Outcome) -> Outcome:
        """The outcome of that round, with what happened before it."""
        return dataclasses.replace(
            outcome,
            refusals=[*self.refusals, *outcome.refusals],
            bytes_down=len(self._reached) * self.state.broadcast.nbytes,
            bytes_up=outcome.bytes_up + 8 * (self._asked - self._known),
        )

    def empty(self, population: Population) -> Outcome:
        """The outcome if nothing has arrived and nobody is in training: the model is kept."""
        if not self.out:
            raise ValueError(
                f"{self.algorithm.select} selects none of {population.clients} clients while none is in training; "
                "fix the selection"
            )
        asked = sorted(self.out)
        lost = {id: refusal.reason for id, refusal in self.out.items()}
        heard = Heard(arrived=dict.fromkeys(asked, 0), few=True)
        while not isinstance(step := advance(self.algorithm, self.begun, population, self.seed, heard), Outcome):
            if isinstance(step, AskLosses):
                heard = heard.and_losses(step, np.full(len(step.ids), math.nan), lost)
            else:
                gate = Gate(self.algorithm.admission, self.state.broadcast, self.seed, self.number)
                heard = heard.and_reports(Nothing(gate.short(0, len(asked)) or ""))
        return dataclasses.replace(
            step,
            refusals=self.refusals,
            bytes_down=len(self._reached) * self.state.broadcast.nbytes,
            bytes_up=8 * self._asked,
        )

    @property
    def refusals(self) -> list[Refusal]:
        """The clients that were refused or lost before the round, in the order of their ids."""
        return [refusal for _, refusal in sorted(self.out.items())]
