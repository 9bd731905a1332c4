"""The cohort of a round: its clients, with what the strategy needs to know of them before and after training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedalpha.round.answers import Answers
from fedalpha.round.orders import Ids
from fedalpha.round.state import Algorithm, ServerState, Short
from fedalpha.select import Population, Question, Select
from fedalpha.strategies import Array, Cohort, Need
from fedalpha.strategies.cohort import table


@dataclass(frozen=True, eq=False)
class Known:
    """What is known of clients before training. ``stale``: by client, how stale its update is, if some can be."""

    algorithm: Algorithm
    state: ServerState
    population: Population
    losses: Answers
    stale: Mapping[int, int] | None

    def cohort(self, ids: Ids, needs: frozenset[Need] = frozenset()) -> Cohort:
        """The cohort of these clients; of what has to be asked or computed, only what the strategy ``needs``."""
        before = self.losses.to(Question(ids)) if "before" in needs else None
        shares = design(self.algorithm.select, self.population, ids) if "design" in needs else None
        stale = dict.fromkeys(ids.tolist(), 0) if "staleness" in needs and self.stale is None else self.stale
        return gather(self.population, ids, self.state, before, shares, stale)


def gather(
    population: Population,
    ids: Ids,
    state: ServerState,
    before: Array | None = None,
    design: Array | None = None,
    stale: Mapping[int, int] | None = None,
) -> Cohort:
    """The cohort of these clients, with what is known of them before training. An unknown size counts as 1."""
    sizes, optima = np.nan_to_num(population.sizes(ids), nan=1.0), population.optima(ids)
    if not sizes.any():  # a cohort needs a positive size; the round then stops because of `nobody`
        sizes = np.ones(len(ids))
    late = None if stale is None else np.array([stale[i] for i in ids.tolist()], dtype=np.float64)
    return Cohort(ids, sizes, state.round, state.accuracy, before=before, optima=optima, design=design, staleness=late)


def design(select: Select, population: Population, ids: Ids) -> Array:
    """p_i/π_i of these clients: the share of all data over the chance to be selected (Horvitz–Thompson weights)."""
    everybody = population.named(np.arange(population.clients))
    chances, sizes = select.chances(population), population.sizes(everybody)
    if chances is None:
        raise ValueError(f"the chances of {select} to select a client are not known; use uniform(C=…) or by_size(C=…)")
    if np.isnan(sizes).any():
        raise ValueError(
            "unbiased weights need the sizes of all clients, and some are not known yet: let clients tell their sizes "
            "first (examples= of add_loss_query on a live federation)"
        )
    places = np.searchsorted(everybody, ids)
    return np.asarray(sizes[places] / math.fsum(sizes.tolist()) / chances[places])


def nobody(sizes: Array) -> str | None:
    """Why the model must be kept if no client has data; else None. An unknown size (NaN) counts as data."""
    return None if sizes.any() else "no client of the cohort has data (all sizes are 0), so there is no client to weigh"


def observe(
    algorithm: Algorithm,
    cohort: Cohort,
    population: Population,
    broadcast: Any,
    reports: Any,
    needs: frozenset[Need],
) -> Cohort | Short:
    """The cohort with what is known after training: losses, steps, norms, Gram matrix, class counts, unknown sizes."""
    seen: dict[str, Any] = {}
    sizes = population.sizes(cohort.ids)
    if np.isnan(sizes).any():
        told = np.array([r.samples for r in reports.items], dtype=np.float64)
        seen["sizes"] = sizes = np.where(np.isnan(sizes), told, sizes)
        if reason := nobody(sizes):
            return Short(reason)
    for need in needs & {"train", "after"}:
        seen[need] = np.array([r.losses[need] for r in reports.items])
    if "steps" in needs:
        seen["steps"] = np.array([r.steps for r in reports.items], dtype=np.float64)
        seen["pull"] = _pulled(algorithm, cohort)
    if "labels" in needs:
        seen["labels"] = table([r.labels for r in reports.items])
    if "cosines" in needs:
        seen["cosines"] = reports.cosines(broadcast)
    if needs & {"norms", "gram"}:
        gram = reports.gram(broadcast)
        seen["norms"] = np.sqrt(np.diagonal(gram))
        if "gram" in needs:
            seen["gram"] = gram
    return cohort.replace(**seen)


def _pulled(algorithm: Algorithm, cohort: Cohort) -> float | Array:
    """η·μ of the local steps, in the version from which each client trained."""
    if cohort.staleness is None or not cohort.staleness.any():
        return float(algorithm.update.pulled(cohort.round))
    return np.array([algorithm.update.pulled(cohort.round - int(late)) for late in cohort.staleness.tolist()])
