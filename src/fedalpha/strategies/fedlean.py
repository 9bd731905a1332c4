"""`FedLean`: a soft rule with more weight on large losses, which computes its own temperature."""

from __future__ import annotations

import math
from dataclasses import field

import numpy as np

from fedalpha.strategies.arguments import choice, number
from fedalpha.strategies.base import STRATEGIES, State, Strategy
from fedalpha.strategies.cohort import LOSSES, Cohort, Need
from fedalpha.strategies.simplex import Array
from fedalpha.strategies.soft import tilt

SHARPEST = 50.0
"""The largest difference between two logits."""
HALVINGS = 60


@STRATEGIES.register(
    formula="alpha_i ∝ p_i·exp(z_i/T) with z_i the shrunk loss and T such that 1/(1 + χ²(alpha‖p)) = share^r",
    reference="this library; docs/atlas.md",
    examples=("FedLean", "FedLean(share=0.5, loss=train)"),
)
class FedLean(Strategy):
    """Give more weight to clients that are served worse, as far as the losses differ by more than their noise.

    - F̄ = Σ p_i·F_i and V = Σ p_i·(F_i − F̄)² are the mean and the variance of the losses. A loss over n_i samples has a
      noise of about N_i = F̄²/n_i. S = max(0, V − Σ p_i·N_i) is the variance without the noise.
    - Shrinking: z_i = (F_i − F̄)·S/(S + N_i), so the loss of a client with few samples has less effect.
    - The temperature follows from the effective clients: 1/(1 + χ²(alpha‖p)) = share^r with r = S/V. Sharper weights
      would raise the noise of the aggregate above 1/share times FedAvg's. If the losses differ only by noise, S = 0
      and alpha = p.

    The rule needs no tuning: the weights do not change when all losses are multiplied by a number.

    >>> import fedalpha
    >>> fedalpha.weights("FedLean", losses=[1, 1, 1, 2], sizes=[100, 100, 100, 100]).round(3)
    array([0.204, 0.204, 0.204, 0.388])
    """

    share: float = 0.9
    loss: Need = field(default="before", kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "share", number("FedLean", "share", self.share, most=1))
        choice("FedLean", "loss", self.loss, LOSSES)

    @property
    def requires(self) -> frozenset[Need]:
        return frozenset({self.loss})

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        p = cohort.prior("size")
        z, r = shrunk(cohort.require(self.loss), p, cohort.sizes)
        return lean(p, z, -r * math.log(self.share)), state


def shrunk(losses: Array, p: Array, sizes: Array) -> tuple[Array, float]:
    """The losses minus their mean, shrunk by their noise, up to a factor; and r, the share of variance beyond noise.

    >>> z, r = shrunk(np.array([1.0, 3.0]), np.array([0.5, 0.5]), np.array([1e9, 1e9]))
    >>> z.round(6), round(r, 6)
    (array([-0.333333,  0.333333]), 1.0)
    """
    most = float(np.abs(losses).max())
    if most == 0:
        return np.zeros(len(p)), 0.0
    relative = losses / most
    mean = math.fsum((p * relative).tolist())
    away = relative - mean
    variance = math.fsum((p * away * away).tolist())
    noise = mean * mean / np.maximum(sizes, 1.0)
    real = variance - math.fsum((p * noise).tolist())
    if not real > 0:
        return np.zeros(len(p)), 0.0
    return away * (real / (real + noise)), real / variance


def lean(p: Array, z: Array, target: float) -> Array:
    """p_i·exp(z_i/T), normalised, with T such that ln(1 + χ²) is ``target``, which grows with 1/T.

    >>> alpha = lean(np.array([0.25, 0.75]), np.array([1.0, 0.0]), math.log(2.0))
    >>> round(float((alpha**2 / np.array([0.25, 0.75])).sum()), 6)
    2.0
    """
    some = p > 0
    spread = float(np.ptp(z[some]))
    if spread == 0 or target <= 0:
        return p
    low, high = 0.0, SHARPEST / spread
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        alpha = tilt(p, z, 1 / middle)
        with np.errstate(over="ignore"):
            growth = math.fsum((alpha[some] * (alpha[some] / p[some])).tolist())
        low, high = (middle, high) if growth < math.exp(target) else (low, middle)
    return tilt(p, z, 1 / low) if low > 0 else p
