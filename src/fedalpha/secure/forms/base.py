"""The interface of secure sums: their checks of the other rules of a run, and the session of a round."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from fedalpha.secure.concentration import effective
from fedalpha.secure.field import BITS
from fedalpha.select.base import Select
from fedalpha.select.poisson import poisson
from fedalpha.strategies.plug_point import AnyAlgorithm
from fedalpha.text import Registry, Spelled, quoted, whole

COLLUDING = DROPPING = 0.1
"""The shares of clients for which ``neighbours=log`` is secure and survives."""


class Secure(Spelled, ABC):
    """A secure sum: the server learns Σ alpha_i·x_i over the clients that delivered, and no single update x_i.

    ``bits``: the size of the words of the sum (16, 32 or 64). ``range``: the largest value of an update that can be
    sent; a client with a larger value reports this and drops out. ``clip``: clients first scale their update to this
    Euclidean norm, if it is longer. ``threshold``: more than this share of the clients must deliver in every step, or
    the model is kept. ``neighbours``: the clients with whom each client exchanges masks: all, an even number, or log
    (the smallest number with which the sum is secure if 10 % of the clients collude and 10 % drop out). ``least``: the
    smallest number of clients in a sum. ``effective``: the smallest number of equal clients as which their weights may
    count. ``signed``: lists are signed with keys that the nodes were given, so that the server cannot forge them.
    """

    bits: int = 32
    range: float = 8.0
    clip: float | None = None
    threshold: float = 2 / 3
    neighbours: int | str = "all"
    least: int = 3
    effective: float = 2.0
    signed: bool = False

    blind: ClassVar[bool] = False
    """Whether clients weigh themselves, so that the server learns no loss."""

    def __post_init__(self) -> None:
        name = self.text_name
        if self.bits not in BITS:
            raise ValueError(f"{name}: bits = {self.bits!r}; give one of {', '.join(map(str, BITS))}")
        if not 0 < self.range < math.inf:
            raise ValueError(f"{name}: range = {self.range!r}; give the largest value of an update, a number > 0")
        if self.clip is not None and not 0 < self.clip < math.inf:
            raise ValueError(f"{name}: clip = {self.clip!r}; give the largest norm of an update, a number > 0, or none")
        if not 0.5 <= self.threshold < 1:
            raise ValueError(f"{name}: threshold = {self.threshold!r}; give a share of at least 0.5 and below 1")
        if self.neighbours not in ("all", "log"):
            number = self.neighbours if isinstance(self.neighbours, int) else 0
            if isinstance(self.neighbours, bool) or number < 2 or number % 2:
                raise ValueError(f"{name}: neighbours = {quoted(self.neighbours)}; give all, log or an even number")
        if self.signed and self.neighbours != "all":
            raise ValueError(
                f"{name}: signed=true protects from a lying server, which could draw rosters until a client has "
                "certain neighbours; use neighbours=all"
            )
        if not 1 <= self.effective < math.inf:
            raise ValueError(f"{name}: effective = {self.effective!r}; give a number of clients ≥ 1")
        whole(f"{name}: least", self.least, least=2)

    def check(self, algorithm: AnyAlgorithm) -> None:
        """Raise ValueError for rules that need more than a sum, or that would reveal clients' models or losses."""
        combine, update, select = algorithm.combine, algorithm.update, algorithm.select
        if (not combine.linear or combine.alone) and not getattr(combine, "private", False):
            raise ValueError(
                f"combine = {combine} looks at single models, which {self.text_name} hides from the server; use mean, "
                "or noise(clip(mean, …), …)"
            )
        if combine.wants:
            raise ValueError(f"combine = {combine} needs {', '.join(sorted(combine.wants))} besides a sum; use mean")
        absorbed = getattr(update, "sends", ()) or _overrides(update, "absorb")
        if absorbed:
            raise ValueError(
                f"update = {update} sends more than a model, and the server would see that of every client; use an "
                "update that sends a model alone, such as sgd or fedprox"
            )
        if type(select).learn is not Select.learn:
            raise ValueError(
                f"select = {select} learns from the training loss of every client, which {self.text_name} does "
                "not send; use uniform(C=…)"
            )
        if getattr(combine, "private", False) and isinstance(select, poisson) and select.least < self.least:
            raise ValueError(
                f"select = {select} may draw fewer clients than {self.text_name} sums: such a round would keep the "
                f"model, which no ε accounts for; write poisson(C={select.C:g}, least={self.least})"
            )
        if getattr(combine, "private", False) and combine.c * self.effective > 1:
            raise ValueError(
                f"combine = {combine} lets weights count as fewer than {self.effective:g} clients (effective): such a "
                f"round would keep the model, which no ε accounts for; use c ≤ {1 / self.effective:g}"
            )
        self._check_weights(algorithm)

    @abstractmethod
    def _check_weights(self, algorithm: AnyAlgorithm) -> None:
        """Raise ValueError for a strategy whose weights cannot be used."""

    @staticmethod
    def private(algorithm: Any) -> Any:
        """The combine rule that adds privacy noise, parts of which the clients then add; None if there is none."""
        return algorithm.combine if getattr(algorithm.combine, "private", False) else None

    def weights(self, algorithm: Any, alpha: Mapping[int, float]) -> dict[int, float]:
        """The factors of the clients' updates, from the weights of an order by client id, without weights of 0."""
        most = getattr(self.private(algorithm), "c", math.inf)
        return {id: min(weight, most) for id, weight in alpha.items() if weight}

    def shared_out(self, algorithm: Any, total: Any, alpha: Mapping[int, float]) -> Any:
        """The sum of a session for the round, divided by the weight that arrived if some was lost.

        A private sum is not divided: lost weight stays with the current model, so that no weight rises above c.
        """
        if self.private(algorithm) is None or len(total.ids) == len(alpha):
            return total.sum.values
        return total.sum.values * math.fsum(alpha[id] for id in total.ids)

    def played(self, algorithm: Any) -> Any:
        """The algorithm for the server, in which the parts that the server must not know are replaced."""
        return algorithm

    def terms(self, weigh: Any) -> dict[str, Any]:
        """The settings of a session that depend on the strategy."""
        return {"blind": False, "slope": 0.0, "reference": 0.0, "steepest": 0.0}

    def too_few(self, weights: Mapping[int, float]) -> str | None:
        """Why no sum over these clients is made; None if it is."""
        if len(weights) < self.least:
            return f"a secure sum of {len(weights)} clients is refused: it takes {self.least} with weight (least)"
        if (counts := effective(weights.values())) < self.effective:
            return (
                f"a secure sum is refused: its weights count as {counts:.3g} equal clients, so it would say too much "
                f"about the heaviest; it takes {self.effective:g} (effective)"
            )
        return None


def _overrides(rule: Any, method: str) -> bool:
    """Whether a rule has a method of its own: the class that defines it elsewhere is the interface."""
    owner = next(kind for kind in type(rule).__mro__ if method in vars(kind))
    return owner.__name__ not in ("Update", "Remote")


SECURES: Registry[Secure] = Registry("secure sum", Secure, package=__package__)  # type: ignore[type-abstract]
