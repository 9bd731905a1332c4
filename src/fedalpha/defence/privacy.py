"""User-level differential privacy of a weighted, capped, clipped mean.

With ‖x_i‖ ≤ C and alpha_i ≤ c by water-filling, removing a client lowers no other weight: the other clients share
the weight that it had. The aggregate then moves by at most alpha_i·C (its own part) plus alpha_i·C (what the others
gain), so the sensitivity under adding or removing one client is 2·c·C; equal weight on the k best: 2·C/k.

This needs every client's unnormalised weight to depend on that client alone. Where one client moves the
weights of others through a statistic (median ± MAD clipping, a change when accuracy passes a value), there is
no such bound, and `sensitivity` raises ValueError. Nothing may bypass the noise either: `noise` refuses client
updates that publish what clients send, selection by losses, weights by the server's own measurement, and use
inside another rule.
**Losses and alpha that are published are not covered**: only the model is. See docs/privacy.md.
"""

from __future__ import annotations

import math
from typing import Any

from scipy.stats import binom

from fedalpha.select import SELECTIONS, Select
from fedalpha.select.poisson import poisson
from fedalpha.strategies import STRATEGIES, Strategy


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
    return STRATEGIES.parse(strategy).sensitivity(C)


def epsilon(
    z: float, rounds: int, delta: float, *, sampling: float | str | Select = 1.0, clients: int | None = None
) -> float:
    """ε of ``rounds`` releases with noise multiplier z, at δ, for adding or removing one client.

    ``sampling``: the selection of the run, or the probability with which each client takes part *independently of the
    others*. Only ``poisson(C=…)`` amplifies; with any other selection, such as a cohort of fixed size, ε is that
    without sampling. ``poisson`` draws cohorts below its ``least`` again: with ``clients``, the chance of that is paid
    from δ. Amplification holds against those who do not know who took part: not against the server, nor against
    readers of a history that names the cohorts; to them ε is that without sampling.
    Needs the extra ``fedalpha[privacy]``.

    >>> round(epsilon(z=10.0, rounds=1, delta=1e-5), 2)
    0.34
    """
    if isinstance(sampling, float | int):
        return float(_accountant(z, rounds, sampling).get_epsilon(delta))
    select = SELECTIONS.parse(sampling)
    if not isinstance(select, poisson):
        return epsilon(z, rounds, delta)
    if clients is None:
        raise ValueError(f"{select} redraws cohorts that are too small; pass clients=, so that delta accounts for it")
    missed = rounds * float(binom.cdf(select.least - 1, clients - 1, select.C))
    found = math.inf
    for _ in range(50):  # δ for the mechanism, after what redrawing costs at this ε: missed·(1 + e^ε)
        left = delta - missed * (1 + math.exp(min(found, 50.0))) if math.isfinite(found) else delta - 2 * missed
        if left <= 0:
            break
        following = float(_accountant(z, rounds, select.C).get_epsilon(left))
        if following <= found * (1 + 1e-12) and math.isfinite(found):
            return found
        found = following * (1 + 1e-9)
    raise ValueError(
        f"{select} with {clients} clients redraws cohorts too often for delta = {delta:g}: the chance is {missed:.3g}; "
        "raise C, or lower least"
    )


def multiplier(
    target: float, rounds: int, delta: float, *, sampling: float | str | Select = 1.0, clients: int | None = None
) -> float:
    """The smallest noise multiplier z (to 0.1 %) whose ε is at most ``target``."""
    if not target > 0:
        raise ValueError(f"target = {target}; give an ε > 0")

    def spent(z: float) -> float:
        return epsilon(z, rounds, delta, sampling=sampling, clients=clients)

    low, high = 0.0, 1.0
    while spent(high) > target:
        low, high = high, 2 * high
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if spent(middle) <= target else (middle, high)
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
