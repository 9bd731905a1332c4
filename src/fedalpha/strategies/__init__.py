"""*Weigh*: strategies turn a cohort's losses, sizes and round into coefficients alpha.

A new strategy is a class in a file of this package, registered with ``@STRATEGIES.register(…)``. The registry finds
the file by itself, and the contract suite tests the strategy. A strategy needs NumPy only.

- The paper's rules: `FedAvg` if the final model must be unbiased; the Worse family (`FedWorse`, `FedSoftWorse`) for
  better accuracy on the worst-served clients; the Better family for a fast start. The soft forms are more stable.
- Combinators take strategies: `switch`, `anneal` and `adaptive` change from one to another, `mix` averages their
  weights, `cap` and `floor` bound each weight, `clipped` bounds the losses.
- Combinators with a guarantee: `fade` and `cool` become FedAvg, `temper` bounds the bias, `steady` the noise,
  `per_step` corrects for unequal local work.
- Fairness: `qFedAvg` and `AFL` make accuracies more even, with a parameter for the trade-off; `Superquantile` uses a
  given share of the data with the largest losses; `FedMGDA` makes no client worse; `TERM` is the soft rules in
  another parametrisation.
- For comparison: `FedNolowe`, `FedCostWAvg`, `FedPIDAvg` (losses over the rounds), `FedNova` (local steps), `FedDisco`
  (class counts), `AAggFF` and `PropFair` (fairness), `FedAWA` (agreement of updates), `FedAU` (unknown participation).
- Rules that need no tuning: `FedLean` and `FedRegret` (losses), `FedBalance` (class counts); `aligned` keeps any rule
  close to FedAvg's direction.
- For buffered servers: `stale` discounts stale updates (`FedAsync`, `FedBuff`), `even` compensates for the advantage
  of fast clients (`FedStaleWeight`).
- `unbiased` corrects for random cohorts; `extrapolate` (`FedExP`) takes longer steps if updates disagree.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fedalpha.strategies.adaptive import adaptive
from fedalpha.strategies.afl import AFL
from fedalpha.strategies.anneal import anneal
from fedalpha.strategies.base import STRATEGIES, State, Strategy, TooFewError, Traits, weigh
from fedalpha.strategies.cap import cap
from fedalpha.strategies.clipped import clipped
from fedalpha.strategies.cohort import KNOWN_BEFORE_TRAINING, Cohort, Need
from fedalpha.strategies.cool import cool
from fedalpha.strategies.fade import fade
from fedalpha.strategies.fedavg import FedAvg
from fedalpha.strategies.fedcostwavg import FedCostWAvg
from fedalpha.strategies.fedmgda import FedMGDA
from fedalpha.strategies.fednolowe import FedNolowe
from fedalpha.strategies.fednova import FedNova
from fedalpha.strategies.fedpidavg import FedPIDAvg
from fedalpha.strategies.floor import floor
from fedalpha.strategies.mix import mix
from fedalpha.strategies.per_step import per_step
from fedalpha.strategies.q_fedavg import qFedAvg
from fedalpha.strategies.simplex import Array
from fedalpha.strategies.soft import FedSoftBetter, FedSoftWorse
from fedalpha.strategies.steady import steady
from fedalpha.strategies.superquantile import Superquantile
from fedalpha.strategies.switch import switch
from fedalpha.strategies.temper import temper
from fedalpha.strategies.term import TERM
from fedalpha.strategies.top_k import FedBetter, FedWorse

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
    "TooFewError",
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
    cosines: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    design: ArrayLike | None = None,
    staleness: ArrayLike | None = None,
) -> Array:
    """The weights alpha of one cohort, from a fresh state.

    ``losses`` are used as the kind of loss that the strategy needs; ``sizes`` (equal if not given) are
    the clients' sample counts, ``optima`` their F_i* (0 if not given). The other arguments are those of `Cohort`.

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
        cosines=cosines,  # type: ignore[arg-type]
        labels=labels,  # type: ignore[arg-type]
        design=design,  # type: ignore[arg-type]
        staleness=staleness,  # type: ignore[arg-type]
    )
    return weigh(rule, rule.init(n), cohort)[0]
