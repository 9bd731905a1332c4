"""Robust combine rules: by hand, against references, and how far attackers can move them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import fedalpha
from fedalpha.combine import COMBINES, Reports
from fedalpha.data import Pooled
from fedalpha.update import Broadcast, Report
from histories import same_model, without_times

EXAMPLES = [
    t
    for e in COMBINES
    if e.name in ("median", "trimmed", "geomed", "centred", "krum", "clip", "nnm")
    for t in e.examples
]


def combine(rule: str, points: np.ndarray, alpha: np.ndarray | None = None, origin: float = 0.0) -> np.ndarray:
    """The rule on float64 points; an int64 buffer comes along."""
    points = np.asarray(points, dtype=np.float64)
    n, d = points.shape
    sent = Broadcast(None, {"w": torch.full((d,), origin, dtype=torch.float64), "n": torch.tensor(0)})  # type: ignore[arg-type]
    items = [Report(i, {"w": torch.from_numpy(p), "n": torch.tensor(i)}, {}, 1, 1) for i, p in enumerate(points)]
    how = COMBINES.parse(rule)
    weights = np.full(n, 1 / n) if alpha is None else np.asarray(alpha)
    found, _ = how.combine(how.init(), sent, Reports(items), weights, True)
    assert found.parameters["n"].dtype == torch.int64
    assert 0 <= int(found.parameters["n"]) < n
    return found.parameters["w"].numpy()


def test_weighted_median_by_hand() -> None:
    points = np.array([[1.0, 30], [2, 10], [3, 20]])
    np.testing.assert_allclose(combine("median", points), [2, 20])
    np.testing.assert_allclose(combine("median", points, [0.6, 0.2, 0.2]), [1, 30])
    np.testing.assert_allclose(combine("median", points, [0.5, 0.25, 0.25]), [1.5, 25])  # half on each side
    np.testing.assert_allclose(combine("median", points[:2]), [1.5, 20])


def test_weighted_trimmed_mean_by_hand() -> None:
    points = np.array([[1.0], [2], [3], [4], [100]])
    np.testing.assert_allclose(combine("trimmed(beta=0.2)", points), [3])
    np.testing.assert_allclose(combine("trimmed(beta=0)", points), [22])
    # weights .4 .1 .1 .1 .3, a quarter cut off at each end: .15·1 + .1·2 + .1·3 + .1·4 + .05·100, over 1/2
    np.testing.assert_allclose(combine("trimmed(beta=0.25)", points, [0.4, 0.1, 0.1, 0.1, 0.3]), [12.1])


def test_krum_by_hand() -> None:
    points = np.array([[0.0], [1], [2.5], [4.5], [100]])
    # n − f − 2 = 2 nearest: scores 1+6.25, 1+2.25, 2.25+4, 4+12.25, …: client 1 wins, then 2, then 0
    np.testing.assert_allclose(combine("krum(f=1)", points), [1])
    np.testing.assert_allclose(combine("krum(f=1, m=2)", points), [1.75])
    np.testing.assert_allclose(combine("krum(f=1, m=2)", points, [0.2, 0.1, 0.3, 0.2, 0.2]), [(0.1 + 0.75) / 0.4])


def test_centred_clipping_by_hand() -> None:
    points = np.array([[3.0, 4], [0, 0.5]])
    np.testing.assert_allclose(combine("centred(tau=1.0)", points), [0.3, 0.65])
    np.testing.assert_allclose(combine("centred(tau=100)", points), [1.5, 2.25])


def test_norm_clipping_by_hand() -> None:
    np.testing.assert_allclose(combine("clip(mean, C=1)", np.array([[3.0, 4], [0, 0.5]])), [0.3, 0.65], rtol=1e-5)
    moved = combine("clip(mean, C=1)", np.array([[13.0, 14], [10, 10.5]]), origin=10.0)
    np.testing.assert_allclose(moved, [10.3, 10.65], rtol=1e-5)


def test_nearest_neighbour_mixing_by_hand() -> None:
    points = np.array([[0.0], [1], [3], [100]])
    # three nearest each: (0, 1, 3), (1, 0, 3), (3, 1, 0), (100, 3, 1)
    np.testing.assert_allclose(combine("nnm(mean, f=1)", points), [(4 / 3 * 3 + 104 / 3) / 4])
    np.testing.assert_allclose(combine("nnm(median, f=1)", points), [4 / 3])


@pytest.mark.parametrize("seed", range(3))
def test_the_geometric_median_minimises_the_weighted_distances(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points, alpha = rng.normal(size=(9, 4)), rng.dirichlet(np.ones(9))
    found = combine("geomed(iterations=1000)", points, alpha)
    best = minimize(lambda y: alpha @ np.linalg.norm(points - y, axis=1), points.mean(0), tol=1e-12).fun
    assert alpha @ np.linalg.norm(points - found, axis=1) <= best * (1 + 1e-6)


@pytest.mark.parametrize("rule", EXAMPLES)
def test_one_client_is_its_own_aggregate_and_clients_without_weight_are_not_seen(rule: str) -> None:
    point = np.array([[0.1, 0.2]])
    np.testing.assert_allclose(combine(rule, point), point[0])
    alone = combine(rule, np.array([[0.1, 0.2], [1e30, -1e30]]), np.array([1.0, 0.0]))
    np.testing.assert_allclose(alone, point[0])


@pytest.mark.parametrize("rule", [r for r in EXAMPLES if "mean" not in r and "centred" not in r])
@pytest.mark.parametrize("size", [1e2, 1e12, 1e30])
def test_a_fifth_of_attackers_cannot_leave_the_honest_region(rule: str, size: float) -> None:
    """Two of ten: the aggregate stays within a few honest deviations, however huge the lie."""
    rng = np.random.default_rng(1)
    points = rng.normal(size=(10, 5)) * 0.1
    honest = points[2:].mean(0)
    points[:2] = size
    rule = rule.replace("f=1", "f=2")
    assert np.linalg.norm(combine(rule, points) - honest) < 1.0


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 12), st.floats(0.1, 10))
def test_the_clipped_mean_moves_by_at_most_2BC(seed: int, n: int, C: float) -> None:  # noqa: N802
    rng = np.random.default_rng(seed)
    f = int(rng.integers(1, n))
    points = rng.normal(size=(n, 6)) * rng.exponential(5, size=(n, 1))
    points[:f] *= 10.0 ** rng.integers(0, 12)
    alpha = rng.dirichlet(np.ones(n))
    B = alpha[:f].sum()
    honest = combine(f"clip(mean, C={C})", points[f:], alpha[f:] / alpha[f:].sum())
    moved = np.linalg.norm(combine(f"clip(mean, C={C})", points, alpha) - honest)
    assert moved <= 2 * B * C * (1 + 1e-9)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 9))
def test_coordinate_wise_rules_stay_in_the_hull_and_trimming_ends_at_the_median(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    points, alpha = rng.normal(size=(n, 3)), rng.dirichlet(np.ones(n))
    for rule in ("median", "trimmed(beta=0.2)", "geomed", "krum(f=1, m=2)", "nnm(median, f=1)"):
        found = combine(rule, points, alpha)
        assert (found >= points.min(0) - 1e-9).all()
        assert (found <= points.max(0) + 1e-9).all()
    np.testing.assert_allclose(combine("trimmed(beta=0)", points, alpha), alpha @ points, atol=1e-12)
    np.testing.assert_allclose(
        combine("trimmed(beta=0.4999999)", points, alpha), combine("median", points, alpha), atol=1e-6
    )


@pytest.mark.parametrize("rule", EXAMPLES)
def test_the_layout_in_memory_changes_nothing(rule: str) -> None:
    rng = np.random.default_rng(0)
    points = torch.from_numpy(rng.normal(size=(6, 4, 3, 2, 2)))

    def combined(layout: torch.memory_format) -> torch.Tensor:
        sent, *models = (p.clone(memory_format=layout) for p in points)
        items = [Report(i, {"w": w}, {}, 1, 1) for i, w in enumerate(models)]
        how = COMBINES.parse(rule)
        found, _ = how.combine(how.init(), Broadcast(None, {"w": sent}), Reports(items), np.full(5, 0.2), True)  # type: ignore[arg-type]
        return found.parameters["w"]

    torch.testing.assert_close(combined(torch.channels_last), combined(torch.contiguous_format))


@pytest.fixture(scope="module")
def images() -> Pooled:
    """Colour images for the cnn, which clients train in a layout of its own."""
    x = torch.rand(60, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    return fedalpha.federation((x, torch.arange(60) % 3), clients=4)


@pytest.mark.parametrize("rule", ["nnm(trimmed(beta=0.25), f=1)", "clip(mean, C=0.01)", "median"])
@pytest.mark.parametrize("fault", [None, "nan(clients=1, where=model)"])
def test_workers_change_nothing_with_convolutions(images: Pooled, rule: str, fault: str | None) -> None:
    runs = [
        fedalpha.run(images, "cnn", rounds=2, engine=f"embedded(workers={w})", combine=rule, fault=fault)
        for w in (1, 2)
    ]
    assert same_model(*runs)
    assert without_times(runs[0]) == without_times(runs[1])


@pytest.mark.parametrize("rule", EXAMPLES)
def test_rules_compose_with_every_kind_of_strategy(digits: Pooled, rule: str) -> None:
    for strategy in ("FedWorse(k=3)", "FedSoftBetter(T=0.5, loss=after)"):
        history = fedalpha.run(digits, "softmax", strategy, rounds=1, engine="embedded(workers=1)", combine=rule)
        assert all(torch.isfinite(v).all() for v in history.model.values())
        assert history.rows[1]["influence"]["clients"] == 1
    assert str(COMBINES.parse(rule)) == str(COMBINES.parse(str(COMBINES.parse(rule))))


def test_coefficients_off_the_simplex_are_refused() -> None:
    how = COMBINES.parse("median")
    with pytest.raises(ValueError, match="simplex"):
        how.combine({}, Broadcast(None, {}), Reports([]), np.zeros(0), False)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text", ["trimmed(beta=0.5)", "clip(mean, C=0)", "krum(f=-1)", "centred(tau=0)", "nnm(mean, f=-1)"]
)
def test_senseless_arguments_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="give"):
        COMBINES.parse(text)
