"""Fair rules by hand and against other solvers, and what they are for."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize

import fedalpha
from fedalpha.data import Pooled
from fedalpha.strategies import AFL, STRATEGIES, Cohort, FedAvg, FedSoftWorse, strategy
from fedalpha.strategies.fair import onto_box, onto_simplex, smallest_in_hull


def test_q_fedavg_equals_the_reference_written_out() -> None:
    """w − ΣΔ/Σh with Δ_k = F_k^q·(w − w_k)/lr, h_k = q·F_k^(q−1)·‖(w − w_k)/lr‖² + F_k^q/lr."""
    rng = np.random.default_rng(0)
    for q, lr in ((0.5, 0.1), (1, 0.05), (5, 1.0)):
        w, models, losses = rng.normal(size=4), rng.normal(size=(3, 4)), rng.uniform(0.1, 3, size=3)
        gradients = (w - models) / lr
        deltas = losses[:, None] ** q * gradients
        h = q * losses ** (q - 1) * (gradients**2).sum(axis=1) + losses**q / lr
        expected = w - deltas.sum(axis=0) / h.sum()
        norms = np.linalg.norm(models - w, axis=1)
        alpha = fedalpha.weights(f"qFedAvg(q={q}, lr={lr})", losses, norms=norms)
        np.testing.assert_allclose(w + alpha @ (models - w), expected, rtol=1e-7)


def test_q_zero_is_the_uniform_mean() -> None:
    np.testing.assert_allclose(fedalpha.weights("qFedAvg(q=0)", [1, 2, 3], [5, 1, 1], norms=[1, 2, 3]), 1 / 3)


def test_q_fedavg_uses_the_loss_of_the_received_model(digits: Pooled) -> None:
    row = fedalpha.run(digits, "softmax", "qFedAvg(q=2)", rounds=1, workers=1).rows[1]
    ratios = np.array(row["alpha"]) / np.array(row["losses"]["before"]) ** 2
    np.testing.assert_allclose(ratios, ratios[0], rtol=1e-6)


def test_q_fedavg_evens_out_the_losses(digits: Pooled) -> None:
    def spread(text: str) -> float:
        losses = fedalpha.run(digits, "softmax", f"switch({text}, FedSoftWorse, at=29)", rounds=30, workers=1).rows[-1]
        return float(np.std(losses["losses"]["before"]))

    assert spread("qFedAvg(q=3)") < spread("FedAvg")


def test_afl_by_hand() -> None:
    """γ = 1, equal sizes, losses (1, 0.5, 0): λ = p, then Proj(p + F) = (3/4, 1/4, 0), for which θ = 7/12."""
    cohort = Cohort(ids=[4, 2, 9], sizes=[1, 1, 1], before=[1.0, 0.5, 0.0])
    rule = AFL(gamma=1)
    first, state = rule.weights(rule.init(), cohort)
    np.testing.assert_allclose(first, 1 / 3)
    second, state = rule.weights(state, cohort)
    np.testing.assert_allclose(second, [0.75, 0.25, 0], atol=1e-15)
    third, _ = rule.weights(state, cohort)  # Proj(1.75, 0.75, 0)
    np.testing.assert_allclose(third, [1, 0, 0], atol=1e-15)
    pair = Cohort(ids=[2, 9], sizes=[1, 3], before=[0.0, 0.0])  # a cohort without any λ falls back to the prior
    np.testing.assert_allclose(rule.weights(state, pair)[0], [0.25, 0.75])


def test_exponential_ascent_by_hand() -> None:
    cohort = Cohort(ids=[0, 1], sizes=[3, 1], before=[0.0, math.log(2)])
    rule = AFL(gamma=1, ascent="exponential")
    state = rule.init()
    for t in range(4):
        alpha, state = rule.weights(state, cohort)
        np.testing.assert_allclose(alpha[1] / alpha[0], 2**t / 3)


def test_afl_climbs_to_the_worst_client() -> None:
    cohort = Cohort(ids=[0, 1, 2], sizes=[1, 1, 1], before=[1.0, 2.0, 1.5])
    rule, state = AFL(gamma=0.1), AFL(gamma=0.1).init()
    for _ in range(30):
        alpha, state = rule.weights(state, cohort)
    assert alpha.tolist() == [0, 1, 0]


def test_term_is_a_name_for_the_soft_rules() -> None:
    assert strategy("TERM(t=5)") == FedSoftWorse(T=0.2)
    assert strategy("TERM(t=-0.5)") == strategy("FedSoftBetter(T=2)")
    assert strategy("TERM(t=0)") == FedAvg()


def test_superquantile_by_hand() -> None:
    """Sizes 1, 2, 3, 4 with losses 4, 3, 2, 1: masses from below are 0.4, 0.7, 0.9, 1."""
    losses, sizes = [4, 3, 2, 1], [1, 2, 3, 4]
    np.testing.assert_allclose(fedalpha.weights("Superquantile(tail=0.1)", losses, sizes), [1 / 3, 2 / 3, 0, 0])
    np.testing.assert_allclose(fedalpha.weights("Superquantile(tail=0.09)", losses, sizes), [1, 0, 0, 0])
    np.testing.assert_allclose(fedalpha.weights("Superquantile(tail=0.5)", losses, sizes), [1 / 6, 2 / 6, 3 / 6, 0])
    np.testing.assert_allclose(fedalpha.weights("Superquantile(tail=1)", losses, sizes), [0.1, 0.2, 0.3, 0.4])


@pytest.mark.parametrize("seed", range(8))
def test_the_smallest_vector_of_the_hull_agrees_with_a_general_solver(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 9))
    vectors = rng.normal(size=(n, int(rng.integers(1, 10))))
    gram, p, epsilon = vectors @ vectors.T, rng.dirichlet(np.ones(n)), float(rng.choice([0.05, 0.2, 1.0]))
    found = smallest_in_hull(gram, p, epsilon)
    other = minimize(
        lambda x: x @ gram @ x,
        p,
        jac=lambda x: 2 * gram @ x,
        bounds=list(zip(np.maximum(0, p - epsilon), np.minimum(1, p + epsilon), strict=True)),
        constraints={"type": "eq", "fun": lambda x: x.sum() - 1},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert abs(found.sum() - 1) < 1e-12
    assert (found >= np.maximum(0, p - epsilon)).all()
    assert (found <= np.minimum(1, p + epsilon)).all()
    assert found @ gram @ found <= other.fun + 1e-9


def test_fedmgda_makes_no_client_worse() -> None:
    """The common move has a non-negative product with every client's own, whatever their sizes."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        moves = rng.normal(size=(5, 8)) * rng.uniform(0.01, 100, size=(5, 1))
        alpha = fedalpha.weights("FedMGDA(epsilon=1)", np.ones(5), rng.uniform(1, 9, 5), gram=moves @ moves.T)
        assert ((alpha @ moves) @ moves.T >= -1e-6 * np.linalg.norm(moves, axis=1)).all()
    plain = fedalpha.weights("FedMGDA(epsilon=0)", np.ones(5), np.ones(5), gram=moves @ moves.T)
    np.testing.assert_allclose(plain, 0.2 / np.linalg.norm(moves, axis=1))


