"""User-level differential privacy of a weighted, capped, clipped mean.

With ‖x_i‖ ≤ C and alpha_i ≤ c by water-filling, removing a client lowers nobody's weight: the others share
what it held. The aggregate then moves by at most alpha_i·C (its own part) plus alpha_i·C (what the others
gain), so the sensitivity under adding or removing one client is 2·c·C; equal weight on the k best: 2·C/k.

This needs every client's unnormalised weight to depend on that client alone. Where one client moves the
weights of others through a statistic (median ± MAD clipping, a change when accuracy passes a value), nothing
of the kind holds, and `sensitivity` refuses. Nothing may get around the noise either: `check` refuses client
updates that publish what clients send, selection by losses, weights by the server's own measurement, and noise inside
another rule.
**Losses and alpha that are published are not covered**: only the model is. See docs/privacy.md.
"""

from __future__ import annotations

import math
from typing import Any

from fedalpha.combine.base import Combine
from fedalpha.combine.noise import noise
from fedalpha.combine.robust import Wrapper
from fedalpha.select import Select
from fedalpha.select.by_loss import loss_proportional, power_of_choice
from fedalpha.strategies import STRATEGIES, FedAvg, Strategy
from fedalpha.strategies.combinators import AnnealTemperature, Cap
from fedalpha.strategies.rules import Soft, TopK
from fedalpha.update import Update


def sensitivity(strategy: str | Strategy, C: float) -> float:
    """How far adding or removing one client moves Σ alpha_i·x_i, if ‖x_i‖ ≤ C.

    >>> sensitivity("cap(FedSoftWorse(T=0.2), 0.05)", C=1.0)
    0.1
    >>> sensitivity("FedWorse(k=10)", C=2.0)
    0.4
    >>> sensitivity("cap(clipped(FedSoftWorse(T=0.2)), 0.05)", C=1.0)
    Traceback (most recent call last):
    ...
    ValueError: clipped(FedSoftWorse(T=0.2), k=3.0) lets one client move the weights of others, so its ...
    """
    if not 0 < C < math.inf:
        raise ValueError(f"C = {C}; give the norm to which updates are clipped, a number > 0")
    rule = STRATEGIES.parse(strategy)
    if isinstance(rule, Cap):
        inner = rule.members[0]
        soft = inner.members[0] if isinstance(inner, AnnealTemperature) else inner
        if isinstance(soft, FedAvg) or (isinstance(soft, Soft) and soft.optima == "known"):
            return 2 * rule.c * C
        raise ValueError(_refusal(inner))
    if isinstance(rule, TopK):
        if isinstance(rule.k, int) and rule.optima == "known":
            return 2 * C / rule.k
        raise ValueError(f"{rule}: the number of clients in the mean depends on who is there; give k as a whole number")
    if isinstance(rule, FedAvg | Soft | AnnealTemperature):
        raise ValueError(f"nothing bounds the weight of one client under {rule}; write cap({rule}, c)")
    raise ValueError(_refusal(rule))


def _refusal(rule: Strategy) -> str:
    return (
        f"{rule} lets one client move the weights of others, so its sensitivity is not bounded here; "
        "use FedAvg or FedSoftWorse/FedSoftBetter with known optima inside cap(…, c), or FedWorse(k)/FedBetter(k)"
    )


def check(strategy: Strategy, combine: Combine, select: Select, update: Update, reevaluate: int = 0) -> None:
    """Refuse a noisy combine rule whose noise does not cover what the strategy does, or that something gets around."""
    rule = combine
    while isinstance(rule, Wrapper) and not isinstance(rule, noise):
        rule = rule.inner
    if not isinstance(rule, noise):
        return
    if rule is not combine:
        raise ValueError(
            f"{combine} has its noise inside another rule, where it is not known what it covers; write {rule} alone"
        )
    if isinstance(select, loss_proportional | power_of_choice):
        raise ValueError(
            f"{select} lets losses decide who takes part, which the noise does not cover; use uniform(C=…) with noise"
        )
    if type(update).absorb is not Update.absorb:
        raise ValueError(
            f"{update} puts what clients send into the next broadcast without noise, so the model is not private; "
            "use an update that sends a model alone, such as sgd or fedprox"
        )
    if reevaluate:
        raise ValueError(
            f"reevaluate = {reevaluate} weighs some clients by what the server measures, and who they are depends on "
            "the others, so the sensitivity is not bounded; leave it at 0 with noise"
        )
    needed = sensitivity(strategy, rule.C)
    if needed > 2 * rule.c * rule.C * (1 + 1e-12):
        raise ValueError(
            f"{strategy} gives a client more weight than the noise is made for: "
            f"set c ≥ {needed / (2 * rule.C):g} in {rule}"
        )


def epsilon(z: float, rounds: int, delta: float, *, sampling: float = 1.0) -> float:
    """ε of ``rounds`` releases with noise multiplier z, at δ, for adding or removing one client.

    ``sampling``: the probability with which each client takes part, *independently of the others* (Poisson).
    A cohort of fixed size is not that: then leave it at 1. Needs the extra ``fedalpha[privacy]``.

    >>> round(epsilon(z=10.0, rounds=1, delta=1e-5), 2)
    0.34
    """
    accountant = _accountant(z, rounds, sampling)
    return float(accountant.get_epsilon(delta))


def multiplier(target: float, rounds: int, delta: float, *, sampling: float = 1.0) -> float:
    """The smallest noise multiplier z (to 0.1 %) whose ε is at most ``target``."""
    if not target > 0:
        raise ValueError(f"target = {target}; give an ε > 0")
    low, high = 0.0, 1.0
    while epsilon(high, rounds, delta, sampling=sampling) > target:
        low, high = high, 2 * high
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if epsilon(middle, rounds, delta, sampling=sampling) <= target else (middle, high)
    return high


def _accountant(z: float, rounds: int, sampling: float) -> Any:
    if not z > 0:
        raise ValueError(f"z = {z}: without noise there is no privacy; give a noise multiplier > 0")
    if rounds < 1 or not 0 < sampling <= 1:
        raise ValueError(f"rounds = {rounds}, sampling = {sampling}; give rounds ≥ 1 and a probability in (0, 1]")
    try:
        import dp_accounting
        from dp_accounting import pld
    except ImportError:
        raise RuntimeError("accounting needs the package dp-accounting: pip install 'fedalpha[privacy]'") from None
    event = dp_accounting.GaussianDpEvent(z)
    if sampling < 1:
        event = dp_accounting.PoissonSampledDpEvent(sampling, event)
    accountant = pld.PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(event, rounds)
    return accountant
