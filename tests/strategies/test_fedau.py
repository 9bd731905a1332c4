"""FedAU against lists of intervals."""

from __future__ import annotations

import numpy as np
import pytest

from fedalpha.strategies import STRATEGIES, Cohort, strategy


@pytest.mark.parametrize("cutoff", [3, 50])
def test_intervals(cutoff: int) -> None:
    rng, N = np.random.default_rng(0), 6
    rule, plain = strategy(f"FedAU(clients={N}, cutoff={cutoff})"), strategy(f"FedAU(cutoff={cutoff})")
    state, other = rule.init(N), plain.init(N)
    intervals: list[list[int]] = [[] for _ in range(N)]
    absent = [0] * N
    for round in range(80):
        here = rng.random(N) < np.linspace(0.05, 0.9, N)
        expected = []
        for i in range(N):
            if here[i]:
                expected.append(np.mean(intervals[i]) if intervals[i] else 1.0)
                intervals[i].append(absent[i] + 1)
                absent[i] = 0
            else:
                absent[i] += 1
                if absent[i] >= cutoff:
                    intervals[i].append(absent[i])
                    absent[i] = 0
        if here.any():
            cohort = Cohort(ids=np.flatnonzero(here), sizes=1.0 + np.flatnonzero(here), round=round)
            alpha, state = rule.weights(state, cohort)
            np.testing.assert_allclose(alpha, np.array(expected) / N, rtol=1e-12)
            shared, other = plain.weights(other, cohort)
            weighted = cohort.sizes * expected
            np.testing.assert_allclose(shared, weighted / weighted.sum(), rtol=1e-12)


@pytest.mark.parametrize("text", ["FedAU(cutoff=0)", "FedAU(clients=0.5)"])
def test_bad_arguments_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="FedAU:"):
        STRATEGIES.parse(text)
