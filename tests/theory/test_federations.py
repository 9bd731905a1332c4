"""The problems as federations: the ordinary engine computes what the Monte-Carlo driver computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fedalpha
from fedalpha.analysis.history import History
from fedalpha.engine.embedded import embedded
from fedalpha.models import initial
from fedalpha.rng import generator
from fedalpha.theory import PROBLEMS, Problem, Quadratics, federation, simulate
from fedalpha.update import Broadcast, sgd

NOISE_FREE = ("quadratics(seed=2, sigma=0)", "ridge(seed=2, sigma=0)", "softmax(seed=2, batch=0)")


def trained(text: str, strategy: str, *, lr: float, rounds: int, **options: object) -> History:
    clients, model = federation(text)
    update = sgd(lr=lr, batch=None, steps=options.pop("steps", 1))  # type: ignore[arg-type]
    return fedalpha.run(clients, model, strategy, rounds=rounds, update=update, engine="embedded(workers=1)", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", NOISE_FREE)
def test_the_losses_of_the_engine_are_the_problems(text: str) -> None:
    problem = PROBLEMS.parse(text)
    clients, model = federation(problem)
    architecture, parameters = initial(model, clients.shape, clients.classes, 0)
    assert parameters["w"].numpy() == pytest.approx(problem.w0, abs=0)
    everyone = np.arange(problem.n)
    engine = embedded(workers=1).start(clients, clients.task, sgd(), 0)
    try:
        for k in range(3):
            w = problem.w0 + k * generator(k, "point").standard_normal(len(problem.w0))
            parameters["w"].copy_(parameters["w"].new_tensor(w))
            broadcast = Broadcast(architecture, parameters)
            assert engine.losses(broadcast, everyone) == pytest.approx(problem.at(w), rel=1e-10, abs=1e-10)
            F = float(problem.p @ problem.at(w))
            assert engine.evaluate(broadcast, "test").loss == pytest.approx(F, rel=1e-10, abs=1e-10)
    finally:
        engine.close()
    sizes, optima = clients.sizes(everyone), clients.optima(everyone)
    assert sizes / sizes.sum() == pytest.approx(problem.p, rel=1e-14)
    assert optima == pytest.approx(problem.constants.Fi_star, abs=0)


@pytest.mark.parametrize("text", NOISE_FREE)
@pytest.mark.parametrize("strategy", ["FedAvg", "FedSoftWorse(T=0.5)", "FedWorse(k=2)"])
@pytest.mark.parametrize(("E", "rounds"), [(1, 1), (4, 3)])
def test_a_run_of_the_engine_is_a_path_of_the_driver(text: str, strategy: str, E: int, rounds: int) -> None:
    problem = PROBLEMS.parse(text)
    lr = 1 / (4 * problem.constants.L)
    history = trained(text, strategy, lr=lr, rounds=rounds, steps=E)
    path = simulate(problem, strategy, E=E, rounds=rounds, step=lambda t: np.full(np.shape(t), lr))
    assert np.abs(path.w[-1, 0] - problem.w0).max() > 1e-3
    assert history.model["w"].numpy() == pytest.approx(path.w[-1, 0], rel=1e-10, abs=1e-10)
    for r, row in enumerate(history.rows):
        assert row["loss"] == pytest.approx(path.gap[r * E, 0] + problem.constants.F_star, rel=1e-10)
        if r:
            assert row["alpha"] == pytest.approx(path.alpha[r - 1, 0], abs=1e-10)
            assert row["rho"] == pytest.approx(path.rho[(r - 1) * E], rel=1e-9)


@pytest.mark.parametrize("text", NOISE_FREE)
def test_a_short_run_reaches_the_optimum(text: str) -> None:
    c = PROBLEMS.parse(text).constants
    history = trained(text, "FedAvg", lr=1 / c.L_F, rounds=150)
    assert np.abs(history.model["w"].numpy() - c.w_star).max() < 1e-6
    assert history.rows[-1]["loss"] == pytest.approx(c.F_star, rel=1e-10)


def test_selection_mini_batches_workers_and_folders_are_the_ordinary_ones(tmp_path: Path) -> None:
    clients, model = federation("softmax(seed=2, n=8)")
    options = {"rounds": 3, "update": "sgd(lr=0.1, batch=4)", "select": "power_of_choice(count=3)"}
    one = fedalpha.run(clients, model, "FedSoftWorse(T=0.5)", engine="embedded(workers=1)", **options)  # type: ignore[arg-type]
    two = fedalpha.run(
        clients, model, "FedSoftWorse(T=0.5)", engine="embedded(workers=2)", out=tmp_path / "run", **options
    )  # type: ignore[arg-type]
    assert one.model["w"].numpy().tobytes() == two.model["w"].numpy().tobytes()
    assert [len(row["cohort"]) for row in one.rows[1:]] == [3, 3, 3]
    assert 0 < one.rows[-1]["accuracy"] <= 1
    assert len(one.rows[-1]["client_accuracy"]) == 8


def test_negative_losses_are_allowed_where_the_problem_has_them() -> None:
    low = Quadratics(np.ones((2, 1, 1)), np.array([[1.0], [-1.0]]), np.array([-5.0, 0.0]), np.array([0.9]))
    clients, model = federation(low)
    row = fedalpha.run(clients, model, "FedWorse", rounds=1, engine="embedded(workers=1)").rows[1]
    assert row["losses"]["before"] == pytest.approx(low.at(low.w0).tolist())
    assert row["refused"] == []
    assert row["alpha"] == [0.0, 1.0]


def test_an_unknown_kind_of_problem_is_told() -> None:
    class Strange(Problem):
        losses = gradients = noisy_gradients = None  # type: ignore[assignment]

    with pytest.raises(TypeError, match="Strange has no federation"):
        federation(Strange())
