from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from fedalpha.theory.corollary import V_E, Pi_bound, V_min, error_from_kappa, error_from_ratio
from fedalpha.theory.monte_carlo import simulate
from fedalpha.theory.one_step import noise_constant
from fedalpha.theory.problems import quadratics
from fedalpha.theory.quantities import pi_Pi

C = quadratics().constants


def test_printed_V_and_E() -> None:  # noqa: N802
    E, rho, rho_tilde, delta0 = 3, 1.4, 1.9, 7.0
    gamma = 4 * C.L / C.mu
    printed = V_E(C, delta0, E=E, rho_bar=rho, X_star=rho_tilde * C.Gamma, variant="paper", gamma=gamma)
    V = 4 * C.L * (32 * E**2 * C.G2 + C.sigma2) / (3 * C.mu**2 * rho)
    V += 8 * C.L**2 * C.Gamma / C.mu**2 + C.L * gamma * delta0 / 2
    bias = 8 * C.L * C.Gamma / (3 * C.mu) * (rho_tilde / rho - 1)
    assert tuple(printed[:2]) == pytest.approx((V, bias))


def test_printed_forms_without_heterogeneity() -> None:
    c = quadratics(spread=0).constants
    gamma = 4 * c.L / c.mu
    printed = V_E(c, 7.0, E=2, rho_bar=1.3, variant="paper", gamma=gamma)
    expected = 4 * c.L * (128 * c.G2 + c.sigma2) / (3 * c.mu**2 * 1.3) + c.L * gamma * 7 / 2
    assert tuple(printed[:2]) == pytest.approx((expected, 0))
    assert V_min(c, 7.0, gamma) == pytest.approx(c.L * gamma * 7 / 2)


def test_fedavg_speed_is_V_min_plus_the_noise_term() -> None:  # noqa: N802
    """Erratum 9: a product, not "4L − 32τ²G² + σ²"."""
    printed = V_E(C, 7.0, E=2, variant="paper")
    speed = V_min(C, 7.0, printed.gamma) + 4 * C.L * (128 * C.G2 + C.sigma2) / (3 * C.mu**2)
    assert tuple(printed[:2]) == pytest.approx((speed, 0))


@pytest.mark.parametrize("beta", [None, 0.9, 1.5, 3.0])
def test_corrected_corollary_satisfies_its_own_recursion(beta: float | None) -> None:
    """v/(t+γ) + d dominates Δ ← (1 − ημB)Δ + η²C + ηD from any start below it."""
    beta = None if beta is None else beta / C.mu
    for rho, X in ((1.0, C.Gamma), (1.7, 2.2 * C.Gamma), (0.4, 0.9 * C.Gamma), (2.0, 1.2 * C.Gamma)):
        B, D = 1 + 3 * rho / 8, 2 * (X - rho * C.Gamma)
        if beta is not None and beta * C.mu * B <= 1:
            with pytest.raises(ValueError, match="too small"):
                V_E(C, 9.0, rho_bar=rho, X_star=X, beta=beta)
            continue
        bound = V_E(C, 9.0, E=4, rho_bar=rho, X_star=X, beta=beta)
        eta = C.step(4, beta)(np.arange(3000))
        noise = noise_constant(C, 4, rho)
        delta = 9.0
        for t, h in enumerate(eta):
            assert delta <= bound.distance(t) * (1 + 1e-12)
            delta = (1 - h * C.mu * B) * delta + h**2 * noise + h * D


def test_gamma_conditions() -> None:
    assert C.gamma(E=100) == 99
    assert C.gamma() == pytest.approx(4 * C.L / C.mu)
    with pytest.raises(ValueError, match="γ ="):
        V_E(C, 9.0, gamma=1.0)
    with pytest.raises(ValueError, match="rollout_bound"):
        V_E(C, 9.0, variant="exact")


def test_Pi_bound_is_sharp() -> None:  # noqa: N802
    random = np.random.default_rng(0)
    for _ in range(200):
        p = random.dirichlet(np.ones(5))
        pi, Pi = pi_Pi(random.dirichlet(np.ones(5)), p)
        assert Pi <= Pi_bound(float(pi), p.min()) * (1 + 1e-12)
    p = np.array([0.1, 0.4, 0.5])
    alpha = 0.3 * p + 0.7 * np.array([1, 0, 0])  # all spare weight on the smallest client
    assert pi_Pi(alpha, p)[1] == pytest.approx(Pi_bound(0.3, 0.1))


def test_errors_from_kappa_vanish_for_fedavg_and_bound_E() -> None:  # noqa: N802
    assert error_from_kappa(C, 1.0) == error_from_ratio(C, 1.0) == 0
    assert error_from_kappa(C, 0.0) == math.inf
    assert error_from_kappa(dataclasses.replace(C, Gamma=0.0), 0.0) == 0
    run = simulate(quadratics(sigma=0), "floor(FedWorse, 0.4)", rounds=100)
    pi, Pi = (float(v) for v in (pi_Pi(run.alpha, C.p)[0].min(), pi_Pi(run.alpha, C.p)[1].max()))
    printed = V_E(C, 9.0, rho_bar=run.rho_bar(), X_star=float(run.X_star.max()), variant="paper")
    assert printed.E <= error_from_kappa(C, pi, Pi) <= error_from_kappa(C, pi)


def test_tempered_rules_stay_within_their_bias() -> None:
    problem = quadratics(sigma=0)
    for text in ("temper(FedSoftWorse(T=0), 0.5)", "temper(FedSoftBetter(T=0), 0.5)"):
        run = simulate(problem, text, rounds=500)
        pi, Pi = pi_Pi(run.alpha, problem.p)
        assert (Pi / pi).max() <= 2 * (1 + 1e-9)
        assert pi.min() >= 0.5 - 1e-9
        assert 0 < run.gap[-1, 0] <= error_from_ratio(problem.constants, 2.0)


def test_extremes_over_time_may_be_worse_than_every_round() -> None:
    """Π_t/π_t = 2 in both rounds, yet max Π/min π is almost 4: why error_from_ratio follows the steps."""
    p = np.array([0.01, 0.99])
    rounds = np.array([p * [2, 1], p * [1, 2]])
    rounds /= rounds.sum(-1, keepdims=True)
    pi, Pi = pi_Pi(rounds, p)
    assert Pi / pi == pytest.approx([2, 2])
    assert Pi.max() / pi.min() > 3.8


def test_constants_are_plain_data() -> None:
    assert dataclasses.replace(C, sigma2=0.0).sigma2 == 0
