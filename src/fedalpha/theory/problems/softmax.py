"""Softmax regression with an L2 penalty on Synthetic(a, b): the classification test bed.

F_i(w) = mean cross-entropy of client i + (λ/2)‖w‖². The Hessian of the softmax loss is at most
½·xx', so L = λ + ½·max λmax(X'X/n) and μ = λ; a per-sample gradient is at most √2‖x‖, which gives
σ² and G². The optima come from Newton's method and are certified: F(w) − F* ≤ ‖∇F(w)‖²/(2λ).
Reference: Li et al., Federated optimization in heterogeneous networks, 2020 (the data).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedalpha.rng import generator
from fedalpha.strategies import Array
from fedalpha.theory.constants import Constants
from fedalpha.theory.problems.base import PROBLEMS, Problem


@dataclass(frozen=True, eq=False)
class Softmax(Problem):
    """``features[i]`` is (n_i, d) (append a column of ones for a bias), ``labels[i]`` (n_i,) class numbers."""

    features: tuple[Array, ...]
    labels: tuple[NDArray[np.int64], ...]
    classes: int
    penalty: float
    batch: int
    """Samples (drawn with replacement) per stochastic gradient; 0 means the full gradient."""
    w0: Array

    @cached_property
    def sizes(self) -> Array:
        return np.array([len(y) for y in self.labels], dtype=np.float64)

    @cached_property
    def p(self) -> Array:  # type: ignore[override]
        return np.asarray(self.sizes / self.sizes.sum())

    @cached_property
    def _padded(self) -> tuple[Array, Array, Array]:
        """Features (N, s, d), one-hot labels (N, s, classes) and weights (N, s), padded to one length."""
        longest = int(self.sizes.max())
        X = np.zeros((self.n, longest, self.features[0].shape[1]))
        Y = np.zeros((self.n, longest, self.classes))
        weight = np.zeros((self.n, longest))
        for i, (x, y) in enumerate(zip(self.features, self.labels, strict=True)):
            X[i, : len(y)], weight[i, : len(y)] = x, 1 / len(y)
            Y[i, np.arange(len(y)), y] = 1
        return X, Y, weight

    def losses(self, points: Array) -> Array:
        X, Y, weight = self._padded
        logits = X @ self._matrix(points)
        entropy = _softmax(logits)[1] - (logits * Y).sum(-1)
        mean: Array = (weight * entropy).sum(-1)
        return np.asarray(mean + self.penalty / 2 * np.square(points).sum(-1))

    def gradients(self, points: Array) -> Array:
        X, Y, weight = self._padded
        error = (_softmax(X @ self._matrix(points))[0] - Y) * weight[..., None]
        return self._vector(X.transpose(0, 2, 1) @ error) + self.penalty * points

    def noisy_gradients(self, points: Array, random: np.random.Generator) -> Array:
        if self.batch == 0:
            return self.gradients(points)
        X, Y, _ = self._padded
        draw = random.random((*points.shape[:-1], self.batch))
        index = (draw * self.sizes[:, None]).astype(np.int64)
        client = np.arange(self.n)[:, None]
        x, y = X[client, index], Y[client, index]
        error = (_softmax(x @ self._matrix(points))[0] - y) / self.batch
        return self._vector(np.swapaxes(x, -1, -2) @ error) + self.penalty * points

    @cached_property
    def optima(self) -> Array:  # type: ignore[override]
        return np.stack([self._minimise(np.eye(self.n)[i]) for i in range(self.n)])

    @cached_property
    def constants(self) -> Constants:  # type: ignore[override]
        """L, L_F and μ exact; F*, F_i* to ‖∇F‖²/(2μ) ≤ 1e-20/μ; σ² and G² upper bounds."""
        second = np.stack([x.T @ x / len(x) for x in self.features])
        norms2 = [np.square(x).sum(-1) for x in self.features]
        w_star = self._minimise(self.p)
        Fi_star = self.losses(self.optima)
        F_star = float(self.p @ self.at(w_star))
        # ‖w⁺‖ ≤ (1 − ηλ)‖w‖ + η·√2·max‖x‖ keeps every iterate within this radius.
        largest = float(np.sqrt(2 * max(v.max() for v in norms2)))
        radius = max(float(np.linalg.norm(self.w0)), largest / self.penalty)
        return Constants(
            p=self.p,
            L=self.penalty + 0.5 * float(np.linalg.eigvalsh(second).max()),
            L_F=self.penalty + 0.5 * float(np.linalg.eigvalsh(np.einsum("n,nij->ij", self.p, second)).max()),
            mu=self.penalty,
            sigma2=2 * max(float(v.mean()) for v in norms2) / self.batch if self.batch else 0.0,
            G2=(largest + self.penalty * radius) ** 2,
            w_star=w_star,
            F_star=F_star,
            Fi_star=Fi_star,
            Gamma=F_star - float(self.p @ Fi_star),
        )

    def hessian(self, w: Array, a: Array) -> Array:
        """∇²(Σ a_i F_i)(w), of shape (d·classes, d·classes)."""
        X, _, weight = self._padded
        q = _softmax(X @ self._matrix(self._common(w)))[0]
        curvature = np.einsum("nsk,kl->nskl", q, np.eye(self.classes)) - np.einsum("nsk,nsl->nskl", q, q)
        blocks = np.einsum("n,ns,nsi,nsj,nskl->ikjl", a, weight, X, X, curvature, optimize=True)
        size = w.shape[-1]
        return np.asarray(blocks.reshape(size, size) + self.penalty * a.sum() * np.eye(size))

    def _minimise(self, a: Array) -> Array:
        """argmin Σ a_i F_i, a on the simplex."""
        return newton(
            lambda w: float(a @ self.at(w)),
            lambda w: np.asarray(a @ self.gradients_at(w)),
            lambda w: self.hessian(w, a),
            np.zeros_like(self.w0),
        )

    def _matrix(self, points: Array) -> Array:
        return points.reshape(*points.shape[:-1], -1, self.classes)

    def _vector(self, matrix: Array) -> Array:
        return matrix.reshape(*matrix.shape[:-2], -1)


def _softmax(logits: Array) -> tuple[Array, Array]:
    """softmax and log Σ exp over the last axis (quicker here than SciPy's general functions)."""
    top = logits.max(-1, keepdims=True)
    powers = np.exp(logits - top)
    total = powers.sum(-1, keepdims=True)
    return powers / total, (top + np.log(total))[..., 0]


def newton(
    value: Callable[[Array], float],
    gradient: Callable[[Array], Array],
    hessian: Callable[[Array], Array],
    w: Array,
    tolerance: float = 1e-10,
) -> Array:
    """The minimiser of a smooth strongly convex function: damped Newton, to ‖∇‖ ≤ tolerance.

    >>> newton(lambda w: float(w @ w), lambda w: 2 * w, lambda w: 2 * np.eye(2), np.ones(2))
    array([0., 0.])
    """
    for _ in range(200):
        g = gradient(w)
        if np.linalg.norm(g) <= tolerance:
            return w
        direction = np.linalg.solve(hessian(w), g)
        step, start = 1.0, value(w)
        while value(w - step * direction) > start - 1e-4 * step * float(g @ direction) and step > 1e-6:
            step /= 2
        # Near the optimum the decrease is below rounding: the full step is taken there.
        w = w - (step if step > 1e-6 else 1.0) * direction
    raise ArithmeticError(f"Newton's method did not reach ‖∇‖ ≤ {tolerance}; increase the penalty")


@PROBLEMS.register(name="softmax", examples=("softmax", "softmax(seed=3, a=1, b=1, n=8)"))
def softmax_regression(
    seed: int = 0,
    n: int = 5,
    d: int = 4,
    *,
    a: float = 0.5,
    b: float = 0.5,
    classes: int = 3,
    penalty: float = 0.3,
    batch: int = 4,
    samples: int = 30,
) -> Softmax:
    """After Synthetic(a, b): client k draws its labels from its own linear model around u_k ~ N(0, a) and its
    features around v_k, with mean B_k ~ N(0, b) and covariance diag(j^−1.2); a bias column is appended. Here a and
    b are variances; in the data set ``synthetic`` they are standard deviations.

    >>> problem = softmax_regression(seed=1)
    >>> bool(np.abs(problem.p @ problem.gradients_at(problem.constants.w_star)).max() < 1e-10)
    True
    """
    random = generator(seed, "theory.softmax")
    scale = np.arange(1, d + 1) ** -0.6
    features, labels = [], []
    for _ in range(n):
        u, centre = random.normal(0, np.sqrt(a)), random.normal(0, np.sqrt(b))
        W, bias = random.normal(u, 1, (d, classes)), random.normal(u, 1, classes)
        x = random.normal(centre, 1, d) + scale * random.standard_normal(
            (int(random.integers(samples // 2, 2 * samples)), d)
        )
        features.append(np.column_stack([x, np.ones(len(x))]))
        labels.append(np.argmax(x @ W + bias, axis=1).astype(np.int64))
    return Softmax(tuple(features), tuple(labels), classes, penalty, batch, w0=np.zeros((d + 1) * classes))
