"""The gate between the clients and the strategy: it refuses answers and reports that are malformed, late or repeated.

A client that is refused before weighing counts as absent: the result is bit for bit the same as without it. If a
client is lost after weighing, the weights of the others are renormalised. With fewer clients than the quorum the
model is kept. Every refusal appears with its reason in the log and in the history. The gate checks numbers itself;
a report checks its own model (`misfit`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fedalpha.round.orders import Heard, Ids
from fedalpha.strategies import Array

LONGEST_REASON = 500
"""Characters of a refusal's reason that are kept: a client may send a text of any length, and reasons are stored."""


MOST_CLASSES = 1_000_000
"""The longest list of class counts that is accepted."""


class Report(Protocol):
    """What a client sends back, whatever its model is made of (tensors, NumPy arrays)."""

    @property
    def id(self) -> int: ...
    @property
    def losses(self) -> Any: ...
    @property
    def origin(self) -> tuple[int, int] | None: ...
    @property
    def delay(self) -> float: ...
    @property
    def labels(self) -> Sequence[int] | None: ...

    def misfit(self, broadcast: Any) -> str | None:
        """How its model differs in form from the broadcast model, or where it is not finite; None if it is sound."""

    def same(self, other: Any) -> bool:
        """Whether another report has the same losses and the same model."""

    def unchanged(self, broadcast: Any) -> bool:
        """Whether its model is the broadcast model."""


@dataclass(frozen=True)
class Admission:
    """What the server accepts in a round.

    ``quorum``: how many of the clients that were asked must deliver (a number, or a share below 1 as a
    float); with fewer the model is kept. ``deadline``: the time in seconds after which a report is refused.
    ``signed``: whether a loss may be negative. ``bound``: an aggregate that is not finite, or with a value above
    ``bound`` times the largest one of the same array of the current model (at least 1), is not installed; None
    installs any aggregate.
    """

    quorum: int | float = 1
    deadline: float | None = None
    signed: bool = False
    bound: float | None = None

    def __post_init__(self) -> None:
        share = isinstance(self.quorum, float) and not self.quorum.is_integer()
        number = isinstance(self.quorum, int | float) and not isinstance(self.quorum, bool)
        if not number or not (0 < self.quorum < 1 if share else self.quorum >= 1):
            raise ValueError(f"quorum = {self.quorum!r}; give a number of clients (3) or a share of the cohort (0.5)")
        if self.deadline is not None and not (isinstance(self.deadline, int | float) and self.deadline > 0):
            raise ValueError(f"deadline = {self.deadline!r}; give a number of seconds > 0, or none")
        if self.bound is not None and not self.bound > 1:
            raise ValueError(f"bound = {self.bound}; give a number > 1, such as 1e4, or none")

    def enough(self, present: int, asked: int) -> bool:
        """Whether ``present`` of the ``asked`` clients are a quorum.

        >>> Admission(quorum=0.5).enough(5, 10), Admission(quorum=3).enough(2, 10), Admission(quorum=3).enough(1, 1)
        (True, False, True)
        """
        need = math.ceil(self.quorum * asked - 1e-9) if self.quorum < 1 else min(int(self.quorum), asked)
        return present >= max(need, 1)


@dataclass(frozen=True)
class Refusal:
    """An answer or a report that the gate did not accept, with the reason."""

    client: int
    reason: str
    planned: bool = False
    """Whether the virtual clock is the reason: the client came too late, or it was gone."""


