from __future__ import annotations

import numpy as np
import pytest

from fedalpha.theory.monte_carlo import simulate
from fedalpha.theory.problems import PROBLEMS, Problem, Quadratics, ridge, softmax_regression

TEXTS = [text for entry in PROBLEMS for text in entry.examples]


@pytest.fixture(params=TEXTS)
def problem(request: pytest.FixtureRequest) -> Problem:
    return PROBLEMS.parse(request.param)


def test_gradients_are_derivatives(problem: Problem) -> None:
    random = np.random.default_rng(0)
    w = random.standard_normal((problem.n, len(problem.w0)))
    direction = random.standard_normal(w.shape)
    h = 1e-5
    slope = (problem.losses(w + h * direction) - problem.losses(w - h * direction)) / (2 * h)
    assert slope == pytest.approx((problem.gradients(w) * direction).sum(-1), rel=1e-6, abs=1e-8)


def test_optima(problem: Problem) -> None:
    c = problem.constants
    assert np.abs(problem.gradients(problem.optima)).max() < 1e-9
    assert np.abs(problem.p @ problem.gradients_at(c.w_star)).max() < 1e-9
    assert problem.losses(problem.optima) == pytest.approx(c.Fi_star, abs=1e-12)
    assert problem.p @ problem.at(c.w_star) == pytest.approx(c.F_star, abs=1e-12)
    assert c.Gamma == pytest.approx(c.F_star - problem.p @ c.Fi_star, abs=1e-12)
    assert c.Gamma >= -1e-15


def test_curvature_lies_between_mu_and_L(problem: Problem) -> None:  # noqa: N802
    c, random = problem.constants, np.random.default_rng(1)
    for _ in range(50):
        v, w = random.standard_normal((2, problem.n, len(problem.w0))) * random.choice([0.1, 1, 5])
        rise = problem.losses(v) - problem.losses(w) - ((v - w) * problem.gradients(w)).sum(-1)
        half = np.square(v - w).sum(-1) / 2
        assert (rise <= c.L * half * (1 + 1e-9)).all()
        assert (rise >= c.mu * half * (1 - 1e-9)).all()
        common = problem.p @ (problem.at(v[0]) - problem.at(w[0]))
        common -= (v[0] - w[0]) @ (problem.p @ problem.gradients_at(w[0]))
        assert common <= c.L_F * half[0] * (1 + 1e-9)


def test_noise_is_unbiased_with_the_stated_variance(problem: Problem) -> None:
    points = np.broadcast_to(problem.w0 + 0.3, (20_000, problem.n, len(problem.w0)))
    error = problem.noisy_gradients(points, np.random.default_rng(2)) - problem.gradients(points[:1])
    variance = np.square(error).sum(-1).mean(0)
    assert (variance <= problem.constants.sigma2 * 1.03).all()
    assert np.abs(error.mean(0)).max() < 6 * np.sqrt(variance.max() / 20_000)
    if isinstance(problem, Quadratics):
        assert variance == pytest.approx(np.full(problem.n, problem.sigma**2))


def test_G2_bounds_the_gradients_of_long_runs(problem: Problem) -> None:  # noqa: N802
    run = simulate(
        problem, "FedWorse", E=5, rounds=30, replicas=4, step=lambda t: np.full(np.shape(t), 1 / problem.constants.L)
    )
    assert run.gradient2 <= problem.constants.G2


def test_problems_are_a_function_of_their_seed() -> None:
    for text in ("quadratics", "ridge", "softmax"):
        first, again, other = (PROBLEMS.parse(f"{text}(seed={s})") for s in (5, 5, 6))
        assert (first.constants.w_star == again.constants.w_star).all()
        assert not np.allclose(first.constants.w_star, other.constants.w_star)


def test_client_data_are_at_hand() -> None:
    """What an engine needs to run on them: arrays per client, and p = sizes."""
    linear, classes = ridge(seed=2), softmax_regression(seed=2)
    for problem, targets in ((linear, linear.targets), (classes, classes.labels)):
        sizes = np.array([len(x) for x in problem.features])
        assert [len(y) for y in targets] == sizes.tolist()
        assert problem.p == pytest.approx(sizes / sizes.sum())
    w = np.random.default_rng(0).standard_normal(4)
    direct = [np.square(x @ w - y).mean() / 2 for x, y in zip(linear.features, linear.targets, strict=True)]
    assert linear.at(w) == pytest.approx(np.array(direct) + linear.penalty / 2 * w @ w)


def test_spread_zero_means_no_heterogeneity() -> None:
    c = PROBLEMS.parse("quadratics(spread=0, seed=4)").constants
    assert c.Gamma == 0
    assert PROBLEMS.parse("ridge(spread=0)").constants.Gamma > 0  # finite data from one law still differ
