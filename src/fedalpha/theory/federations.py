"""The problems as federations for `fedalpha.run`, with its engines, strategies and selections. Needs torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedalpha.data.federations import Examples, Pooled
from fedalpha.strategies import Array
from fedalpha.task import Task
from fedalpha.theory.problems import PROBLEMS, Problem, Quadratics, Ridge, Softmax


def federation(problem: str | Problem) -> tuple[Pooled, nn.Module]:
    """A federation and a model for which client i's loss is the problem's F_i, in float64.

    The model has one parameter, the vector ``w``, and starts at w0; the sizes are in proportion to p, the
    optima are the F_i*, and the test loss is F(w). Ridge and softmax regression hold the clients' data (the penalty
    is part of the loss, so no weight decay is needed); a quadratic client is one sample, (A_i, c_i, b_i).
    The noise is that of mini-batches. `Quadratics.sigma` is used only by `simulate`, so quadratics have
    no noise in this federation.

    >>> import fedalpha
    >>> clients, model = federation("quadratics(seed=1)")
    >>> history = fedalpha.run(clients, model, "FedAvg", rounds=80, update="sgd(lr=0.3)")
    >>> w_star = PROBLEMS.parse("quadratics(seed=1)").constants.w_star
    >>> bool(np.abs(history.model["w"].numpy() - w_star).max() < 1e-6)
    True
    """
    problem = PROBLEMS.parse(problem)
    model: nn.Module
    if isinstance(problem, Softmax):
        model = SoftmaxRegression(problem.w0, problem.penalty, problem.classes)
        data, owner = _pool(problem.features, problem.labels)
        task = Task(_penalised_entropy, _classified)
        made = Pooled(data, _offsets(owner), data, classes=problem.classes, test_owner=owner, **_about(problem))
    elif isinstance(problem, Ridge) and problem.features:
        model = RidgeRegression(problem.w0, problem.penalty)
        data, owner = _pool(problem.features, problem.targets)
        task = Task(_penalised_squares, None)
        made = Pooled(data, _offsets(owner), data, classes=1, **_about(problem))
    elif isinstance(problem, Quadratics):
        c = problem.constants
        mean = np.einsum("n,nij->ij", problem.p, problem.A)
        model = Quadratic(problem.w0)
        data = _samples(problem.A, problem.c, problem.b)
        task = Task(_mean, None, signed=bool((problem.b < 0).any()))
        made = Weighted(
            problem.p,
            data,
            np.arange(problem.n + 1),
            _samples(mean[None], c.w_star[None], np.array([c.F_star])),  # F itself is a quadratic
            classes=1,
            **_about(problem),
        )
    else:
        raise TypeError(
            f"{type(problem).__name__} has no federation; there is one for Quadratics, Ridge and Softmax problems"
        )
    return made.with_task(task), model


class Weighted(Pooled):
    """A federation with given sizes, so that p need not be a ratio of small sample counts."""

    def __init__(self, p: Array, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.p = p

    def sizes(self, ids: NDArray[np.int64]) -> Array:
        return self.p[ids]


class Quadratic(nn.Module):
    """½(w − c)'A(w − c) + b for samples [A | c | b, …] of shape (d, d + 2)."""

    def __init__(self, w0: Array) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(w0, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        d = len(self.w)
        away = self.w - x[:, :, d]
        product = (x[:, :, :d] @ away.unsqueeze(-1)).squeeze(-1)
        return (away * product).sum(-1) / 2 + x[:, 0, d + 1]


class RidgeRegression(nn.Module):
    """The prediction x·w, and (λ/2)‖w‖² in a last column."""

    def __init__(self, w0: Array, penalty: float) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(w0, dtype=torch.float64))
        self.penalty = penalty

    def forward(self, x: Tensor) -> Tensor:
        outputs = self.linear(x)
        penalty = self.penalty / 2 * self.w.square().sum()
        return torch.cat([outputs, penalty.expand(len(x), 1)], dim=1)

    def linear(self, x: Tensor) -> Tensor:
        return (x @ self.w).unsqueeze(1)


class SoftmaxRegression(RidgeRegression):
    """A logit per class, and (λ/2)‖w‖² in a last column."""

    def __init__(self, w0: Array, penalty: float, classes: int) -> None:
        super().__init__(w0, penalty)
        self.classes = classes

    def linear(self, x: Tensor) -> Tensor:
        return x @ self.w.reshape(-1, self.classes)


def _mean(output: Tensor, target: Tensor) -> Tensor:
    return output.mean()


def _penalised_squares(output: Tensor, target: Tensor) -> Tensor:
    return ((output[:, 0] - target).square() / 2 + output[:, 1]).mean()


def _penalised_entropy(output: Tensor, target: Tensor) -> Tensor:
    return cross_entropy(output[:, :-1], target) + output[:, -1].mean()


def _classified(output: Tensor, target: Tensor) -> Tensor:
    return (output[:, :-1].argmax(dim=1) == target).to(torch.float64)


def _samples(A: Array, c: Array, b: Array) -> Examples:
    last = np.broadcast_to(b[:, None], c.shape)
    return Examples(torch.from_numpy(np.dstack([A, c, last])), torch.zeros(len(b), dtype=torch.float64))


def _pool(features: tuple[Array, ...], targets: tuple[NDArray[Any], ...]) -> tuple[Examples, NDArray[np.int64]]:
    """All samples in client order, and the client of each."""
    x, y = (torch.from_numpy(np.concatenate(parts)) for parts in (features, targets))
    return Examples(x, y), np.repeat(np.arange(len(targets)), [len(t) for t in targets])


def _offsets(owner: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(np.bincount(owner))])


def _about(problem: Problem) -> dict[str, Any]:
    """The optima, and the problem's name."""
    return {"optima": problem.constants.Fi_star, "description": {"problem": type(problem).__name__.lower()}}
