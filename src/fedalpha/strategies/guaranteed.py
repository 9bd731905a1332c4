"""Combinators that come with a guarantee (docs/theory.md has the statements and proofs).

- `fade`: any rule, mixed away towards FedAvg at a chosen rate: no bias in the limit.
- `cool`: a soft rule whose temperature rises so that it becomes FedAvg: no bias in the limit.
- `temper`: a soft rule never sharper than κ_max/κ_min = 1/π: bounded bias.
- `steady`: any rule, kept at a share of FedAvg's effective number of clients: bounded noise.
- `per_step`: any rule, corrected for clients that did unequal local work.

A `switch` to FedAvg removes the bias too, at once. Rates are in rounds: with E local steps a
round, c·(t + γ)^−a in steps t is (c/E^a)·(round + γ/E)^−a.
"""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from fedalpha.strategies.base import STRATEGIES, Array, Cohort, Need, State, Strategy, Traits, normalise
from fedalpha.strategies.combinators import Combinator, _members
from fedalpha.strategies.rules import Soft, tilt

HERE = "this library; docs/theory.md"


def decay(round: int, c: float, a: float, gamma: float) -> float:
    """c·(round + γ)^−a."""
    return float(c * (round + gamma) ** -a)


@dataclass(frozen=True, eq=False, repr=False)
class Fade(Combinator):
    """(1 − ε)·p + ε·alpha; see `fade`."""

    c: float = 1.0
    a: float = 1.0
    gamma: float = 1.0

    text_name: ClassVar[str] = "fade"

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        (alpha,), state = self.all_weights(state, cohort)
        share = min(1.0, decay(cohort.round, self.c, self.a, self.gamma))
        return (1 - share) * cohort.prior("size") + share * alpha, state


@STRATEGIES.register(
    formula="(1 − ε)·p_i + ε·alpha_i, ε = min(1, c·(round + γ)^−a)",
    reference=HERE,
    examples=("fade(FedWorse)", "fade(FedSoftBetter(T=0.2), c=5.0, a=0.5, gamma=2.0)"),
)
def fade(rule: Strategy | str, *, c: float = 1.0, a: float = 1.0, gamma: float = 1.0) -> Fade:
    """An annealed mix: the rule's share falls like (round + γ)^−a, and FedAvg takes over.

    For any rule and 0 < a ≤ 1 the expected distance to w* is O((t + γ)^−a).

    >>> import fedalpha
    >>> fedalpha.weights("fade(FedWorse, c=2)", losses=[2, 1], sizes=[1, 1], round=3)
    array([0.75, 0.25])
    """
    return Fade(_members("fade", (rule,), least=1), *_rate("fade", c, a, gamma))


@dataclass(frozen=True, eq=False, repr=False)
class Tempered(Combinator):
    """A soft rule at the temperature 1/T = min(1/T_0, ln(limit)/(max x − min x)).

    Then κ_max/κ_min = exp((max x − min x)/T) ≤ limit, where T_0 is the rule's own temperature:
    write T=0 to always use the limit.
    """

    @abstractmethod
    def log_limit(self, round: int) -> float:
        """ln of the largest κ_max/κ_min that the round allows (above 0)."""

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        (rule,) = self.members
        assert isinstance(rule, Soft)
        excess, inner = rule.excess(state["members"][0], cohort)
        prior = cohort.prior(rule.prior)
        with np.errstate(over="ignore"):
            spread = float(np.ptp(excess[prior > 0]))
        coolest = spread / self.log_limit(cohort.round)
        return tilt(prior, rule.sign * excess, max(rule.T, coolest)), {"members": [dict(inner)]}


@dataclass(frozen=True, eq=False, repr=False)
class Cool(Tempered):
    """κ_max/κ_min ≤ 1 + c·(round + γ)^−a; see `cool`."""

    c: float = 1.0
    a: float = 1.0
    gamma: float = 1.0

    text_name: ClassVar[str] = "cool"

    def log_limit(self, round: int) -> float:
        return math.log1p(decay(round, self.c, self.a, self.gamma))


@STRATEGIES.register(
    formula="the soft rule at 1/T = min(1/T_0, ln(1 + δ)/(max x − min x)), δ = c·(round + γ)^−a",
    reference=HERE,
    examples=("cool(FedSoftWorse(T=0.2))", "cool(FedSoftBetter(T=0.0), c=4.0, a=0.5, gamma=2.0)"),
)
def cool(rule: Strategy | str, *, c: float = 1.0, a: float = 1.0, gamma: float = 1.0) -> Cool:
    """An annealed temperature: κ_max/κ_min ≤ 1 + c·(round + γ)^−a, so the rule becomes FedAvg.

    For 0 < a ≤ 1 the expected distance to w* is O((t + γ)^−a); with ``prior=uniform`` it is the uniform mean that
    the rule becomes, and its optimum. "Cool" as in cooling off: the rule loses its edge, its temperature T rises.

    >>> import fedalpha
    >>> fedalpha.weights("cool(FedSoftWorse(T=0), c=3)", losses=[2, 1], sizes=[1, 1], round=0).round(3)
    array([0.8, 0.2])
    """
    return Cool(_soft("cool", rule), *_rate("cool", c, a, gamma))


@dataclass(frozen=True, eq=False, repr=False)
class Temper(Tempered):
    """κ_max/κ_min ≤ 1/π; see `temper`."""

    pi: float = field(default=0.5, metadata={"always": True})

    text_name: ClassVar[str] = "temper"

    def log_limit(self, round: int) -> float:
        return -math.log(self.pi)


