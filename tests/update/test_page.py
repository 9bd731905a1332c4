"""PAGE: equal to its definition, and cheaper than SGD to a given accuracy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import fedalpha
from fedalpha.analysis.history import History
from fedalpha.data import Generated, Pooled
from fedalpha.rng import Draws
from fedalpha.task import Task
from histories import same_model

SAMPLES = 60


def regression() -> Generated:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(SAMPLES, 5)).astype(np.float32)
    y = (x @ rng.normal(size=5) + rng.normal(size=SAMPLES)).astype(np.float32)[:, None]  # noise: no exact fit
    return Generated(1, lambda _: (x, y), lambda ids: np.full(len(ids), SAMPLES), (x, y), classes=1)


class Counting:
    """The mean squared error; counts samples whose gradient is taken."""

    def __init__(self) -> None:
        self.samples = 0

    def __call__(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        if torch.is_grad_enabled():
            self.samples += len(target)
        return nn.functional.mse_loss(output, target)


def cost(update: str, accuracy: float, best: float, rounds: int = 40) -> float:
    """Gradient evaluations until the loss stays within ``accuracy`` of the best, infinite if it does not."""
    count, costs = Counting(), []

    class Watch(fedalpha.runs.callbacks.Callback):
        def on_round(self, row: dict, state: object) -> None:  # type: ignore[type-arg]
            costs.append(count.samples)

    task = Task(loss=count, correct=None)
    history = fedalpha.run(
        regression().with_task(task),
        "softmax",
        rounds=rounds,
        update=update,
        engine="embedded(workers=1)",
        callbacks=[Watch()],
    )
    above = np.flatnonzero(history.loss - best > accuracy)
    return float("inf") if len(above) and above[-1] == rounds else costs[above[-1] + 1]


def optimum() -> float:
    data = regression().test
    design = np.hstack([data.x.double().numpy(), np.ones((SAMPLES, 1))])
    _, residual, *_ = np.linalg.lstsq(design, data.y.double().numpy(), rcond=None)
    return float(residual[0]) / SAMPLES


def test_fewer_gradient_evaluations_than_sgd_on_a_strongly_convex_problem() -> None:
    best = optimum()
    page = cost("page(lr=0.05, batch=4, steps=15)", 1e-5, best)
    rates = [0.1, 0.03, 0.01, 0.003]
    sgd = min(cost(f"sgd(lr={rate}, batch=4, steps=30)", 1e-5, best, rounds=80) for rate in rates)
    assert page < 100 * SAMPLES
    assert page < sgd


def test_chance_one_is_gradient_descent(digits: Pooled) -> None:
    page = fedalpha.run(
        digits, "softmax", rounds=2, update="page(lr=0.2, batch=20, steps=5, p=1)", engine="embedded(workers=1)"
    )
    plain = fedalpha.run(
        digits, "softmax", rounds=2, update="sgd(lr=0.2, batch=none, steps=5)", engine="embedded(workers=1)"
    )
    for name, value in plain.model.items():
        torch.testing.assert_close(page.model[name], value, rtol=1e-4, atol=1e-6)


def test_by_hand(digits: Pooled) -> None:
    """Softmax regression on one client, the estimator written out."""
    data = digits.client(2)
    alone = Generated(1, lambda _: data, lambda ids: np.array([len(data)]), digits.test, classes=10)
    history: History = fedalpha.run(
        alone,
        "softmax",
        rounds=1,
        update="page(lr=0.3, batch=16, steps=6, p=0.3)",
        engine="embedded(workers=1)",
        seed=4,
    )
    start = fedalpha.run(alone, "softmax", rounds=0, engine="embedded(workers=1)", seed=4).model
    w, b = start["output.weight"].clone(), start["output.bias"].clone()
    x, y = data.x.flatten(1), data.y

    def gradient(w: torch.Tensor, b: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        error = torch.softmax(x[rows] @ w.T + b, dim=1) - nn.functional.one_hot(y[rows], 10)
        return error.T @ x[rows] / len(rows), error.mean(dim=0)

    draws = Draws(4, 0, 0)
    rng, coin, everything = draws("batches"), draws("page"), torch.arange(len(data))
    order: list[torch.Tensor] = []
    while len(order) < 6:
        order += torch.from_numpy(rng.permutation(len(data))).split(16)
    g = gradient(w, b, everything)
    old = (w, b)
    w, b = w - 0.3 * g[0], b - 0.3 * g[1]
    for rows in order[1:6]:
        if coin.random() < 0.3:
            g = gradient(w, b, everything)
        else:
            here, there = gradient(w, b, rows), gradient(*old, rows)
            g = (g[0] + here[0] - there[0], g[1] + here[1] - there[1])
        old = (w, b)
        w, b = w - 0.3 * g[0], b - 0.3 * g[1]
    torch.testing.assert_close(history.model["output.weight"], w, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(history.model["output.bias"], b, rtol=1e-4, atol=1e-5)


def test_workers_change_no_byte(digits: Pooled) -> None:
    runs = [
        fedalpha.run(digits, "mlp", rounds=2, update="page(lr=0.1)", engine=f"embedded(workers={w})") for w in (1, 2)
    ]
    assert same_model(*runs)


@pytest.mark.parametrize("text", ["page(p=0)", "page(p=1.5)", "page(momentum=0.5)"])
def test_bad_arguments_are_refused(text: str, digits: Pooled) -> None:
    with pytest.raises(ValueError, match="page: "):
        fedalpha.run(digits, "softmax", update=text)