def test_projections_are_nearest_points() -> None:
    rng = np.random.default_rng(2)
    for _ in range(50):
        n = int(rng.integers(1, 8))
        point, p = rng.normal(size=n), rng.dirichlet(np.ones(n))
        found = onto_simplex(p, point)
        theta = (p + point - found)[found > 0]
        np.testing.assert_allclose(theta, theta[0])  # the same shift for all that are not at 0
        assert (p + point - theta[0] <= 1e-12)[found == 0].all()
        low, high = np.maximum(0, p - 0.1), np.minimum(1, p + 0.1)
        boxed = onto_box(point, low, high)
        assert abs(math.fsum(boxed) - 1) < 1e-12
        assert (boxed >= low).all()
        assert (boxed <= high).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("qFedAvg(q=-1)", "q = -1; give a number ≥ 0"),
        ("qFedAvg(lr=0)", "lr = 0; give a number > 0"),
        ("AFL(gamma=0)", "gamma = 0"),
        ("AFL(ascent=up)", "'up' is not one of projected, exponential"),
        ("TERM(t=inf)", "t = inf; give a number"),
        ("Superquantile(tail=0)", "tail = 0; give the share"),
        ("FedMGDA(epsilon=-1)", "epsilon = -1"),
        ("FedMGDA(prior=big)", "'big' is not one of size, uniform"),
    ],
)
def test_bad_arguments_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        STRATEGIES.parse(text)


def test_negative_losses_are_refused_where_powers_are_taken() -> None:
    with pytest.raises(ValueError, match="qFedAvg needs losses ≥ 0"):
        fedalpha.weights("qFedAvg(q=1)", [-1, 1], norms=[1, 1])
