"""The losses that clients sent when they were asked for them, after the gate."""

from __future__ import annotations

import numpy as np

from fedalpha.round.gate import Gate
from fedalpha.round.orders import AskLosses, Heard, Ids, Sample
from fedalpha.select import Question
from fedalpha.strategies import Array


class Answers:
    """F_i(w_t) of the clients that were asked, or estimates from a number of samples; NaN where the gate refused it."""

    def __init__(self, gate: Gate, heard: Heard, round: int) -> None:
        self.round = round
        self._known: dict[int | None, dict[int, float]] = {}
        for order, losses, problems in heard.losses:
            known = self._known.setdefault(None if order.sample is None else order.sample.batch, {})
            known.update(zip(order.ids.tolist(), gate.losses(order.ids, losses, problems).tolist(), strict=True))

    def missing(self, question: Question) -> AskLosses | None:
        """The order for the answers to a question that are still missing; None if there are none.

        A client is asked only once per round for the same loss.
        """
        known = self._known.get(question.batch, {})
        new = np.array([i for i in question.ids.tolist() if i not in known], dtype=np.int64)
        if not len(new):
            return None
        return AskLosses(new, None if question.batch is None else Sample(self.round, question.batch))

    def to(self, question: Question | None) -> Array | None:
        """The answers to a question, aligned with its ids."""
        if question is None:
            return None
        known = self._known.get(question.batch, {})
        return np.array([known[i] for i in question.ids.tolist()])

    def whole(self, ids: Ids) -> dict[int, float]:
        """The losses on all of their data that these clients were asked for."""
        known = self._known.get(None, {})
        return {i: known[i] for i in ids.tolist() if i in known}

    @property
    def clients(self) -> set[int]:
        """The ids of all clients that were asked."""
        return {id for known in self._known.values() for id in known}

    @property
    def count(self) -> int:
        """The number of losses that clients sent."""
        return sum(len(known) for known in self._known.values())
