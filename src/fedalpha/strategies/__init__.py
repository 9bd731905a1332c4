"""*Weigh*: strategies turn a cohort's losses, sizes and round into coefficients alpha.

A new strategy is a frozen dataclass in a file of this package, registered with
``@STRATEGIES.register``; the contract suite then runs over it. NumPy is all it needs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fedalpha.strategies import hybrids as hybrids  # registers the paper's hybrids
from fedalpha.strategies.adaptive import adaptive
from fedalpha.strategies.base import (
    KNOWN_BEFORE_TRAINING,
    STRATEGIES,
    Array,
    Cohort,
    Need,
    State,
    Strategy,
    Traits,
    weigh,
)
from fedalpha.strategies.baselines import FedCostWAvg, FedNolowe, FedNova, FedPIDAvg
from fedalpha.strategies.clipped import clipped
from fedalpha.strategies.combinators import anneal, cap, floor, mix, switch
from fedalpha.strategies.fair import AFL, TERM, FedMGDA, Superquantile, qFedAvg
from fedalpha.strategies.guaranteed import cool, fade, per_step, steady, temper
from fedalpha.strategies.rules import FedAvg, FedBetter, FedSoftBetter, FedSoftWorse, FedWorse

__all__ = [
    "AFL",
    "KNOWN_BEFORE_TRAINING",
    "STRATEGIES",
    "TERM",
    "Array",
    "Cohort",
    "FedAvg",
    "FedBetter",
    "FedCostWAvg",
    "FedMGDA",
    "FedNolowe",
    "FedNova",
    "FedPIDAvg",
    "FedSoftBetter",
    "FedSoftWorse",
    "FedWorse",
    "Need",
    "State",
    "Strategy",
    "Superquantile",
    "Traits",
    "adaptive",
    "anneal",
    "cap",
    "clipped",
    "cool",
    "fade",
    "floor",
    "mix",
    "per_step",
    "qFedAvg",
    "steady",
    "strategy",
    "switch",
    "temper",
    "weigh",
    "weights",
]


def strategy(text: str | Strategy) -> Strategy:
    """The strategy that ``text`` describes.

    >>> strategy("FedSoftBetterAvg(T=0.2, at=20)")
    switch(FedSoftBetter(T=0.2), FedAvg, at=20)
    """
    return STRATEGIES.parse(text)


def weights(
    strategy: str | Strategy,
    losses: ArrayLike,
    sizes: ArrayLike | None = None,
    optima: ArrayLike | None = None,
    round: int = 0,
    accuracy: float | None = None,
    *,
    steps: ArrayLike | None = None,
    norms: ArrayLike | None = None,
    gram: ArrayLike | None = None,
) -> Array:
    """alpha of one cohort, from a fresh state.

    ``losses`` stand for whichever loss the strategy looks at; ``sizes`` (equal if not given) are
    the clients' sample counts, ``optima`` their F_i* (0 if not given).

    >>> weights("FedSoftWorse(T=0.2)", losses=[0.0, 0.2], sizes=[10, 10]).round(3)
    array([0.269, 0.731])
    """
    rule = STRATEGIES.parse(strategy)
    losses = np.asarray(losses)
    n = np.size(losses) if sizes is None else np.size(np.asarray(sizes))
    cohort = Cohort(
        ids=np.arange(n),
        sizes=np.ones(n) if sizes is None else sizes,  # type: ignore[arg-type]
        round=round,
        accuracy=accuracy,
        before=losses,
        train=losses,
        after=losses,
        optima=optima,  # type: ignore[arg-type]
        steps=steps,  # type: ignore[arg-type]
        norms=norms,  # type: ignore[arg-type]
        gram=gram,  # type: ignore[arg-type]
    )
    return weigh(rule, rule.init(n), cohort)[0]
