"""Heterogeneous quadratics, whose constants all have a closed form.

F_i(w) = ½(w − c_i)'A_i(w − c_i) + b_i, with gradient noise uniform on the sphere of radius
sigma: bounded, unbiased, and of variance exactly sigma².
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedalpha.rng import generator
from fedalpha.strategies import Array
from fedalpha.theory.constants import Constants
from fedalpha.theory.problems.base import PROBLEMS, Problem


@dataclass(frozen=True, eq=False)
class Quadratics(Problem):
    """Clients (A_i, c_i, b_i): A is (N, d, d) symmetric positive definite, c (N, d), b (N,).

    >>> two = Quadratics(A=np.ones((2, 1, 1)), c=np.array([[1.0], [-1.0]]), b=np.zeros(2), w0=np.array([0.9]))
    >>> two.constants.Gamma, two.constants.w_star
    (0.5, array([0.]))
    """

    A: Array
    c: Array
    b: Array
    w0: Array
    p: Array = None  # type: ignore[assignment]
    sigma: float = 0.0

    def __post_init__(self) -> None:
        n, d = self.c.shape
        if self.A.shape != (n, d, d) or self.b.shape != (n,) or self.w0.shape != (d,):
            raise ValueError(f"quadratics: shapes A {self.A.shape}, b {self.b.shape}, w0 {self.w0.shape} do not fit c")
        if self.p is None:
            object.__setattr__(self, "p", np.full(n, 1 / n))

    @property
    def optima(self) -> Array:  # type: ignore[override]
        return self.c

    def losses(self, points: Array) -> Array:
        away = points - self.c
        half: Array = 0.5 * (away * self._times(away)).sum(-1)
        return half + self.b

    def gradients(self, points: Array) -> Array:
        return self._times(points - self.c)

    def noisy_gradients(self, points: Array, random: np.random.Generator) -> Array:
        gradients = self.gradients(points)
        if self.sigma == 0:
            return gradients
        noise = random.standard_normal(points.shape)
        return np.asarray(gradients + self.sigma * noise / np.linalg.norm(noise, axis=-1, keepdims=True))

    @cached_property
    def constants(self) -> Constants:  # type: ignore[override]
        """All exact; G² holds a priori for steps ≤ 1/L.

        A local step contracts towards any centre z up to its gradient there and the noise,
        ‖w⁺ − z‖ ≤ (1 − ημ)‖w − z‖ + η(g_z + σ) with g_z = max‖∇F_i(z)‖, so every iterate stays
        within R = max(‖w0 − z‖, (g_z + σ)/μ) of z and G² = (g_z + LR)² + σ².
        """
        eigenvalues = np.linalg.eigvalsh(self.A)
        mean = np.einsum("n,nij->ij", self.p, self.A)
        w_star = np.linalg.solve(mean, np.einsum("n,nij,nj->i", self.p, self.A, self.c))
        away = w_star - self.c
        Gamma = float(0.5 * self.p @ (away * self._times(away)).sum(-1))
        L, mu = float(eigenvalues.max()), float(eigenvalues.min())
        G2 = min(self._second_moment(z, L, mu) for z in (w_star, self.c.mean(0), self.w0))
        return Constants(
            p=self.p,
            L=L,
            L_F=float(np.linalg.eigvalsh(mean).max()),
            mu=mu,
            sigma2=self.sigma**2,
            G2=G2,
            w_star=w_star,
            F_star=Gamma + float(self.p @ self.b),
            Fi_star=self.b,
            Gamma=Gamma,
        )

    def _second_moment(self, centre: Array, L: float, mu: float) -> float:
        g = float(np.linalg.norm(self.gradients_at(centre), axis=-1).max())
        radius = max(float(np.linalg.norm(self.w0 - centre)), (g + self.sigma) / mu)
        return (g + L * radius) ** 2 + self.sigma**2

    def _times(self, v: Array) -> Array:
        product: Array = (self.A @ v[..., None])[..., 0]
        return product


@PROBLEMS.register(examples=("quadratics", "quadratics(seed=3, n=8, d=4, spread=0, sigma=1)"))
def quadratics(
    seed: int = 0,
    n: int = 6,
    d: int = 3,
    *,
    spread: float = 1.0,
    condition: float = 4.0,
    sigma: float = 0.3,
    distance: float = 3.0,
    equal: bool = False,
) -> Quadratics:
    """Random quadratics with eigenvalues in [1, condition] and optima of standard deviation ``spread``.

    With ``spread=0`` all optima are equal (Γ = 0); ``distance`` is the distance of w0 from the
    centre of the optima; ``equal`` makes p uniform (otherwise sizes vary tenfold).

    >>> quadratics(seed=1, spread=0).constants.Gamma
    0.0
    """
    random = generator(seed, "theory.quadratics")
    values = random.uniform(1, condition, (n, d))
    rotations = np.linalg.qr(random.standard_normal((n, d, d)))[0]
    A = np.einsum("nik,nk,njk->nij", rotations, values, rotations)
    centres = spread * random.standard_normal((n, d))
    direction = random.standard_normal(d)
    sizes = np.exp(random.uniform(0, np.log(10), n)) if not equal else np.ones(n)
    return Quadratics(
        A=(A + A.transpose(0, 2, 1)) / 2,
        c=centres,
        b=random.uniform(0, 1, n),
        w0=distance * direction / np.linalg.norm(direction),
        p=sizes / sizes.sum(),
        sigma=sigma,
    )
