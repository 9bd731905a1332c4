from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from fedalpha.theory.fixed_points import fixed_point
from fedalpha.theory.monte_carlo import simulate
from fedalpha.theory.problems import Quadratics, quadratics, softmax_regression

LINE = Quadratics(
    A=np.array([1.0, 2.0, 0.5, 3.0])[:, None, None],
    c=np.array([[0.0], [1.0], [-2.0], [2.5]]),
    b=np.array([0.0, 1.0, 2.0, 3.0]),
    w0=np.array([0.7]),
    p=np.array([0.1, 0.2, 0.3, 0.4]),
)
RISKS = {
    "FedAvg": lambda x, p: p @ x,
    "FedWorse": lambda x, p: x.max(),
    "FedSoftWorse(T=0)": lambda x, p: x.max(),
    "FedWorse(k=2)": lambda x, p: np.sort(x)[-2:].mean(),
    "FedWorse(k=0.75)": lambda x, p: np.sort(x)[-3:].mean(),
    "FedSoftWorse(T=0.5)": lambda x, p: 0.5 * np.log(p @ np.exp(x / 0.5)),
    "FedSoftWorse(T=2, prior=uniform)": lambda x, p: 2 * np.log(np.exp(x / 2).mean()),
    "mix(FedWorse, FedAvg, FedSoftWorse(T=1), shares=[0.2, 0.5, 0.3])": lambda x, p: (
        0.2 * x.max() + 0.5 * p @ x + 0.3 * np.log(p @ np.exp(x))
    ),
    "floor(FedWorse(k=2), 0.3)": lambda x, p: 0.7 * np.sort(x)[-2:].mean() + 0.3 * p @ x,
    "switch(FedBetter, FedWorse, at=5)": lambda x, p: x.max(),
    "anneal(FedWorse, FedAvg, rounds=5)": lambda x, p: p @ x,
    "anneal(FedSoftWorse(T=0.5), T=2, rounds=5)": lambda x, p: 2 * np.log(p @ np.exp(x / 2)),
    "fade(FedWorse)": lambda x, p: p @ x,
    "cool(FedSoftBetter(T=0.1))": lambda x, p: p @ x,
    "cool(FedSoftWorse(T=0.2, prior=uniform))": lambda x, p: x.mean(),
}


@pytest.mark.parametrize("text", RISKS)
def test_against_brute_force_in_one_dimension(text: str) -> None:
    found = fixed_point(LINE, text).points
    brute = minimize_scalar(
        lambda w: RISKS[text](LINE.excess(np.array([w])), LINE.p),
        bounds=(-3, 3),
        method="bounded",
        options={"xatol": 1e-10},
    )
    assert found[0, 0] == pytest.approx(brute.x, abs=1e-5)


@pytest.mark.parametrize(
    "text",
    [
        "FedAvg",
        "FedWorse",
        "FedWorse(k=3)",
        "FedSoftWorse(T=0.5)",
        "mix(FedWorse, FedAvg)",
        "FedBetter",
        "switch(FedBetter, FedAvg, at=20)",
        "fade(FedWorse)",
        "cool(FedSoftBetter(T=0))",
    ],
)
def test_runs_end_there(text: str) -> None:
    """After 700 steps with noise, E‖w − fixed point‖² < 1e-3, from a start at a squared distance of 9."""
    problem = quadratics(sigma=1)
    run = simulate(problem, text, rounds=700, replicas=4)
    end = fixed_point(problem, text)
    assert end.distance(run.w[-1]).mean() < 1e-3
    if end.law != "the optimum w*":
        assert run.distance[-1].mean() > 0.1  # and that is not where F is least


def test_softmax_regression_ends_there_too() -> None:
    problem = softmax_regression(batch=0)
    for text in ("FedWorse", "FedSoftWorse(T=0.2)"):
        run = simulate(problem, text, rounds=600)
        assert fixed_point(problem, text).distance(run.w[-1, 0]) < 5e-3


def test_minimax_point_balances_the_largest_regrets() -> None:
    problem = quadratics(seed=3, n=8, d=2)
    x = np.sort(problem.excess(fixed_point(problem, "FedWorse").points[0]))
    assert x[-1] == pytest.approx(x[-2], rel=1e-6)


def test_rules_without_a_law_say_so() -> None:
    for text in ("FedSoftBetter(T=0.5)", "FedBetter(k=2)", "temper(FedSoftWorse(T=0), 0.5)", "cap(FedWorse, 0.5)"):
        with pytest.raises(ValueError, match="is not known"):
            fixed_point(LINE, text)
    assert fixed_point(LINE, "FedBetter").points.shape == (4, 1)


@pytest.mark.parametrize(
    "text", ["FedWorse(optima=estimated)", "FedBetter(optima=estimated)", "mix(FedSoftWorse(optima=estimated), FedAvg)"]
)
def test_estimated_optima_have_no_law(text: str) -> None:
    with pytest.raises(ValueError, match=r"limit of .* is not known"):
        fixed_point(LINE, text)
