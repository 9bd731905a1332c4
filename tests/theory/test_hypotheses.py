from __future__ import annotations

import re

import numpy as np
import pytest

from fedalpha.theory.checks import checks
from fedalpha.theory.hypotheses import hypotheses
from fedalpha.theory.monte_carlo import simulate
from fedalpha.theory.problems import Quadratics, quadratics

PROBLEM = quadratics(sigma=0.5)


def test_the_framework_breaks_nothing() -> None:
    for E in (1, 5, 40):
        assert hypotheses(simulate(PROBLEM, "switch(FedWorse, FedAvg, at=2)", E=E, rounds=4)) == []


@pytest.mark.parametrize(
    ("rule", "options", "word"),
    [
        ("FedWorse(loss=after)", {}, "gradient noise"),
        ("FedSoftBetter(T=1, loss=train)", {}, "gradient noise"),
        ("FedAvg", {"step": lambda t: np.full(np.shape(t), 0.3 / PROBLEM.constants.L)}, "1/\\(4L\\)"),
        ("FedAvg", {"step": lambda t: 0.001 * (1 + np.asarray(t))}, "increases"),
        ("FedAvg", {"step": lambda t: 0.01 / (0.5 + np.asarray(t) % 3)}, "more than half"),
        ("FedAvg", {"work": [1, 2, 3, 3, 3, 3]}, "different numbers"),
    ],
)
def test_each_breach_is_said_in_words(rule: str, options: dict, word: str) -> None:
    run = simulate(PROBLEM, rule, E=3, rounds=4, replicas=2, **options)
    assert any(re.search(word, sentence) for sentence in hypotheses(run))
    with pytest.raises(ValueError, match="do not apply"):
        checks(run)


def test_gradients_above_G2_are_noticed() -> None:  # noqa: N802
    wild = Quadratics(np.array([[[1.0]]]), np.zeros((1, 1)), np.zeros(1), np.ones(1))
    run = simulate(wild, "FedAvg", rounds=30, step=lambda t: np.full(np.shape(t), 3.0))
    assert any("G²" in sentence for sentence in hypotheses(run))
