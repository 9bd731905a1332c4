from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fedalpha.strategies import weights
from fedalpha.theory.checks import compare, statements
from fedalpha.theory.monte_carlo import simulate
from fedalpha.theory.one_step import lemma2_rhs, noise_constant, one_step_rhs
from fedalpha.theory.problems import Quadratics, quadratics

C = quadratics().constants


def test_constants_by_hand() -> None:
    G2, L, s2, Gamma = C.G2, C.L, C.sigma2, C.Gamma
    assert noise_constant(C, 3, 2.0, variant="paper") == pytest.approx(288 * G2 + 12 * L * Gamma + s2)
    assert noise_constant(C, 3, 2.0, s2=0.5) == pytest.approx(32 * G2 + 24 * G2 + 12 * L * Gamma + s2 / 2)
    assert noise_constant(C, 3, 2.0, s2=0.5, over="all") == pytest.approx(32 * G2 + 12 * L * Gamma + s2 / 2)
    assert lemma2_rhs(C, [0.2, 0.1, 0.1, 0.1], 2) == pytest.approx(np.array([0, 0.04, 0, 0.01]) * G2)


@pytest.mark.parametrize("E", [1, 2, 5, 20])
def test_printed_constant_covers_the_corrected_one_up_to_6E_plus_9(E: int) -> None:  # noqa: N802
    for rho in np.linspace(0, 6 * E + 9, 50):
        assert noise_constant(C, E, rho) <= noise_constant(C, E, rho, variant="paper")


def test_printed_constant_fails_the_proof_beyond() -> None:
    assert noise_constant(C, 5, 6 * 5 + 13) > noise_constant(C, 5, 6 * 5 + 13, variant="paper")


def test_weights_inside_a_round_counterexample() -> None:
    """Erratum 3: with alpha = p *inside* the round and FedBetter at its end, Theorem 1 as printed is false."""
    two = Quadratics(np.ones((2, 1, 1)), np.array([[1.0], [-1.0]]), np.zeros(2), np.array([0.9]))
    c, eta, E = two.constants, 1e-4, 10
    local = np.array([0.9, 0.9])
    gradients = []
    for _ in range(E - 1):
        gradients.append(local - [1, -1])
        local = local - eta * gradients[-1]
    before = local.mean()  # w_t with alpha = p inside the round
    gradients.append(local - [1, -1])
    local = local - eta * gradients[-1]
    alpha = weights("FedBetter", losses=two.at(np.array([0.9])))
    after = float(alpha @ local)
    G2 = float(np.square(gradients).max())
    c = dataclasses.replace(c, G2=G2)
    x, x_star = two.excess(np.array([0.9])), two.excess(c.w_star)
    rho, X = float(alpha @ x / (c.p @ x)), float(alpha @ x_star)
    bound = float(one_step_rhs(c, eta, before**2, variant="paper", E=E, rho_bar=rho, X_star=X))
    assert after**2 > bound + 1e-3  # a violation by more than 1e-3, with exact arithmetic and no noise
    # With alpha fixed for the round, as in the corrected framework, all is well:
    run = simulate(two, "FedBetter", E=E, rounds=3, step=lambda t: np.full(np.shape(t), eta))
    assert sum(check.violations for check in compare(run, statements(run))) == 0


def test_exact_step_is_tight() -> None:
    """One client, F = ½w², no noise, at tiny steps: bound/actual → 1."""
    one = Quadratics(np.ones((1, 1, 1)), np.zeros((1, 1)), np.zeros(1), np.ones(1))
    run = simulate(one, "FedAvg", rounds=5, step=lambda t: np.full(np.shape(t), 1e-4))
    exact = one_step_rhs(
        one.constants, run.eta, run.distance[:-1, 0], variant="exact", excess=run.excess[:, 0], X_star=0.0
    )
    assert (run.distance[1:, 0] <= exact).all()
    assert exact / run.distance[1:, 0] == pytest.approx(np.ones(5), abs=1e-6)
    with pytest.raises(ValueError, match="exact variant needs excess"):
        one_step_rhs(one.constants, 0.1, 1.0, variant="exact")
