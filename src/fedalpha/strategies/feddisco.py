"""`FedDisco`: sizes, corrected by the distance of a client's class shares from the uniform distribution."""

from __future__ import annotations

import numpy as np

from fedalpha.strategies.arguments import choice, positive
from fedalpha.strategies.base import STRATEGIES, State, Strategy, Traits
from fedalpha.strategies.cohort import Cohort, Need
from fedalpha.strategies.simplex import Array, normalise

METRICS = ("kl", "l1", "l2", "cosine")


@STRATEGIES.register(
    formula="alpha_i ∝ max(0, p_i − a·d_i + b), d the distance of the client's class shares from the uniform ones",
    reference="Ye et al., 2023, 2305.19229",
    examples=("FedDisco", "FedDisco(a=0.1, b=0.05, metric=l2)"),
)
class FedDisco(Strategy):
    """Discrepancy-aware collaboration: clients with balanced classes get more weight than their share of the data.

    ``metric``: KL divergence (divided by its sum over the cohort, as in the authors' code), L1 or L2 distance, or 1 −
    cosine, between the client's class shares and the uniform distribution. Clients report how many samples of each
    class they have (docs/privacy.md); a client without samples has weight 0. If no weight would be positive, alpha = p.

    Checked against the authors' code (MediaBrain-SJTU/FedDisco), which fails if no weight is positive.

    >>> import fedalpha
    >>> fedalpha.weights("FedDisco(a=0.2, metric=l1)", losses=[0, 0], labels=[[5, 5], [10, 0]]).round(4)
    array([0.6, 0.4])
    """

    a: float = 0.5
    b: float = 0.1
    metric: str = "kl"

    def __post_init__(self) -> None:
        for name in ("a", "b"):
            object.__setattr__(self, name, positive("FedDisco", name, getattr(self, name), zero=True))
        choice("FedDisco", "metric", self.metric, METRICS)

    @property
    def traits(self) -> Traits:
        return Traits(shift_invariant=True, monotone=0)

    @property
    def requires(self) -> frozenset[Need]:
        return frozenset({"labels"})

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        labels, p = cohort.require("labels"), cohort.prior("size")
        totals = labels.sum(axis=1)
        some = totals > 0
        if not some.any():
            return p, state
        far = np.zeros(len(cohort))
        far[some] = discrepancy(labels[some] / totals[some, None], self.metric)
        if self.metric == "kl" and far.any():
            far = normalise(far)
        found = np.where(some, np.maximum(p - self.a * far + self.b, 0.0), 0.0)
        return (normalise(found) if found.any() else p), state


def discrepancy(shares: Array, metric: str) -> Array:
    """The distance of each row from the uniform distribution.

    >>> discrepancy(np.array([[0.5, 0.5], [1.0, 0.0]]), "kl").round(4)
    array([0.    , 0.6931])
    """
    even = 1 / shares.shape[1]
    if metric == "kl":
        logs = np.log(np.where(shares > 0, shares / even, 1.0))
        return np.asarray(np.maximum((shares * logs).sum(axis=1), 0.0))
    if metric == "cosine":
        lengths = np.sqrt((shares * shares).sum(axis=1))
        return np.asarray(1.0 - even / (lengths * np.sqrt(even)))
    away = np.abs(shares - even)
    return np.asarray(away.sum(axis=1) if metric == "l1" else np.sqrt((away * away).sum(axis=1)))
