"""AAggFF against slow versions of both forms, written from the paper."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from fedalpha.strategies import STRATEGIES, Cohort, strategy


def test_silo_is_an_online_newton_step() -> None:
    rng, K = np.random.default_rng(0), 5
    rule = strategy("AAggFF")
    state, p, slope, curved = rule.init(K), np.full(5, 0.2), np.zeros(5), 4 * np.eye(5)
    for round in range(8):
        losses = rng.uniform(0.1, 4, K)
        r = (1 - np.exp(-losses / losses.mean())) / K
        g = -r / (1 + p @ r)
        slope, curved = slope + g, curved + np.outer(g, g)
        found = minimize(
            lambda q: slope @ q + 2 * q @ q + K / 8 * q @ curved @ q,  # noqa: B023
            np.full(K, 1 / K),
            jac=lambda q: slope + 4 * q + K / 4 * curved @ q,  # noqa: B023
            bounds=[(0, 1)] * K,
            constraints={"type": "eq", "fun": lambda q: q.sum() - 1},
            method="SLSQP",
            options={"ftol": 1e-14},
        )
        p = found.x
        alpha, state = rule.weights(state, Cohort(ids=np.arange(K), sizes=np.ones(K), before=losses, round=round))
        np.testing.assert_allclose(alpha, p, atol=1e-6)


@pytest.mark.parametrize("cdf", ["weibull", "exponential", "frechet", "normal", "gumbel", "logistic"])
def test_device_is_follow_the_leader_with_estimated_returns(cdf: str) -> None:
    """All K clients, in full: absent clients have the mean return, others the doubly robust estimate."""
    rng, K, m = np.random.default_rng(1), 12, 4
    functions = {
        "weibull": lambda x: 1 - math.exp(-(x**2)),
        "exponential": lambda x: 1 - math.exp(-x),
        "frechet": lambda x: math.exp(-1 / x),
        "normal": lambda x: 0.5 * (1 + math.erf((x - 1) / math.sqrt(2))),
        "gumbel": lambda x: math.exp(-math.exp(1 - x)),
        "logistic": lambda x: 1 / (1 + math.exp(1 - x)),
    }
    C, p, total = m / K, np.full(K, 1 / K), np.zeros(K)
    rule = strategy(f"AAggFF(clients={K}, cdf={cdf})")
    state = rule.init(K)
    for t in range(1, 10):
        ids, losses = np.sort(rng.choice(K, m, replace=False)), rng.uniform(0.1, 4, m)
        r = C * np.array([functions[cdf](x) for x in losses / losses.mean()])
        estimate = np.full(K, r.mean())
        estimate[ids] += (r - r.mean()) / C
        below = 1 + r.mean()
        total += -estimate / below + r.mean() * (p @ (estimate - r.mean())) / below**2
        p = np.exp(-total * math.sqrt(math.log(K)) / math.sqrt(t + 1) / (2 + C))
        p /= p.sum()
        alpha, state = rule.weights(state, Cohort(ids=ids, sizes=np.ones(m), before=losses, round=t - 1))
        np.testing.assert_allclose(alpha, p[ids] / p[ids].sum(), rtol=1e-9)


@pytest.mark.parametrize("text", ["AAggFF(clients=0)", "AAggFF(cdf=cauchy)"])
def test_bad_arguments_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="AAggFF:"):
        STRATEGIES.parse(text)