@STRATEGIES.register(
    formula="the soft rule at T = max(T_0, (max x − min x)/ln(1/π))",
    reference=HERE,
    examples=("temper(FedSoftWorse(T=0.2), 0.5)", "temper(FedSoftBetter(T=0.0), pi=0.2)"),
)
def temper(rule: Strategy | str, pi: float) -> Temper:
    """A temperature with a floor under κ: π ≤ alpha_i/p_i ≤ 1/π for every client (prior = size).

    The bias of the limit is then at most (L_F Γ/μ)·(1/π − 1)/(1 + 3π/8).

    >>> import fedalpha
    >>> fedalpha.weights("temper(FedSoftWorse(T=0), 0.25)", losses=[2, 1], sizes=[1, 1]).round(3)
    array([0.8, 0.2])
    """
    return Temper(_soft("temper", rule), _number("temper", "pi", pi, below=1))


@dataclass(frozen=True, eq=False, repr=False)
class Steady(Combinator):
    """p + ε·(alpha − p), n_eff ≥ share·n_eff(p); see `steady`."""

    share: float = field(default=0.5, metadata={"always": True})

    text_name: ClassVar[str] = "steady"

    @property
    def traits(self) -> Traits:
        inner = super().traits
        return dataclasses.replace(inner, monotone=0 if inner.monotone == 0 else None)

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        (alpha,), state = self.all_weights(state, cohort)
        p = cohort.prior("size")
        change = alpha - p
        # ‖p + ε·change‖² = P + 2bε + aε² must not exceed P/share; at ε = 0 it is P.
        a, b, P = _dot(change, change), _dot(p, change), _dot(p, p)
        room = P / self.share - P
        if a + 2 * b <= room:
            return alpha, state
        root = math.sqrt(b * b + a * room)
        epsilon = room / (b + root) if b > 0 else (root - b) / a
        return p + min(1.0, epsilon) * change, state


@STRATEGIES.register(
    formula="p_i + ε·(alpha_i − p_i) with the largest ε ≤ 1 such that n_eff ≥ share·n_eff(p), n_eff = 1/Σ alpha²",
    reference=HERE,
    examples=("steady(FedWorse, 0.5)", "steady(FedSoftBetter(T=0.2), share=0.8)"),
)
def steady(rule: Strategy | str, share: float) -> Steady:
    """Variance-aware weights: follow the rule as far as the effective number of clients allows.

    Gradient noise enters the bounds as σ²·Σ alpha_i². This keeps it within 1/share of FedAvg's,
    which FedWorse (Σ alpha² = 1) does not.

    >>> import fedalpha
    >>> fedalpha.weights("steady(FedWorse, 0.5)", losses=[2, 1, 1, 1], sizes=[1, 1, 1, 1]).round(4)
    array([0.683 , 0.1057, 0.1057, 0.1057])
    """
    return Steady(_simplex("steady", rule), _number("steady", "share", share, most=1))


@dataclass(frozen=True, eq=False, repr=False)
class PerStep(Combinator):
    """∝ alpha_i/E_i; see `per_step`."""

    text_name: ClassVar[str] = "per_step"

    @property
    def traits(self) -> Traits:
        inner = super().traits
        return dataclasses.replace(inner, monotone=0 if inner.monotone == 0 else None)

    @property
    def requires(self) -> frozenset[Need]:
        return super().requires | {"steps"}

    def needs(self, state: State, cohort: Cohort) -> frozenset[Need]:
        return super().needs(state, cohort) | {"steps"}

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        (alpha,), state = self.all_weights(state, cohort)
        steps = cohort.require("steps")
        rate = np.divide(alpha, steps, out=np.zeros(len(cohort)), where=(steps > 0) & (alpha > 0))
        return (normalise(rate) if rate.any() else alpha), state


@STRATEGIES.register(
    formula="∝ alpha_i/E_i, E_i the client's local steps",
    reference=HERE,
    examples=("per_step(FedAvg)", "per_step(FedSoftWorse(T=0.2))"),
)
def per_step(rule: Strategy | str) -> PerStep:
    """Weights for unequal local work: a client that takes E_i steps counts E_i times, so divide by E_i.

    The effective weights, ∝ alpha_i·E_i, are then those of the rule: `per_step(FedAvg)` stays
    unbiased. A client that took no step brings nothing and gets 0.

    >>> import fedalpha
    >>> fedalpha.weights("per_step(FedAvg)", losses=[1, 1], sizes=[1, 1], steps=[1, 3])
    array([0.75, 0.25])
    """
    return PerStep(_simplex("per_step", rule))


def _soft(owner: str, rule: Strategy | str) -> tuple[Strategy, ...]:
    members = _members(owner, (rule,), least=1)
    if not isinstance(members[0], Soft):
        raise ValueError(f"{owner}: {members[0]} has no temperature; give a soft rule or use fade")
    return members


def _simplex(owner: str, rule: Strategy | str) -> tuple[Strategy, ...]:
    members = _members(owner, (rule,), least=1)
    if not members[0].traits.simplex:
        raise ValueError(f"{owner}: {members[0]} has weights off the simplex; give a simplex rule")
    return members


def _rate(owner: str, c: float, a: float, gamma: float) -> tuple[float, float, float]:
    """c, a, γ of a decay; the guarantee holds for rates a ≤ 1."""
    return _number(owner, "c", c), _number(owner, "a", a, most=1), _number(owner, "gamma", gamma)


def _number(owner: str, name: str, value: object, *, most: float = math.inf, below: float = math.inf) -> float:
    """``value`` as a float, refused unless it is a finite number in (0, most] and (0, below)."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not (0 < value <= most and value < below):
        span = f" and at most {most:g}" if most < math.inf else f" and below {below:g}" if below < math.inf else ""
        raise ValueError(f"{owner}: {name} = {value!r}; give a number above 0{span}")
    return float(value)


def _dot(a: Array, b: Array) -> float:
    return math.fsum((a * b).tolist())
