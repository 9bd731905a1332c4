"""`FedWorse` and `FedBetter`: equal weight on the k clients with the largest or the smallest x_i."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import numpy as np

from fedalpha.strategies.base import PAPER, STRATEGIES, State
from fedalpha.strategies.cohort import Cohort
from fedalpha.strategies.loss_aware import LossAware
from fedalpha.strategies.simplex import Array


class TopK(LossAware):
    """1/m' on the m' clients with the largest sign·x; clients tied at the cut share the remaining weight."""

    k: int | float = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        k = int(self.k) if isinstance(self.k, np.integer) else self.k
        object.__setattr__(self, "k", k)
        if isinstance(k, bool) or not isinstance(k, int | float) or not k > 0:
            raise ValueError(f"{self.text_name}: k = {k!r}; give a count (k=3) or a fraction in (0, 1] (k=0.1)")
        if isinstance(k, float) and k > 1:
            raise ValueError(f"{self.text_name}: k = {k} is a fraction above 1; write a whole number to count clients")

    def count(self, m: int) -> int:
        """m', the number of clients that share the weight in a cohort of m."""
        if isinstance(self.k, int):
            return min(self.k, m)
        return max(1, math.floor(self.k * m + 1e-9))

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        excess, state = self.excess(state, cohort)
        x = self.sign * excess
        m = self.count(len(x))
        cut = np.partition(x, len(x) - m)[len(x) - m]
        above, tied = x > cut, x == cut
        alpha = np.where(above, 1.0 / m, 0.0)
        alpha[tied] = (m - above.sum()) / m / tied.sum()
        return alpha, state

    def possible(self, cohort: Cohort, f: int, width: float = math.inf) -> float:
        k = self.count(len(cohort))
        return min(f, k) / k

    def support(self, n: int, width: float = math.inf) -> int:
        return self.count(n)

    def sensitivity(self, C: float) -> float:
        """2·C/k: adding or removing one client replaces one of the k clients in the mean."""
        if isinstance(self.k, int) and self.optima == "known":
            return 2 * C / self.k
        raise ValueError(f"{self}: the number of clients in the mean depends on the cohort; give k as a whole number")


@STRATEGIES.register(
    formula="1/m' on the m' largest x_i = F_i − F_i* (k: a count, or a fraction of the cohort)",
    reference=PAPER,
    examples=("FedWorse", "FedWorse(k=3)", "FedWorse(k=0.2)"),
)
class FedWorse(TopK):
    """Equal weight on the k clients with the largest loss (k = 1: the worst client alone).

    >>> import fedalpha
    >>> fedalpha.weights("FedWorse(k=2)", losses=[1, 3, 2], sizes=[1, 1, 1])
    array([0. , 0.5, 0.5])
    """

    sign: ClassVar[Literal[-1, 1]] = 1


@STRATEGIES.register(
    formula="1/m' on the m' smallest x_i = F_i − F_i*",
    reference=PAPER,
    examples=("FedBetter", "FedBetter(k=3)", "FedBetter(k=0.2)"),
)
class FedBetter(TopK):
    """Equal weight on the k clients with the smallest loss (k = 1: the best client alone).

    >>> import fedalpha
    >>> fedalpha.weights("FedBetter(k=2)", losses=[1, 3, 1], sizes=[1, 1, 1])
    array([0.5, 0. , 0.5])
    """

    sign: ClassVar[Literal[-1, 1]] = -1
