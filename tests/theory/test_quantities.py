from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedalpha.strategies import weights
from fedalpha.theory import quantities as q

RANDOM = np.random.default_rng(0)


def simplex(n: int) -> np.ndarray:
    return RANDOM.dirichlet(np.ones(n))


def test_by_hand() -> None:
    alpha, p, x = [0.2, 0.3, 0.5], [0.5, 0.25, 0.25], [4.0, 2.0, 1.0]
    assert q.skew(alpha, p, x) == pytest.approx(1.9 / 2.75)
    assert q.kappa(alpha, p) == pytest.approx([0.4, 1.2, 2.0])
    assert [float(v) for v in q.pi_Pi(alpha, p)] == pytest.approx([0.4, 2.0])
    assert q.n_eff(alpha) == pytest.approx(1 / 0.38)
    assert q.chi2(alpha, p) == pytest.approx(0.04 / 0.5 + 0.09 / 0.25 + 0.25 / 0.25 - 1)


def test_fedavg_has_rho_one() -> None:
    for _ in range(200):
        n = int(RANDOM.integers(1, 50))
        sizes, x = RANDOM.integers(1, 1000, n), RANDOM.exponential(size=n) * 10.0 ** RANDOM.uniform(-8, 8)
        alpha = weights("FedAvg", losses=x, sizes=sizes)
        assert abs(q.skew(alpha, sizes / sizes.sum(), x) - 1) < 1e-12
        assert q.chi2(alpha, sizes / sizes.sum()) < 1e-12


@pytest.mark.parametrize(("text", "sign"), [("FedWorse", 1), ("FedSoftWorse(T=0.3)", 1), ("FedSoftWorse(T=0)", 1)])
def test_worse_is_at_least_one_and_better_at_most(text: str, sign: int) -> None:
    for _ in range(200):
        n = int(RANDOM.integers(1, 12))
        p, x = simplex(n), RANDOM.exponential(size=n)
        assert q.skew(weights(text, x, p), p, x) >= 1 - 1e-12
        assert q.skew(weights(text.replace("Worse", "Better"), x, p), p, x) <= 1 + 1e-12


def test_fedworse_maximises_rho_at_a_fixed_point() -> None:
    for _ in range(100):
        p, x = simplex(6), RANDOM.exponential(size=6)
        best = q.skew(weights("FedWorse", x, p), p, x)
        assert all(q.skew(simplex(6), p, x) <= best + 1e-12 for _ in range(20))
        assert best <= 1 / p.min() + 1e-9  # ρ is never "arbitrarily big"


def test_skew_lies_between_pi_and_Pi() -> None:  # noqa: N802
    for _ in range(200):
        alpha, p, x = simplex(5), simplex(5), RANDOM.exponential(size=5)
        pi, Pi = q.pi_Pi(alpha, p)
        assert pi - 1e-12 <= q.skew(alpha, p, x) <= Pi + 1e-12


def test_soft_weights_spread_kappa_by_the_range_over_the_temperature() -> None:
    p, x = simplex(7), RANDOM.exponential(size=7)
    for text in ("FedSoftWorse(T=0.4)", "FedSoftBetter(T=0.4)"):
        pi, Pi = q.pi_Pi(weights(text, x, p), p)
        assert Pi / pi == pytest.approx(np.exp(np.ptp(x) / 0.4))


def test_ratio_of_means_is_not_the_mean_of_ratios() -> None:
    alpha, x = np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[1.0, 3.0], [10.0, 0.0]])
    assert q.skew_ratio_of_means(alpha, [0.5, 0.5], x) == pytest.approx(13 / 7)
    assert q.skew(alpha, [0.5, 0.5], x).mean() == pytest.approx((1.5 + 2) / 2)


def test_undefined_skew_is_nan_and_kappa_needs_data() -> None:
    assert np.isnan(q.skew([1, 0], [0.5, 0.5], [0, 0]))
    with pytest.raises(ValueError, match="p > 0"):
        q.kappa([1, 0], [1, 0])


@given(st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_rho_interval_is_exact(n: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    alpha, p, F = random.dirichlet(np.ones(n)), random.dirichlet(np.ones(n)), random.uniform(1, 2, n)
    lo = random.uniform(0, 0.5, n)
    hi = lo + random.uniform(0, 2, n)  # may exceed F: then F_i* ≤ F_i is what binds
    low, high = q.rho_interval(alpha, p, F, lo, hi)
    vertices = itertools.product(*zip(lo, np.minimum(hi, F), strict=True))
    found = [float(q.skew(alpha, p, F - np.array(v))) for v in vertices]
    assert low == pytest.approx(np.nanmin(found), rel=1e-9)
    assert high == pytest.approx(np.nanmax(found), rel=1e-9)
    inside = q.skew(alpha, p, F - random.uniform(lo, np.minimum(hi, F), (50, n)))
    assert (inside >= low - 1e-9).all()
    assert (inside <= high + 1e-9).all()


def test_rho_interval_refuses_impossible_ranges() -> None:
    with pytest.raises(ValueError, match="lo ≤ hi"):
        q.rho_interval([1.0], [1.0], F=[1.0], lo=2.0)
