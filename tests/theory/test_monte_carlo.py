from __future__ import annotations

import numpy as np
import pytest

from fedalpha.theory.monte_carlo import simulate
from fedalpha.theory.problems import Quadratics, quadratics


def test_one_round_by_hand() -> None:
    """Two clients ½(w∓1)², two local steps of 1/10 from 0, FedAvg and a skewed rule."""
    two = Quadratics(np.ones((2, 1, 1)), np.array([[1.0], [-1.0]]), np.zeros(2), np.array([0.5]))
    run = simulate(two, "FedBetter", E=2, rounds=1, step=lambda t: np.full(np.shape(t), 0.1))
    assert run.alpha[0, 0].tolist() == [1, 0]
    path = [0.5, 0.55, 0.595]  # the first client's own steps
    assert np.sqrt(run.distance[:, 0]) == pytest.approx(path)
    assert run.disc[:, 0] == pytest.approx([0, 0])
    assert run.excess[:, 0] == pytest.approx([0.5 * (1 - w) ** 2 for w in path[:2]])
    assert run.excess_star[:, 0] == pytest.approx([0.5, 0.5])
    assert run.gap[:, 0] == pytest.approx([0.5 * w**2 for w in path])
    average = simulate(two, "FedAvg", E=2, rounds=1, step=lambda t: np.full(np.shape(t), 0.1))
    assert np.sqrt(average.distance[:, 0]) == pytest.approx([0.5, 0.45, 0.405])
    assert average.disc[1, 0] == pytest.approx(0.1**2)


def test_virtual_sequence_takes_gradient_steps() -> None:
    """w_{t+1} = w_t − η Σ alpha_i g_i at *every* t, which the proofs need."""
    problem = quadratics(sigma=0)
    run = simulate(problem, "FedSoftWorse(T=1)", E=1, rounds=20)
    for r in range(20):
        w = run.w[r, 0]
        step = run.eta[r] * run.alpha[r, 0] @ problem.gradients_at(w)
        assert run.w[r + 1, 0] == pytest.approx(w - step)


def test_strategies_of_one_seed_see_the_same_noise() -> None:
    problem = quadratics(sigma=1)
    first = simulate(problem, "FedAvg", rounds=3, replicas=5)
    same = simulate(problem, "mix(FedAvg, FedAvg)", rounds=3, replicas=5)
    other = simulate(problem, "FedAvg", rounds=3, replicas=5, seed=1)
    assert first.distance == pytest.approx(same.distance)
    assert not np.allclose(first.distance[1:], other.distance[1:])
    assert first.distance[-1].std() > 0


def test_fedavg_has_rho_one_along_every_path() -> None:
    for sigma, E in ((0.0, 1), (1.0, 4)):
        run = simulate(quadratics(sigma=sigma), "FedAvg", E=E, rounds=50, replicas=8)
        assert np.abs(run.rho - 1).max() < 1e-12
        assert run.X_star == pytest.approx(np.full(50 * E, run.problem.constants.Gamma))


def test_partial_participation_weighs_the_cohort_only() -> None:
    run = simulate(quadratics(n=10), "FedAvg", rounds=50, replicas=20, fraction=0.3)
    assert ((run.alpha > 0).sum(-1) == 3).all()
    assert run.alpha.sum(-1) == pytest.approx(np.ones((50, 20)))
    assert (run.alpha > 0).mean((0, 1)) == pytest.approx(np.full(10, 0.3), abs=0.08)


def test_unequal_work_stops_clients_early() -> None:
    problem = quadratics(n=3, sigma=0)
    run = simulate(problem, "per_step(FedAvg)", E=3, rounds=1, work=[1, 2, 3])
    assert run.alpha[0, 0] * [1, 2, 3] / (run.alpha[0, 0] @ [1, 2, 3]) == pytest.approx(problem.p)
    with pytest.raises(ValueError, match="between 0 and E"):
        simulate(problem, "FedAvg", E=3, rounds=1, work=[1, 2, 4])