class Gate:
    """The gate of one round; ``refusals`` lists what it refused, ``idle`` clients that returned the model unchanged."""

    def __init__(self, admission: Admission, broadcast: Any, run: int, round: int, heard: Heard | None = None) -> None:
        self.admission = admission
        self.broadcast = broadcast
        self.run = run
        self.round = round
        self._stale: Mapping[int, int] = (heard.arrived or {}) if heard else {}
        self._sent: Mapping[int, Any] = heard.sent if heard else {}
        self.refusals: list[Refusal] = []
        self.idle: list[int] = []
        self._out: set[int] = set()

    def losses(self, ids: Ids, losses: Array, problems: Mapping[int, str]) -> Array:
        """The losses that clients sent, NaN where one is refused; that client is then absent from the round.

        ``problems`` gives, by client id, the reason why there is no usable answer.
        """
        admitted = np.array(losses, dtype=np.float64)
        for place, (id, loss) in enumerate(zip(ids.tolist(), admitted.tolist(), strict=True)):
            if reason := problems.get(id) or self._bad_loss("before", loss):
                self.refuse(id, reason)
                admitted[place] = math.nan
        return admitted

    def present(self, ids: Ids) -> Ids:
        """``ids`` without the clients that were refused."""
        return np.array([i for i in ids.tolist() if i not in self._out], dtype=np.int64)

    def short(self, present: int, asked: int) -> str | None:
        """Why the model must be kept if ``present`` of the ``asked`` clients are below the quorum; else None."""
        if self.admission.enough(present, asked):
            return None
        return f"only {present} of {asked} clients delivered, the quorum is {self.admission.quorum:g}"

    def sound(self, reports: Any) -> bool:
        """Whether summed reports can all be used: a single client cannot be removed from a sum."""
        losses = np.array([loss for r in reports.items for loss in r.losses.values()])
        if not np.isfinite(losses).all() or (not self.admission.signed and (losses < 0).any()):
            return False
        if len(set(reports.ids.tolist())) != len(reports.items):
            return False
        return bool(reports.finite(self.broadcast))

    def admit(self, reports: Sequence[Report], asked: Ids, wanted: frozenset[str] = frozenset()) -> list[Any]:
        """The accepted reports, one per client, sorted by id; ``wanted`` may ask for class counts (``labels``)."""
        found: dict[int, list[Report]] = {}
        expected = frozenset(asked.tolist())
        for report in reports:
            if reason := self.fault(report, expected) or ("labels" in wanted and bad_counts(report.labels)):
                self.refuse(report.id, reason, out=False)
            else:
                found.setdefault(report.id, []).append(report)
        items = []
        for id in sorted(found):
            first, *others = found[id]
            if all(first.same(other) for other in others):
                items.append(first)
                if first.unchanged(self._sent.get(id, self.broadcast)):
                    self.idle.append(id)
                for _ in others:
                    self.refuse(id, "sent its update again; one counts", out=False)
            else:
                self.refuse(id, f"sent {1 + len(others)} different updates for one round")
        return items

    def missing(self, delivered: Ids, asked: Ids) -> None:
        """Record a refusal for each client that did not deliver, unless one is recorded already."""
        named = {refusal.client for refusal in self.refusals}
        for id in sorted(set(asked.tolist()) - set(delivered.tolist())):
            if id not in named:
                self.refuse(id, "did not deliver")
            self._out.add(id)

    def fault(self, report: Report, asked: Collection[int]) -> str | None:
        """What is wrong with a report, in words; None if nothing is. ``asked``: the clients of the order, as a set."""
        if report.id not in asked:
            return "was not asked in this round"
        expected = self.run, self.round - self._stale.get(report.id, 0)
        if report.origin is not None and report.origin != expected:
            return f"its update belongs to run {report.origin[0]}, round {report.origin[1]}"
        deadline = self.admission.deadline
        if deadline is not None and report.delay > deadline:
            return f"came after {report.delay:g} s; the deadline is {deadline:g} s"
        for kind, loss in report.losses.items():
            if reason := self._bad_loss(kind, loss):
                return reason
        return report.misfit(self._sent.get(report.id, self.broadcast))

    def refuse(self, client: int, reason: str, out: bool = True) -> None:
        """Record a refusal; with ``out`` nothing else from this client is used in this round."""
        self.refusals.append(Refusal(client, _short(reason)))
        if out:
            self._out.add(client)

    def _bad_loss(self, kind: str, loss: float) -> str | None:
        if not math.isfinite(loss):
            return f"its loss ({kind}) is {loss}"
        if loss < 0 and not self.admission.signed:
            return f"its loss ({kind}) is {loss:g}, but this loss cannot be negative"
        return None


def bad_counts(labels: Sequence[int] | None) -> str | None:
    """What is wrong with a client's class counts, in words; None if nothing is.

    >>> bad_counts([3, 0, 1]), bad_counts([3, -1])
    (None, 'its class counts are not whole numbers ≥ 0')
    """
    if labels is None:
        return "its class counts are missing"
    if not 1 <= len(labels) <= MOST_CLASSES:
        return f"it sent counts for {len(labels)} classes"
    if not all(type(count) is int and 0 <= count < 2**53 for count in labels):
        return "its class counts are not whole numbers ≥ 0"
    return None


def _short(reason: str) -> str:
    if len(reason) <= LONGEST_REASON:
        return reason
    return f"{reason[:LONGEST_REASON]}… ({len(reason)} characters)"
