"""ε against reference values: stored ones of dp-accounting, exact formulas, and published ones."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dp_accounting
import pytest
from dp_accounting.rdp import RdpAccountant
from scipy.optimize import brentq
from scipy.stats import norm

from fedalpha.defence import privacy

KNOWN: list[dict[str, Any]] = json.loads(Path(__file__).with_name("known_epsilon.json").read_text())["values"]
STEP = 1e-4
"""The accountant rounds losses to multiples of this."""


def name(case: dict[str, Any]) -> str:
    return f"z={case['z']:g} q={case['q']:g} T={case['rounds']} delta={case['delta']:g}"


@pytest.mark.parametrize("case", KNOWN, ids=name)
def test_stored_values(case: dict[str, Any]) -> None:
    """Ours lies above the lower bound and below the Rényi accountant, and where the stored accountant put it."""
    found = privacy.epsilon(case["z"], case["rounds"], case["delta"], sampling=case["q"])
    assert case["least"] <= found <= case["rdp"] * (1 + 1e-9)
    assert found == pytest.approx(case["pld"], rel=1e-3, abs=1e-4)
    assert found - case["least"] <= 0.02 * case["least"] + 0.02  # the two bounds are close, so the first one says much


@pytest.mark.parametrize("case", [case for case in KNOWN if case["rounds"] <= 100], ids=name)
def test_the_stored_values_of_renyi_are_those_of_this_version(case: dict[str, Any]) -> None:
    event: Any = dp_accounting.GaussianDpEvent(case["z"])
    event = event if case["q"] == 1 else dp_accounting.PoissonSampledDpEvent(case["q"], event)
    found = RdpAccountant().compose(event, case["rounds"]).get_epsilon(case["delta"])
    assert found == pytest.approx(case["rdp"], rel=1e-6)


# Exact formulas


def solved(delta: float, of: Callable[[float], float]) -> float:
    """The ε at which δ(ε) is ``delta``; 0 if it is below at 0."""
    return float(brentq(lambda eps: of(eps) - delta, 0, 50)) if of(0.0) > delta else 0.0


def gaussian(z: float, rounds: int, delta: float) -> float:
    """T rounds without sampling are one with z/√T (Balle and Wang, 2018, theorem 8)."""
    z = z / math.sqrt(rounds)
    return solved(delta, lambda eps: norm.cdf(0.5 / z - eps * z) - math.exp(eps) * norm.cdf(-0.5 / z - eps * z))


def sampled(z: float, q: float, delta: float) -> float:
    """One round with Poisson sampling: P = (1 − q)·N(0, z²) + q·N(1, z²) against N(0, z²), in both directions."""

    def removed(eps: float) -> float:
        x = z**2 * math.log((math.exp(eps) - (1 - q)) / q) + 0.5
        return float(q * norm.sf((x - 1) / z) + (1 - q - math.exp(eps)) * norm.sf(x / z))

    def added(eps: float) -> float:
        if math.exp(-eps) <= 1 - q:
            return 0.0
        x = z**2 * math.log((math.exp(-eps) - (1 - q)) / q) + 0.5
        mixture = (1 - q) * norm.cdf(x / z) + q * norm.cdf((x - 1) / z)
        return float(norm.cdf(x / z) - math.exp(eps) * mixture)

    return max(solved(delta, removed), solved(delta, added))


@pytest.mark.parametrize("case", [case for case in KNOWN if case["q"] == 1], ids=name)
def test_never_below_the_exact_gaussian(case: dict[str, Any]) -> None:
    exact = gaussian(case["z"], case["rounds"], case["delta"])
    found = privacy.epsilon(case["z"], case["rounds"], case["delta"])
    assert exact <= found <= exact * 1.005 + STEP


@pytest.mark.parametrize("case", [case for case in KNOWN if case["q"] < 1 and case["rounds"] == 1], ids=name)
def test_never_below_the_exact_sampled_gaussian(case: dict[str, Any]) -> None:
    exact = sampled(case["z"], case["q"], case["delta"])
    found = privacy.epsilon(case["z"], 1, case["delta"], sampling=case["q"])
    assert exact <= found <= exact * 1.005 + STEP
    assert case["least"] <= exact  # the stored lower bound is one


# Published values


@pytest.mark.parametrize(
    ("samples", "batch", "z", "epochs", "delta", "published"),
    [
        (60_000, 150, 1.3, 15, 1e-5, 0.7242234026109595),
        (100_000, 100, 1.0, 30, 1e-7, 1.4154988495444845),
    ],
)
def test_the_values_of_tensorflow_privacy(
    samples: int, batch: int, z: float, epochs: int, delta: float, published: float
) -> None:
    """``compute_dp_sgd_privacy_test.py`` of tensorflow/privacy has them for its Rényi accountant; ours is tighter."""
    event = dp_accounting.PoissonSampledDpEvent(batch / samples, dp_accounting.GaussianDpEvent(z))
    rounds = epochs * samples // batch
    assert RdpAccountant().compose(event, rounds).get_epsilon(delta) == pytest.approx(published, rel=1e-6)
    assert 0.7 * published < privacy.epsilon(z, rounds, delta, sampling=batch / samples) <= published
