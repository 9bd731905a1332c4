"""One round of a Flower run, between `FedAlpha.configure_train` and `FedAlpha.aggregate_train`."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from logging import WARNING
from typing import Any

import numpy as np
from flwr.app import Message
from flwr.serverapp import Grid
from flwr.supercore import log

from fedalpha.flower.exchange import exchange
from fedalpha.flower.queries import ASK_LOSS, EXAMPLES, LOSS
from fedalpha.flower.replies import Rejected, Trained, arrays_of, content_of, loss_of, metrics_of, number
from fedalpha.flower.sums import Arrays, is_float
from fedalpha.strategies import Array, Cohort, Need, State, Strategy


@dataclass
class Round:
    """What is known so far; rounds count from 0 here and from 1 in Flower and in rows."""

    round: int
    sent: Arrays
    accuracy: float | None
    loss_keys: Mapping[str, str]
    signed: bool
    weighted_by_key: str
    cohort: Cohort | None = None
    needs: frozenset[Need] = frozenset()
    alpha: Array | None = None
    """aligned with the cohort"""
    weigh: State = field(default_factory=dict)
    """the rule's next state, if this round counts"""
    messages: dict[int, Message] = field(default_factory=dict)
    """client id → training message"""
    rejected: dict[int, str] = field(default_factory=dict)
    kept: str | None = None
    """why the model is kept"""
    bytes_down: int = 0
    bytes_up: int = 0
    started: float = field(default_factory=time.monotonic)

    @property
    def nobody(self) -> str:
        """Why the model is kept when all sizes are 0."""
        return f"every client that answered has {self.weighted_by_key} = 0, so nobody can be weighed"

    def gather(self, sizes: Mapping[int, float]) -> Cohort:
        """The cohort of these clients, sorted by id."""
        ids = np.array(sorted(sizes), dtype=np.int64)
        return Cohort(ids, np.array([sizes[i] for i in ids.tolist()]), self.round, self.accuracy)

    def ask_losses(
        self, grid: Grid, asked: Mapping[int, Message], timeout: float
    ) -> tuple[dict[int, float], dict[int, float]]:
        """F_i(w_t) and, where examples are what clients are weighted by, the size of everybody with a usable answer."""
        queries = [
            Message(content=m.content, message_type=ASK_LOSS, dst_node_id=m.metadata.dst_node_id)
            for m in asked.values()
        ]
        replies = exchange(grid, queries, timeout)
        losses: dict[int, float] = {}
        sizes: dict[int, float] = {}
        for id, message in asked.items():
            try:
                metrics = metrics_of(replies.get(message.metadata.dst_node_id))
                loss = loss_of(metrics, LOSS, self.signed)
                if self.weighted_by_key == EXAMPLES:
                    sizes[id] = number(metrics, EXAMPLES)
            except Rejected as reason:
                self._reject(id, "loss", reason)
                continue
            losses[id] = loss
            self.bytes_up += metrics.count_bytes()
        return losses, sizes

    def check(self, replies: Iterable[Message]) -> list[Trained]:
        """The replies that can be used, by client id; one per client, the others logged."""
        by_message = {m.metadata.message_id: i for i, m in self.messages.items() if m.metadata.message_id}
        by_node = {m.metadata.dst_node_id: i for i, m in self.messages.items()}
        found: dict[int, Message] = {}
        for reply in replies:
            node = reply.metadata.src_node_id
            id = by_message.get(reply.metadata.reply_to_message_id, by_node.get(node))
            if id is None or id in found:
                log(WARNING, "fedalpha: a reply from node %d is not used: unasked or repeated", node)
                continue
            found[id] = reply
        trained = []
        for id in sorted(self.messages):
            try:
                content_of(found.get(id))
                metrics = metrics_of(found[id])
                examples = number(metrics, self.weighted_by_key)
                for kind in self.needs & {"train", "after"}:
                    loss_of(metrics, self.loss_keys[kind], self.signed)
                if "steps" in self.needs:
                    number(metrics, "steps")
                trained.append(Trained(id, arrays_of(found[id], self.sent), metrics, examples, found[id]))
            except Rejected as reason:
                self._reject(id, "model", reason)
        self.bytes_up += sum(t.nbytes + t.metrics.count_bytes() for t in trained)
        return trained

    def observe(self, trained: list[Trained]) -> Cohort:
        """The survivors with what is known after training."""
        seen: dict[str, Any] = {}
        if self.cohort is not None and self.cohort.before is not None:
            before = dict(zip(self.cohort.ids.tolist(), self.cohort.before.tolist(), strict=True))
            seen["before"] = np.array([before[t.id] for t in trained])
        for kind in self.needs & {"train", "after"}:
            seen[kind] = np.array([t.metrics[self.loss_keys[kind]] for t in trained], dtype=np.float64)
        if "steps" in self.needs:
            seen["steps"] = np.array([t.metrics["steps"] for t in trained], dtype=np.float64)
        if self.needs & {"norms", "gram"}:
            gram = np.zeros((len(trained), len(trained)))
            for name, old in self.sent.items():
                if is_float(old):
                    moves = np.stack([(t.arrays[name].astype(np.float64) - old).ravel() for t in trained])
                    gram += moves @ moves.T
            seen["norms"] = np.sqrt(np.diagonal(gram))
            if "gram" in self.needs:
                seen["gram"] = gram
        return self.gather({t.id: t.examples for t in trained}).replace(**seen)

    def survive(self, trained: list[Trained], rule: Strategy) -> Array:
        """alpha of those who sent a model; what the others had is shared out as ``rule`` says."""
        assert self.alpha is not None
        assert self.cohort is not None
        place = {i: p for p, i in enumerate(self.cohort.ids.tolist())}
        there = [place[t.id] for t in trained]
        alpha = self.alpha[there]
        if len(trained) < len(self.messages):
            alpha = rule.renormalise(alpha)
            self.alpha = np.zeros(len(self.cohort))
            self.alpha[there] = alpha
        return alpha

    def row(self, trained: list[Trained]) -> dict[str, Any]:
        """What happened, as a line of ``history.jsonl``."""
        ids = [] if self.cohort is None else self.cohort.ids.tolist()
        losses: dict[str, list[float | None]] = {}
        if self.cohort is not None and self.cohort.before is not None:
            losses["before"] = self.cohort.before.tolist()
        by_id = {t.id: t.metrics for t in trained}
        for kind, key in self.loss_keys.items():
            told = [_told(by_id[i].get(key)) if i in by_id else None for i in ids]
            if any(value is not None for value in told):
                losses[kind] = told
        model = sum(value.nbytes for value in self.sent.values())
        return {
            "round": self.round + 1,
            "cohort": ids,
            "alpha": None if self.kept or self.alpha is None else self.alpha.tolist(),
            "losses": losses,
            "rejected": {str(i): reason for i, reason in sorted(self.rejected.items())},
            "kept": self.kept,
            "bytes_down": self.bytes_down,
            "bytes_up": self.bytes_up,
            "bytes_saved": model * max(0, len(ids) - len(self.messages)),
            "seconds": round(time.monotonic() - self.started, 3),
        }

    def _reject(self, id: int, what: str, reason: Rejected) -> None:
        self.rejected[id] = str(reason)
        log(WARNING, "fedalpha: round %d: the %s of client %d is left out: %s", self.round + 1, what, id, reason)


def _told(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
