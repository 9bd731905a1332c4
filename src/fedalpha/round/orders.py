"""The orders of a round and the answers so far: plain data, nothing is computed here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedalpha.select import Population
from fedalpha.strategies import Array

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Sample:
    """Measure a loss on ``batch`` samples, a new draw in every round, instead of all of a client's data."""

    round: int
    batch: int


@dataclass(frozen=True, eq=False)
class AskLosses:
    """Ask these clients for the loss of the current model on their training data, or on a sample of it."""

    ids: Ids
    sample: Sample | None = None


@dataclass(frozen=True, eq=False)
class Train:
    """Have these clients train.

    ``alpha`` (aligned with ``ids``) is given when the weights are known before training and the combine
    rule is linear: the reports may then come with Σ alpha_i·w_i instead of every model. ``alone`` is what the rule does
    to one update before it is added (`Combine.alone`). ``states`` holds the
    clients' states, ``wanted`` what to report besides the ``train`` loss: other losses, ``labels``. ``hold``: keep
    every model until all have arrived, because the strategy does not renormalise in proportion if a client is lost
    (a cap).
    """

    round: int
    ids: Ids
    alpha: Array | None = None
    states: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    wanted: frozenset[str] = frozenset()
    hold: bool = False
    alone: Callable[[Array], Array] | None = None


@dataclass(frozen=True)
class Measure:
    """Measure losses on the server's own data: of each of these clients' models, of the current model for None."""

    of: tuple[int | None, ...]


@dataclass(frozen=True, eq=False)
class Learn:
    """Have the combine rule learn coefficients on the server's own data, from these reports and their weights."""

    reports: Any
    alpha: Array


Order = AskLosses | Train | Measure | Learn


@dataclass(frozen=True, eq=False)
class Nothing:
    """Stands for reports that cannot be used at all: why the model is kept, and what is known of single clients."""

    reason: str
    problems: Mapping[int, str] = field(default_factory=dict)
    summed = True


@dataclass(frozen=True, eq=False)
class Heard:
    """All answers of a round so far, in the order in which they were asked for.

    A round is a pure function of these answers, so an interrupted round is resumed from a saved `Heard`.
    """

    losses: tuple[tuple[AskLosses, Array, Mapping[int, str]], ...] = ()
    """For each order: the losses aligned with its ids, and by client id why there is no usable answer."""
    reports: Any = None
    """What the clients sent back (`Reports`), or None before training."""
    problems: Mapping[int, str] = field(default_factory=dict)
    """By client id, why there is no usable report. A driver that can name the reason gives it here."""
    measured: Mapping[int | None, float] = field(default_factory=dict)
    """Losses on the server's own data: of the clients' models by id, of the current model under None."""
    learnt: Array | None = None
    """The coefficients that the combine rule learnt on the server's own data, aligned with the reports."""
    among: Population | None = None
    """The clients that a selection may choose from; None for all."""
    few: bool = False
    """Whether fewer clients could be reached than was planned: if they are too few for the rule, the model is kept."""
    arrived: Mapping[int, int] | None = None
    """On a server that does not wait: the staleness of each client that has delivered, which is then the cohort."""
    sent: Mapping[int, Any] = field(default_factory=dict)
    """What each client of `arrived` was sent, if it was not the current model."""
    rebase: bool = True
    """Whether a stale update is added to the current model; if not, the stale model itself is used."""

    def and_losses(self, order: AskLosses, losses: Array, problems: Mapping[int, str] | None = None) -> Heard:
        return dataclasses.replace(self, losses=(*self.losses, (order, losses, problems or {})))

    def and_reports(self, reports: Any, problems: Mapping[int, str] | None = None) -> Heard:
        return dataclasses.replace(self, reports=reports, problems=problems or {})

    def and_measured(self, losses: Mapping[int | None, float]) -> Heard:
        return dataclasses.replace(self, measured={**self.measured, **losses})

    def and_learnt(self, coefficients: Array) -> Heard:
        return dataclasses.replace(self, learnt=coefficients)
