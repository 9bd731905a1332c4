"""Weights of small cohorts, for tests that compare them with values computed by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import fedalpha
from fedalpha.strategies import Cohort, Strategy


def weights(
    text: str | Strategy, losses: Sequence[float], sizes: Sequence[float] | None = None, **rest: Any
) -> list[float]:
    """`fedalpha.weights` as a list."""
    found: list[float] = fedalpha.weights(text, losses, sizes, **rest).tolist()
    return found


def members(losses: Sequence[float] = (3.0, 1.0), sizes: Sequence[float] | None = None, **rest: Any) -> Cohort:
    """A cohort with these losses before training; sizes are equal unless given."""
    n = len(losses)
    return Cohort(ids=np.arange(n), sizes=np.ones(n) if sizes is None else sizes, before=losses, **rest)  # type: ignore[arg-type]


def rounds(rule: Strategy, *losses: list[float], sizes: list[float] | None = None) -> list[np.ndarray]:
    """alpha of successive rounds with these losses."""
    state, found = rule.init(), []
    for values in losses:
        n = len(values)
        cohort = Cohort(np.arange(n), sizes or np.ones(n), before=values, train=values, after=values)  # type: ignore[arg-type]
        alpha, state = rule.weights(state, cohort)
        found.append(alpha)
    return found
