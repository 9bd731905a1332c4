from __future__ import annotations

import numpy as np
import pytest

from fedalpha.theory.monte_carlo import simulate
from fedalpha.theory.problems import quadratics
from fedalpha.theory.rollout import rollout_bound, schedule_of_weights

PROBLEM = quadratics(sigma=0)
C = PROBLEM.constants
X_STAR = PROBLEM.excess(C.w_star)
ETA = C.step()(np.arange(20_000))


def test_it_sees_a_switch() -> None:
    """The bias of the first strategy is forgotten after the switch; a global ρ̄, ρ̃ would keep it for ever."""
    worst = float(X_STAR.max())
    late = np.arange(20_000) >= 100
    switched = rollout_bound(C, 9.0, ETA, rho=np.where(late, 1.0, 0.0), X_star=np.where(late, C.Gamma, worst))
    stuck = rollout_bound(C, 9.0, ETA, rho=0.0, X_star=worst)
    plain = rollout_bound(C, 9.0, ETA)
    assert switched[-1] < 0.02 < 1 < stuck[-1]
    assert switched[-1] < 5 * plain[-1]


@pytest.mark.parametrize("a", [0.25, 0.5, 0.75])
def test_fading_at_rate_a_converges_at_rate_a(a: float) -> None:
    t = np.arange(len(ETA))
    share = np.minimum(1, (t + C.gamma()) ** -a)
    bound = rollout_bound(C, 9.0, ETA, rho=1 - share, X_star=(1 - share) * C.Gamma + share * X_STAR.max())
    slope = np.log(bound[-1] / bound[5000]) / np.log((20_000 + C.gamma()) / (5000 + C.gamma()))
    assert -1.01 < slope < -a + 0.03


def test_schedule_from_weights_alone() -> None:
    rule = "switch(FedWorse, FedAvg, at=20)"
    run = simulate(PROBLEM, rule, E=2, rounds=60)
    schedule = schedule_of_weights(C, run.alpha[:, 0], X_STAR, E=2)
    bound = rollout_bound(C, run.distance[0, 0], run.eta, E=2, **schedule)
    assert (run.distance[:, 0] <= bound * (1 + 1e-12)).all()
    assert schedule["rho"][[0, -1]] == pytest.approx([0, 1])


def test_steps_too_large_are_refused() -> None:
    with pytest.raises(ValueError, match="1/\\(2L\\)"):
        rollout_bound(C, 9.0, [1 / C.L])
