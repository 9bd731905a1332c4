"""Monte-Carlo paths: the library's own strategies on a problem, many replicas at once, in float64.

The framework of the analysis, step by step: in a round every client takes E local steps from
the common w_{t0}; alpha is decided once for the round; w_t = Σ alpha_i w_t^i at *every* step t, so
that w_{t+1} = w_t − η_t Σ alpha_i g_i; clients restart from w_t when t is a multiple of E.

Local training does not depend on alpha, so all replicas and clients are trained together
and weighed afterwards, also for strategies that use losses after training. All strategies
of one seed have the same noise and the same cohorts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedalpha.rng import generator
from fedalpha.select.by_size import inclusion, systematic
from fedalpha.strategies import Array, Cohort, State, Strategy, strategy
from fedalpha.theory.problems import PROBLEMS, Problem
from fedalpha.theory.quantities import _ratio, chi2

Step = Callable[[ArrayLike], Array]


@dataclass(frozen=True, eq=False)
class Run:
    """The quantities of the bounds along the paths; axes (step t, replica), T = rounds·E steps.

    ``distance`` ‖w_t − w*‖² and ``gap`` F(w_t) − F* have T + 1 rows. The others describe the state
    before each step: ``disc`` Σ alpha‖w_t − w_t^i‖², ``excess`` Σ alpha x_i(w_t), ``excess_star``
    Σ alpha x_i(w*), ``dissimilarity`` χ²·Σ p‖∇F_i(w_t) − ∇F(w_t)‖². ``alpha`` is (round, replica, client).
    ``gradient2`` is the largest ‖∇F_i‖² at local iterates and at their averages w_t, ``lemma1`` the largest
    ‖∇F_i‖² − 2L·x_i at local iterates, relative to the size of its terms (the lemma is an equality for some F_i, so
    that rounding decides the sign). ``w`` holds w_t at the round starts, (rounds + 1, replica, d).
    """

    problem: Problem
    strategy: Strategy
    E: int
    step: Step
    eta: Array
    fraction: float
    work: Array
    alpha: Array
    w: Array
    distance: Array
    gap: Array
    disc: Array
    excess: Array
    excess_star: Array
    dissimilarity: Array
    gradient2: float
    lemma1: float
    sampling: str = "uniform"

    @cached_property
    def s2(self) -> Array:
        """E Σ alpha_i², one value per step."""
        return np.repeat(np.square(self.alpha).sum(-1).mean(-1), self.E)

    @cached_property
    def rho(self) -> Array:
        """ρ_t as a ratio of means, one value per step (nan where it is not defined)."""
        return _ratio(self.excess.mean(1), self.gap[:-1].mean(1) + self.problem.constants.Gamma)

    @cached_property
    def X_star(self) -> Array:  # noqa: N802 - the name in the docs
        """X*_t = E Σ alpha_i x_i(w*), which replaces ρ̃_t·Γ; one value per step."""
        return np.asarray(self.excess_star.mean(1))

    def rho_bar(self, over: str = "starts") -> float:
        """ρ̄: the smallest ρ_t, over round ``starts`` or over ``all`` steps."""
        return float(np.nanmin(self.rho[:: self.E] if over == "starts" else self.rho))


def simulate(
    problem: str | Problem,
    rule: str | Strategy,
    *,
    E: int = 1,
    rounds: int = 100,
    replicas: int = 1,
    seed: int = 0,
    step: Step | None = None,
    fraction: float = 1.0,
    sampling: str = "uniform",
    work: Sequence[int] | None = None,
    progress: Callable[[int], Any] = lambda round: None,
) -> Run:
    """Run a strategy on a problem along ``replicas`` independent paths.

    ``step`` gives η_t (default 1/(μ(t+γ)) with the smallest allowed γ); ``fraction`` is the share of clients
    drawn in each round, uniformly or, with ``sampling="size"``, with probabilities ∝ p; ``work`` the local steps of
    each client (≤ E, default E), after which it waits for the end of the round; ``progress`` is called after every
    round.

    >>> from fedalpha.theory.problems import quadratics
    >>> run = simulate(quadratics(sigma=0), "FedAvg", rounds=200)
    >>> bool(np.abs(run.rho - 1).max() < 1e-12), bool(run.gap[-1, 0] < 1e-3 * run.gap[0, 0])
    (True, True)
    """
    problem, rule = PROBLEMS.parse(problem), strategy(rule)
    c = problem.constants
    step = step or c.step(E)
    eta = step(np.arange(rounds * E))
    steps = np.full(problem.n, E) if work is None else np.asarray(work)
    if steps.shape != (problem.n,) or (steps < 0).any() or (steps > E).any():
        raise ValueError(f"work = {work}: give one number of steps between 0 and E = {E} for each client")
    if sampling not in ("uniform", "size"):
        raise ValueError(f"sampling = {sampling!r} is not one of uniform, size")
    chances = _chances(problem.p, fraction, sampling)
    states: list[State] = [rule.init(problem.n)] * replicas
    w = np.broadcast_to(problem.w0, (replicas, len(problem.w0)))
    starts, weights, rows = [w], [], []
    gradient2, lemma1 = 0.0, -math.inf
    for r in range(rounds):
        trail = _train(problem, w, eta[r * E : (r + 1) * E], steps, seed, r)
        cohorts = _draw(chances, replicas, sampling, seed, r)
        alpha, states = _weigh(problem, rule, states, w, trail, steps, r, cohorts, problem.p / chances)
        means = np.einsum("rn,krnd->krd", alpha, trail)
        rows.append(_observe(problem, alpha, means[:-1], trail[:-1]))
        squares, losses = np.square(problem.gradients(trail[:-1])).sum(-1), problem.losses(trail[:-1])
        average = np.square(problem.gradients_at(means[:-1])).sum(-1)
        gradient2 = max(gradient2, float(squares.max()), float(average.max()))
        size = squares + 2 * c.L * (np.abs(losses) + np.abs(c.Fi_star))
        over = squares - 2 * c.L * (losses - c.Fi_star)
        lemma1 = max(lemma1, float((over / np.where(size > 0, size, 1.0)).max()))
        w = means[-1]
        starts.append(w)
        weights.append(alpha)
        progress(r)
    seen = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
    end = _observe(problem, alpha, means[-1:], trail[-1:])
    return Run(
        problem=problem,
        strategy=rule,
        E=E,
        step=step,
        eta=eta,
        fraction=fraction,
        work=steps,
        alpha=np.stack(weights),
        w=np.stack(starts),
        gradient2=gradient2,
        lemma1=lemma1,
        sampling=sampling,
        **{**seen, **{name: np.vstack([seen[name], end[name]]) for name in ("distance", "gap")}},
    )


def _observe(problem: Problem, alpha: Array, w: Array, local: Array) -> dict[str, Array]:
    """The records of some steps: ``w`` is (step, replica, d), ``local`` (step, replica, client, d)."""
    c, p = problem.constants, problem.p
    x, gradients = problem.excess(w), problem.gradients_at(w)
    dissimilarity = np.square(gradients - (p @ gradients)[..., None, :]).sum(-1) @ p
    return {
        "distance": _square(w - c.w_star),
        "gap": x @ p - c.Gamma,
        "disc": (alpha * _square(local - w[:, :, None])).sum(-1),
        "excess": (alpha * x).sum(-1),
        "excess_star": np.broadcast_to(alpha @ problem.excess(c.w_star), w.shape[:2]),
        "dissimilarity": chi2(alpha, p) * dissimilarity,
    }


def _train(problem: Problem, w: Array, eta: Array, steps: Array, seed: int, round: int) -> Array:
    """Local iterates of every client: (E + 1, replica, client, d)."""
    trail = [problem._common(w)]
    random = generator(seed, "theory.noise", round)
    for k, rate in enumerate(eta):
        active = (steps > k)[:, None]
        trail.append(trail[-1] - rate * active * problem.noisy_gradients(trail[-1], random))
    return np.stack(trail)


def _chances(p: Array, fraction: float, sampling: str) -> Array:
    """Each client's probability of being in a cohort."""
    n = len(p)
    m = min(n, max(1, math.floor(fraction * n + 1e-9)))
    return inclusion(p, m) if sampling == "size" else np.full(n, m / n)


