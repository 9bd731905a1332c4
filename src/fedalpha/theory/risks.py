"""The risk that a strategy minimises.

The Worse family uses alpha = argmax_a [a·x(w) − Φ(a)], so it descends on the risk
R(w) = max_a [a·x(w) − Φ(a)] of the regrets x_i = F_i − F_i*:

- FedAvg: the mean regret p·x = F − Σ p_i F_i*;
- FedWorse: the largest regret (minimax regret); FedWorse(k): the mean of the k largest (CVaR);
- FedSoftWorse(T): the tilted risk T·log Σ p_i exp(x_i/T);
- mixtures (`mix`, `floor`): the same mixture of their members' risks.

A hybrid ends with its last rule. The Better family minimises no convex risk.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedalpha.strategies import FedAvg, FedSoftWorse, FedWorse, Strategy
from fedalpha.strategies.anneal import AnnealMix, AnnealTemperature
from fedalpha.strategies.cool import Cool
from fedalpha.strategies.fade import Fade
from fedalpha.strategies.floor import Floor
from fedalpha.strategies.loss_aware import LossAware
from fedalpha.strategies.mix import Mix
from fedalpha.strategies.per_step import PerStep
from fedalpha.strategies.soft import Soft
from fedalpha.strategies.switch import Switch


@dataclass(frozen=True)
class Term:
    """share × a risk of the regrets: linear in them (T = inf), tilted (T > 0) or the mean of the k largest."""

    share: float
    prior: str = "size"
    T: float = np.inf
    k: int = 0


def last_rule(rule: Strategy) -> Strategy:
    """The rule that a hybrid becomes in the end."""
    match rule:
        case Switch():
            return last_rule(rule.members[-1])
        case AnnealMix():
            return last_rule(rule.members[-1])
        case AnnealTemperature():
            return rule.rule(rule.rounds)
        case Fade():
            return FedAvg()
        case Cool(members=(Soft() as member,)):
            return FedAvg(prior=member.prior)
        case PerStep():
            return last_rule(rule.members[0])
    return rule


def risk(rule: Strategy, n: int) -> list[Term] | None:
    """The risk on which the rule descends, as a sum of terms; None if it has none.

    Estimated optima change during the run, so a rule that uses them descends on no fixed risk.
    """
    match rule:
        case LossAware(optima="estimated"):
            return None
        case FedAvg():
            return [Term(1.0, rule.prior)]
        case FedSoftWorse(T=0.0):
            return [Term(1.0, k=1)]
        case FedSoftWorse():
            return [Term(1.0, rule.prior, T=rule.T)]
        case FedWorse():
            return [Term(1.0, k=rule.count(n))]
        case Mix(members=members, shares=shares):
            return _sum([(s, risk(m, n)) for s, m in zip(shares, members, strict=True)])
        case Floor(members=(inner,), pi=pi):
            return _sum([(1 - pi, risk(inner, n)), (pi, [Term(1.0)])])
    return None


def law(terms: list[Term], n: int) -> str:
    """The risk in words."""
    names = []
    for t in terms:
        k = "minimax regret" if t.k == 1 else f"CVaR, the {t.k} worst of {n}"
        names.append(k if t.k else "mean regret" if np.isinf(t.T) else f"tilted risk, T = {t.T:g}")
    shares = (
        "" if len(terms) == 1 else " + ".join(f"{t.share:g} × {name}" for t, name in zip(terms, names, strict=True))
    )
    return shares or names[0]


def _sum(parts: list[tuple[float, list[Term] | None]]) -> list[Term] | None:
    terms = []
    for share, inner in parts:
        if inner is None:
            return None
        terms += [Term(share * t.share, t.prior, t.T, t.k) for t in inner]
    return terms
