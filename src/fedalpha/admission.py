"""The gate between clients and the weighing rule: what is malformed, late or sent twice does not get in.

A client that is refused before weighing is as if it had been absent, bit for bit. One that is lost
after weighing is renormalised away. Below the quorum the server keeps its model. Every refusal is
named with its reason in the log and in the history.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fedalpha.combine import Reports, Sum
from fedalpha.strategies import Array, Strategy
from fedalpha.update import Broadcast, Report

log = logging.getLogger(__name__)
Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Admission:
    """What the server asks of a round.

    ``quorum``: how many of the clients that were asked must deliver (a number, or a share below 1 as a
    float); fewer, and the model is kept. ``deadline``: seconds after which a report comes too late.
    ``signed``: whether a loss may be negative.
    """

    quorum: int | float = 1
    deadline: float | None = None
    signed: bool = False

    def __post_init__(self) -> None:
        share = isinstance(self.quorum, float) and not self.quorum.is_integer()
        if not (0 < self.quorum < 1 if share else self.quorum >= 1):
            raise ValueError(f"quorum = {self.quorum}; give a number of clients (3) or a share of the cohort (0.5)")
        if self.deadline is not None and not self.deadline > 0:
            raise ValueError(f"deadline = {self.deadline}; give a number of seconds > 0, or none")

    def enough(self, present: int, asked: int) -> bool:
        """Whether ``present`` of the ``asked`` clients are a quorum.

        >>> Admission(quorum=0.5).enough(5, 10), Admission(quorum=3).enough(2, 10), Admission(quorum=3).enough(1, 1)
        (True, False, True)
        """
        need = math.ceil(self.quorum * asked - 1e-9) if self.quorum < 1 else min(int(self.quorum), asked)
        return present >= max(need, 1)


@dataclass(frozen=True)
class Refusal:
    """Something that did not get in, and why."""

    client: int
    reason: str


class TooFewClientsError(RuntimeError):
    """Below the quorum: the model is kept."""


class Gate:
    """The gate of one round; ``refusals`` says what it has turned away, ``idle`` who sent the model back unchanged."""

    def __init__(self, admission: Admission, broadcast: Broadcast, run: int, round: int) -> None:
        self.admission = admission
        self.broadcast = broadcast
        self.run = run
        self.round = round
        self.refusals: list[Refusal] = []
        self.idle: list[int] = []
        self._out: set[int] = set()

    def losses(self, ids: Ids, losses: Array) -> Array:
        """The answers to a question for losses; NaN for who is out because of its answer."""
        admitted = np.array(losses, dtype=np.float64)
        for place, (id, loss) in enumerate(zip(ids.tolist(), admitted.tolist(), strict=True)):
            if reason := self._bad_loss("before", loss):
                self._refuse(id, reason)
                admitted[place] = math.nan
        return admitted

    def present(self, ids: Ids, ask: Callable[[Ids], Array] | None) -> Ids:
        """``ids`` without those whose answer to ``ask`` was refused; an error below the quorum."""
        if ask is not None:
            ask(ids)
        admitted = np.array([i for i in ids.tolist() if i not in self._out], dtype=np.int64)
        self._quorum(len(admitted), len(ids))
        return admitted

    def admit(self, reports: Reports, asked: Ids, again: Callable[[], Reports]) -> Reports:
        """The reports that get in, one per client, sorted by id.

        Reports that were summed on the way cannot be taken apart: if their sum is not sound, ``again``
        has the same clients deliver one by one (their updates are pure, so nothing changes). Below the
        quorum: an error.
        """
        if reports.total is not None:
            if self._sound(reports, reports.total):
                self._note_missing(reports.ids, asked)
                self._quorum(len(reports.items), len(asked))
                return reports
            reports = again()
        found: dict[int, list[Report]] = {}
        for report in reports.items:
            if reason := self.fault(report, asked):
                self._refuse(report.id, reason, out=False)
            else:
                found.setdefault(report.id, []).append(report)
        items = []
        for id in sorted(found):
            first, *others = found[id]
            if all(_same(first, other) for other in others):
                items.append(first)
                if _unchanged(first, self.broadcast):
                    self.idle.append(id)
                    log.info("round %d: client %d sent the model back unchanged", self.round, id)
                for _ in others:
                    self._refuse(id, "sent its update again; one counts", out=False)
            else:
                self._refuse(id, f"sent {1 + len(others)} different updates for one round")
        self._note_missing(np.array([r.id for r in items], dtype=np.int64), asked)
        self._quorum(len(items), len(asked))
        return Reports(items)

    def fault(self, report: Report, asked: Ids) -> str | None:
        """What is wrong with a report, in words; None if nothing is."""
        if report.id not in asked:
            return "was not asked in this round"
        if report.origin not in (None, (self.run, self.round)):
            return f"its update belongs to run {report.origin[0]}, round {report.origin[1]}"
        deadline = self.admission.deadline
        if deadline is not None and report.delay > deadline:
            return f"came after {report.delay:g} s; the deadline is {deadline:g} s"
        for kind, loss in report.losses.items():
            if reason := self._bad_loss(kind, loss):
                return reason
        if report.parameters is None:
            return "its model is missing"
        return misfit(report.parameters, self.broadcast.parameters) or _not_finite("extra", report.extras)

    def _quorum(self, present: int, asked: int) -> None:
        if not self.admission.enough(present, asked):
            reason = f"only {present} of {asked} clients delivered, the quorum is {self.admission.quorum:g}"
            log.warning("round %d: the model is kept: %s", self.round, reason)
            raise TooFewClientsError(reason)

    def _sound(self, reports: Reports, total: Sum) -> bool:
        losses = np.array([loss for r in reports.items for loss in r.losses.values()])
        if not np.isfinite(losses).all() or (not self.admission.signed and (losses < 0).any()):
            return False
        if len(set(reports.ids.tolist())) != len(reports.items):
            return False
        if any(_not_finite("extra", r.extras) for r in reports.items):
            return False
        sent = self.broadcast.parameters
        same = total.values.keys() == sent.keys() and all(total.values[k].shape == sent[k].shape for k in sent)
        return same and _not_finite("tensor", total.values) is None

    def _bad_loss(self, kind: str, loss: float) -> str | None:
        if not math.isfinite(loss):
            return f"its loss ({kind}) is {loss}"
        if loss < 0 and not self.admission.signed:
            return f"its loss ({kind}) is {loss:g}, but this loss cannot be negative"
        return None

    def _note_missing(self, delivered: Ids, asked: Ids) -> None:
        named = {refusal.client for refusal in self.refusals}
        for id in sorted(set(asked.tolist()) - set(delivered.tolist())):
            if id not in named:
                self._refuse(id, "did not deliver")
            self._out.add(id)

    def _refuse(self, client: int, reason: str, out: bool = True) -> None:
        log.warning("round %d: client %d refused: %s", self.round, client, reason)
        self.refusals.append(Refusal(client, reason))
        if out:
            self._out.add(client)


def survivors(
    reports: Reports, alpha: Array, ids: Ids, rule: Strategy, again: Callable[[Ids], Reports]
) -> tuple[Reports, Array]:
    """The reports and the weights (aligned with ``ids``) after some of those who were weighed have been lost.

    The weight of who is lost is 0, the others share it as `Strategy.renormalise` says. Reports that were
    summed on the way with weights in other proportions are delivered ``again`` one by one.
    """
    here = np.isin(ids, reports.ids)
    if here[alpha != 0].all() or not alpha[here].any():
        return reports, np.where(here, alpha, 0.0)
    try:
        shared = rule.renormalise(alpha[here])
    except ValueError as error:
        raise TooFewClientsError(str(error)) from None
    if reports.total is not None and rule.traits.simplex:
        mass = math.fsum(alpha[here].tolist())
        if np.array_equal(shared, alpha[here] / mass):
            total = Sum()
            total.values = {k: v / mass if v.is_floating_point() else v for k, v in reports.total.values.items()}
            reports = dataclasses.replace(reports, total=total)
        else:
            reports = again(reports.ids)
    left = np.zeros(len(ids))
    left[here] = shared
    return reports, left


def misfit(parameters: dict[str, torch.Tensor], sent: dict[str, torch.Tensor]) -> str | None:
    """How a model differs in form from the one that was sent, or where it is not finite.

    >>> misfit({"w": torch.zeros(1)}, {"w": torch.zeros(3)})
    "tensor 'w' has shape (1,) instead of (3,)"
    """
    if missing := sent.keys() - parameters.keys():
        return f"tensor {min(missing)!r} is missing"
    if more := parameters.keys() - sent.keys():
        return f"tensor {min(more)!r} is not part of the model"
    for name, old in sent.items():
        new = parameters[name]
        if new.shape != old.shape:
            return f"tensor {name!r} has shape {tuple(new.shape)} instead of {tuple(old.shape)}"
        if new.dtype != old.dtype:
            return f"tensor {name!r} is {new.dtype} instead of {old.dtype}"
    return _not_finite("tensor", parameters)


def _not_finite(kind: str, tensors: dict[str, torch.Tensor]) -> str | None:
    for name, value in tensors.items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            return f"{kind} {name!r} is not finite"
    return None


def _same(a: Report, b: Report) -> bool:
    assert a.parameters is not None
    assert b.parameters is not None
    return a.losses == b.losses and all(torch.equal(v, b.parameters[k]) for k, v in a.parameters.items())


def _unchanged(report: Report, broadcast: Broadcast) -> bool:
    assert report.parameters is not None
    return all(torch.equal(v, broadcast.parameters[k]) for k, v in report.parameters.items())