def _draw(chances: Array, replicas: int, sampling: str, seed: int, round: int) -> np.ndarray | None:
    """The cohort of each replica, (replica, m) sorted client numbers; None means all clients."""
    n, m = len(chances), int(np.rint(chances.sum()))
    if m >= n:
        return None
    random = generator(seed, "theory.cohort", round)
    if sampling == "size":
        return np.stack([systematic(chances, random) for _ in range(replicas)])
    return np.sort(random.random((replicas, n)).argsort(1)[:, :m], axis=1)


def _weigh(
    problem: Problem,
    rule: Strategy,
    states: list[State],
    w: Array,
    trail: Array,
    steps: Array,
    round: int,
    cohorts: np.ndarray | None,
    design: Array,
) -> tuple[Array, list[State]]:
    """alpha of every replica, (replica, client), zero outside the cohort; and the next states."""
    replicas, everyone = len(w), np.arange(problem.n)
    moved = trail[-1] - w[:, None]
    seen: dict[str, Array] = {}
    if "before" in rule.requires:
        seen["before"] = problem.at(w)
    if "train" in rule.requires:  # the mean loss over the local steps
        seen["train"] = problem.losses(trail[:-1]).mean(0)
    if "after" in rule.requires:
        seen["after"] = problem.losses(trail[-1])
    if "norms" in rule.requires:
        seen["norms"] = np.sqrt(_square(moved))
    alpha = np.zeros((replicas, problem.n))
    following = list(states)
    # A rule that uses nothing random gives the same alpha in every replica.
    distinct = 1 if cohorts is None and rule.requires <= {"steps", "design"} else replicas
    for i in range(distinct):
        ids = everyone if cohorts is None else cohorts[i]
        cohort = Cohort(
            ids=ids,
            sizes=problem.p[ids],
            round=round,
            optima=problem.constants.Fi_star[ids],
            steps=steps[ids],
            design=design[ids] if "design" in rule.requires else None,
            gram=moved[i, ids] @ moved[i, ids].T if "gram" in rule.requires else None,
            **{name: values[i, ids] for name, values in seen.items()},
        )
        alpha[i, ids], following[i] = rule.weights(states[i], cohort)
    if distinct < replicas:
        alpha[:], following = alpha[0], following[:1] * replicas
    return alpha, following


def _square(v: Array) -> Array:
    return np.asarray(np.square(v).sum(-1))
