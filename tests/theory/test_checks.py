from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fedalpha.theory.checks import checks, compare, statements, work_statement
from fedalpha.theory.monte_carlo import simulate
from fedalpha.theory.problems import Quadratics, quadratics

SAME = Quadratics(np.ones((8, 1, 1)), np.zeros((8, 1)), np.zeros(8), np.array([3.0]), sigma=0.5)
"""Eight identical clients F = ½w² whose gradients carry a noise of ±½."""


def test_losses_after_training_stall_one_noise_radius_away() -> None:
    """E[A_2] = 0 fails: FedWorse then always takes the client that noise has pushed outwards."""
    after = simulate(SAME, "FedWorse(loss=after)", rounds=500, replicas=4)
    assert np.sqrt(after.distance[-1]) == pytest.approx(np.full(4, SAME.sigma), rel=0.05)
    before = simulate(SAME, "FedWorse", rounds=500, replicas=4)
    assert np.sqrt(before.distance[-1]).mean() < 0.03


def test_checks_have_power() -> None:
    """Outside the hypotheses the same comparisons do find violations: they are not vacuous."""
    run = simulate(SAME, "FedWorse(loss=after)", rounds=80, replicas=40)
    found = {check.statement: check.violations for check in compare(run, statements(run))}
    for statement in ("exact step", "Theorem 1, corrected", "roll-out", "Polyak–Łojasiewicz step"):
        assert found[statement] > 50


def test_checks_notice_a_wrong_constant() -> None:
    problem = quadratics(sigma=0.3, condition=1.5)
    run = simulate(problem, "FedAvg", rounds=30, replicas=40)
    assert sum(c.violations for c in checks(run)) == 0
    wrong = dataclasses.replace(problem.constants, mu=3 * problem.constants.mu)
    object.__setattr__(problem, "constants", wrong)
    assert sum(c.violations for c in compare(run, statements(run))) > 0


def test_noise_needs_replicas() -> None:
    with pytest.raises(ValueError, match=r"8 replicas cannot show .* use at least"):
        checks(simulate(quadratics(sigma=1), "FedAvg", rounds=3, replicas=8))


def test_unequal_work() -> None:
    problem = quadratics(sigma=0.3)
    step = problem.constants.step(5)
    options = {"E": 5, "rounds": 60, "replicas": 24, "work": [1, 2, 3, 4, 5, 5]}
    constant = {"step": lambda t: step(np.asarray(t) // 5 * 5)}
    plain, corrected = (simulate(problem, text, **options, **constant) for text in ("FedAvg", "per_step(FedAvg)"))
    for run in (plain, corrected):
        (check,) = compare(run, [work_statement(run)])
        assert check.violations == 0
    assert corrected.gap[-1].mean() < 0.01 < 0.05 < plain.gap[-1].mean()  # alpha ∝ p_i/E_i removes the bias


def test_lemma_1_forgives_rounding_and_nothing_else() -> None:
    """In one dimension it is an equality for the steepest client: gradients of 100 leave an excess of one last bit."""
    line = Quadratics(np.array([[[3.3]], [[1.0]]]), np.array([[0.1], [-0.7]]), np.array([0.3, 0.9]), np.array([31.7]))
    run = simulate(line, "FedAvg", E=5, rounds=20)
    assert abs(run.lemma1) < 1e-12
    assert sum(c.violations for c in checks(run)) == 0
    object.__setattr__(line, "constants", dataclasses.replace(line.constants, L=3.3 * (1 - 1e-6)))
    assert simulate(line, "FedAvg", E=5, rounds=20).lemma1 > 1e-8


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("switch(FedWorse, FedAvg, at=3)", True),
        ("switch(FedAvg, anneal(FedWorse, FedAvg, rounds=1000), at=1)", False),
        ("switch(FedAvg, fade(FedWorse), at=3)", False),
    ],
)
def test_only_a_switch_to_fedavg_itself_is_one(text: str, stated: bool) -> None:
    run = simulate(quadratics(sigma=0), text, rounds=10)
    assert ("switch to FedAvg" in {check.statement for check in checks(run)}) is stated
