"""SCAFFOLD: by hand, and free of client drift where FedAvg is not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import fedalpha
from fedalpha.analysis.history import History
from fedalpha.data import Generated, Pooled
from fedalpha.task import Task
from fedalpha.theory.federations import federation
from fedalpha.theory.problems import quadratics
from histories import same_model, without_times

DATA = {0: (1.0, 1.0), 1: (3.0, -3.0)}  # F_0 = (w − 1)², F_1 = 9(w + 1)²: the mean is least at w = −0.8


class Scalar(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w * x


def quadratic(sizes: tuple[int, int] = (1, 1)) -> Generated:
    def client(id: int) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = DATA[id]
        return torch.full((sizes[id], 1), x), torch.full((sizes[id], 1), y)

    test = (torch.ones(1, 1), torch.ones(1, 1))
    return Generated(2, client, lambda ids: np.array(sizes)[ids], test, classes=1)


def run(update: str, rounds: int, strategy: str = "FedAvg(prior=uniform)", **more: object) -> History:
    data = more.pop("data", quadratic())
    task = Task(loss=nn.functional.mse_loss, correct=None)
    return fedalpha.run(
        data.with_task(task), Scalar, strategy, rounds=rounds, update=update, engine="embedded(workers=1)", **more
    )  # type: ignore[arg-type]


def test_one_round_and_the_next_by_hand() -> None:
    """lr = 0.05, K = 2 full-batch steps from w = 0; then once more with the control variates."""

    def gradient(client: int, w: float) -> float:
        x, y = DATA[client]
        return 2 * x * (x * w - y)

    w, common, own = 0.0, 0.0, [0.0, 0.0]
    for _ in range(3):
        ends, new = [], []
        for client in (0, 1):
            y = w
            for _ in range(2):
                y -= 0.05 * (gradient(client, y) - own[client] + common)
            ends.append(y)
            new.append(own[client] - common + (w - y) / (2 * 0.05))
        w, common, own = sum(ends) / 2, common + sum(n - o for n, o in zip(new, own, strict=True)) / 2, new
    found = run("scaffold(lr=0.05, batch=none, steps=2)", rounds=3)
    assert found.model["w"].item() == pytest.approx(w, abs=1e-6)  # the data are float32


def test_it_removes_the_drift_that_biases_fedavg() -> None:
    fedavg = run("sgd(lr=0.02, batch=none, steps=10)", rounds=60).model["w"].item()
    assert abs(fedavg + 0.8) > 0.05  # drift: the flat client's optimum weighs too much
    found = run("scaffold(lr=0.02, batch=none, steps=10)", rounds=60).model["w"].item()
    assert found == pytest.approx(-0.8, abs=1e-5)


def test_prior_size_has_the_size_weighted_optimum() -> None:
    """Sizes 3 and 1: 3(w − 1) + 9(w + 1) = 0 at w = −0.5."""
    data = quadratic((3, 1))
    found = run("scaffold(lr=0.02, batch=none, steps=10, prior=size)", 80, "FedAvg", data=data).model["w"].item()
    assert found == pytest.approx(-0.5, abs=1e-5)


def test_partial_participation_keeps_the_states_of_the_absent() -> None:
    """One client a round: FedAvg jumps between the two optima, SCAFFOLD stays near the common one."""

    def error(update: str) -> float:
        losses = run(update, rounds=120, select="uniform(count=1)").loss[-60:]  # the test loss is (w − 1)²
        return float(np.sqrt(np.mean((1 - np.sqrt(losses) + 0.8) ** 2)))

    assert error("scaffold(lr=0.02, batch=none, steps=5)") < 0.5 * error("sgd(lr=0.02, batch=none, steps=5)")


def test_workers_change_no_byte_and_the_variates_travel(digits: Pooled) -> None:
    runs = [
        fedalpha.run(digits, "mlp", rounds=3, update="scaffold(lr=0.1)", engine=f"embedded(workers={w})")
        for w in (1, 2, 3)
    ]
    for other in runs[1:]:
        assert same_model(other, runs[0])
        assert without_times(other) == without_times(runs[0])
    first, second = runs[0].rows[1], runs[0].rows[2]
    assert second["bytes_down"] == 2 * first["bytes_down"]
    plain = fedalpha.run(digits, "mlp", rounds=1, engine="embedded(workers=1)").rows[1]
    assert first["bytes_up"] > 1.9 * plain["bytes_up"]
    assert runs[0].accuracy[-1] > 0.5


def test_momentum_is_refused() -> None:
    with pytest.raises(ValueError, match=r"scaffold: momentum = 0\.9; the method has none"):
        fedalpha.run(quadratic(), Scalar, update="scaffold(momentum=0.9)")


@pytest.mark.parametrize("update", ["scaffold(lr=cosine(0.1, rounds=2))", "fedpage(lr=cosine(0.1, rounds=2), p=0.3)"])
def test_a_rate_that_comes_to_zero_leaves_everything_finite(update: str) -> None:
    select = "fedpage(p=0.3, C=0.5)" if update.startswith("fedpage") else "uniform"
    history = run(update, 5, select=select)
    assert not any(row.get("refused") or row.get("kept") for row in history.rows)
    assert history.loss[-1] == history.loss[-2]


def test_weights_are_the_populations_where_sizes_are_no_counts() -> None:
    """Sizes that sum to 1, with one sample each: without drift the end is the optimum of Σ p_i·F_i."""
    clients, model = federation("quadratics")
    update = "scaffold(lr=0.02, steps=5, prior=size)"
    history = fedalpha.run(clients, model, rounds=400, update=update, engine="embedded(workers=1)")
    assert history.loss[-1] == pytest.approx(quadratics().constants.F_star, abs=1e-6)
