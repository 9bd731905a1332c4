"""Studies: one problem under several strategies, and the verification over many random problems."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedalpha.rng import generator
from fedalpha.store import write_atomically
from fedalpha.store.exports import csv_text
from fedalpha.strategies import STRATEGIES, Strategy, strategy
from fedalpha.theory.checks import MOST_STATEMENTS, Check, checks, compare, work_statement
from fedalpha.theory.constants import InverseStep
from fedalpha.theory.hypotheses import ALLOWED
from fedalpha.theory.monte_carlo import Run, simulate
from fedalpha.theory.problems import Problem, quadratics, ridge, softmax_regression

LOCAL_STEPS = (1, 2, 5, 10)
WORK_RULES = ("FedAvg", "per_step(FedAvg)", "per_step(FedSoftWorse(T=0.2))")


@dataclass(frozen=True, eq=False)
class Case:
    """A random problem with random settings for its runs."""

    problem: Problem
    E: int
    fraction: float
    replicas: int

    @property
    def steps(self) -> InverseStep:
        return self.problem.constants.step(self.E)


def random_case(seed: int, replicas: int = 64, noisy: float = 0.3) -> Case:
    """Case number ``seed``: mostly quadratics, then ridge and softmax regression.

    A share ``noisy`` of the cases has gradient noise, random cohorts or both. The others need one replica
    and no statistics, so that they test the statements exactly.

    >>> case = random_case(3)
    >>> case.E in LOCAL_STEPS and case.fraction in (0.5, 1.0)
    True
    """
    random = generator(seed, "theory.case")
    kind = random.choice(["quadratics", "ridge", "softmax"], p=[0.7, 0.2, 0.1])
    n, d = int(random.integers(2, 11)), int(random.integers(1, 6))
    spread = float(random.choice([0.0, 0.1, 1.0, 3.0], p=[0.2, 0.2, 0.4, 0.2]))
    condition, equal = float(np.exp(random.uniform(0, 3))), bool(random.integers(2))
    E = int(random.choice(LOCAL_STEPS))
    noise, fraction = 0.0, 1.0
    if random.random() < noisy:
        noise, fraction = [(0.3, 1.0), (3.0, 1.0), (0.0, 0.5), (1.0, 0.5)][int(random.integers(4))]
        n = max(n, 4)  # cohorts of at least 2
    problem: Problem
    if kind == "quadratics":
        problem = quadratics(seed, n, d, spread=spread, condition=condition, sigma=noise, equal=equal)
    elif kind == "ridge":
        problem = ridge(seed, n, d, spread=spread, sigma=noise, penalty=float(np.exp(random.uniform(-3, 0))))
    else:
        batch = 0 if noise == 0 else 2
        problem = softmax_regression(seed, min(n, 5), min(d, 3), a=spread, b=spread, batch=batch, samples=15)
    return Case(problem, E, fraction, replicas if noise > 0 or fraction < 1 else 1)


def verifiable_strategies(all_examples: bool = True) -> list[Strategy]:
    """Every registered strategy that the theory covers: simplex weights from what is known before training."""
    found: dict[str, Strategy] = {}
    for entry in STRATEGIES:
        for text in entry.examples if all_examples else entry.examples[:1]:
            rule = STRATEGIES.parse(text)
            if rule.traits.simplex and rule.requires <= ALLOWED - {"staleness"}:
                found[str(rule)] = rule
    return list(found.values())


@dataclass
class Verification:
    """The checks of many runs, gathered by (statement, strategy)."""

    problems: int = 0
    runs: int = 0
    checks: dict[tuple[str, str], list[Check]] = field(default_factory=dict)

    def add(self, rule: Strategy, found: Sequence[Check]) -> None:
        self.runs += 1
        for check in found:
            self.checks.setdefault((check.statement, str(rule)), []).append(check)

    @property
    def violations(self) -> int:
        return sum(check.violations for group in self.checks.values() for check in group)

    def rows(self, by_strategy: bool = True) -> list[dict[str, Any]]:
        """One row for each statement (and strategy), with bound/measured over the runs."""
        groups: dict[tuple[str, str], list[Check]] = {}
        for (statement, rule), group in self.checks.items():
            groups.setdefault((statement, rule if by_strategy else "all"), []).extend(group)
        return [
            {
                "statement": statement,
                "strategy": rule,
                "runs": len(group),
                "comparisons": sum(c.comparisons for c in group),
                "violations": sum(c.violations for c in group),
                "least_ratio": _quantile([c.tightest for c in group], 0.0),
                "median_ratio": _quantile([c.ratio for c in group], 0.5),
                "median_last_ratio": _quantile([c.last for c in group], 0.5),
            }
            for (statement, rule), group in groups.items()
        ]

    def save(self, folder: Path, **about: Any) -> None:
        """``verification.json`` (by statement) and ``verification.csv`` (by statement and strategy)."""
        folder.mkdir(parents=True, exist_ok=True)
        summary = {**about, "problems": self.problems, "runs": self.runs, "violations": self.violations}
        text = json.dumps({**summary, "statements": self.rows(by_strategy=False)}, indent=1, ensure_ascii=False)
        write_atomically(folder / "verification.json", (text + "\n").encode())
        rows = self.rows()
        table = csv_text([list(rows[0]), *(row.values() for row in rows)])
        write_atomically(folder / "verification.csv", table.encode())


def verify(
    problems: int,
    rules: Sequence[str | Strategy] | None = None,
    *,
    seed: int = 0,
    rounds: int = 30,
    replicas: int = 64,
    noisy: float = 0.3,
    progress: Callable[[int], Any] = lambda number: None,
) -> Verification:
    """Check every statement on ``problems`` random problems under every strategy.

    The confidence level, 95 %, is for *all* comparisons together (Bonferroni), so a sound theory
    shows no violation in 19 of 20 whole verifications, however large.

    >>> verify(2, ["FedAvg", "FedWorse"], rounds=5).violations
    0
    """
    strategies = [strategy(r) for r in rules] if rules is not None else verifiable_strategies()
    most_steps = rounds * max(LOCAL_STEPS) + 1
    comparisons = problems * (len(strategies) + len(WORK_RULES)) * MOST_STATEMENTS * most_steps  # at most
    result = Verification(problems)
    for number in range(problems):
        case = random_case(seed + number, replicas, noisy)
        for rule in strategies:
            run = run_case(case, rule, rounds=rounds, seed=seed + number)
            result.add(rule, checks(run, comparisons=comparisons))
        if case.E > 1:
            work = generator(seed + number, "theory.work").integers(1, case.E + 1, case.problem.n)
            for text in WORK_RULES:
                run = run_case(case, strategy(text), rounds=rounds, seed=seed + number, work=work.tolist())
                result.add(run.strategy, compare(run, [work_statement(run)], comparisons=comparisons))
        progress(number)
    return result


def run_case(case: Case, rule: Strategy, *, rounds: int, seed: int, work: Sequence[int] | None = None) -> Run:
    """One strategy on one case; with unequal ``work`` the step size stays constant within a round."""
    E, step = case.E, case.steps
    return simulate(
        case.problem,
        rule,
        E=E,
        rounds=rounds,
        replicas=case.replicas,
        seed=seed,
        step=step if work is None else lambda t: step(np.asarray(t) // E * E),
        fraction=case.fraction,
        work=work,
    )


def _quantile(values: Sequence[float], q: float) -> float | None:
    """A quantile of the finite values, to four digits; None if no value is finite."""
    finite = [v for v in values if np.isfinite(v)]
    return float(f"{np.quantile(finite, q):.4g}") if finite else None
