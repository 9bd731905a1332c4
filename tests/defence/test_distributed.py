"""Privacy with sums: Poisson sampling and what may be claimed for it, noise that clients add, noise without a seed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

import fedalpha
from fedalpha.combine import COMBINES
from fedalpha.data import Pooled
from fedalpha.defence import privacy
from fedalpha.rng import generator
from fedalpha.select import SELECTIONS

NOISE = "noise(clip(mean, C=0.5), z=0.2, c=0.25)"
RULE = "cap(FedSoftWorse(T=0.2), 0.25)"


# Sampling


class Registered:
    clients = 40

    def named(self, places: Any) -> Any:
        return places + 100


def test_poisson_cohorts_are_independent_coins() -> None:
    rule = SELECTIONS.parse("poisson(C=0.3)")
    drawn = np.zeros((2000, 40), dtype=bool)
    for round in range(2000):
        ids, _ = rule.select({}, Registered(), None, generator(0, "cohort", round))  # type: ignore[arg-type]
        drawn[round, ids - 100] = True
    assert abs(drawn.mean() - 0.3) < 0.01
    sizes = drawn.sum(axis=1)
    assert abs(sizes.var() - 40 * 0.3 * 0.7) < 1.5  # a cohort of fixed size would have none
    together = np.corrcoef(drawn.T)[np.triu_indices(40, 1)]
    assert np.abs(together).max() < 0.1
    assert abs(together.mean()) < 0.005  # without replacement it would be −1/39


def test_small_cohorts_are_drawn_again_and_impossible_ones_refused() -> None:
    rule = SELECTIONS.parse("poisson(C=0.1, least=5)")
    sizes = [
        len(rule.select({}, Registered(), None, generator(1, "cohort", r))[0])  # type: ignore[arg-type]
        for r in range(200)
    ]
    assert min(sizes) >= 5
    with pytest.raises(ValueError, match="raise C, or lower least"):
        SELECTIONS.parse("poisson(C=0.001)").select({}, Registered(), None, generator(0, "cohort"))  # type: ignore[arg-type]
    for wrong in ("poisson(C=0)", "poisson(C=2)", "poisson(least=0)"):
        with pytest.raises(ValueError, match="poisson"):
            SELECTIONS.parse(wrong)


def test_amplification_is_claimed_under_poisson_sampling_alone() -> None:
    plain = privacy.epsilon(4.0, 10, 1e-5)
    for text in ("uniform(C=0.1)", "by_size(C=0.1)", "uniform"):
        assert privacy.epsilon(4.0, 10, 1e-5, sampling=text) == plain
    amplified = privacy.epsilon(4.0, 10, 1e-5, sampling="poisson(C=0.1)", clients=1000)
    assert amplified == pytest.approx(privacy.epsilon(4.0, 10, 1e-5, sampling=0.1), rel=1e-3)
    assert amplified < 0.5 * plain
    with pytest.raises(ValueError, match="pass clients="):
        privacy.epsilon(1.0, 10, 1e-5, sampling="poisson(C=0.1)")


def test_cohorts_that_are_drawn_again_are_paid_for() -> None:
    """60 clients at C = 0.3 and at least 4 of them: the chance to draw again in 10 rounds is about 5·10⁻⁵ in all."""
    missed = 10 * float(binom.cdf(3, 59, 0.3))
    assert 1e-6 < missed < 1e-3
    text = "poisson(C=0.3, least=4)"
    with pytest.raises(ValueError, match="redraws cohorts too often for delta = 1e-05"):
        privacy.epsilon(2.0, 10, 1e-5, sampling=text, clients=60)
    paid = privacy.epsilon(4.0, 10, 0.01, sampling=text, clients=60)
    free = privacy.epsilon(4.0, 10, 0.01, sampling=0.3)
    left = 0.01 - missed * (1 + math.exp(paid))
    assert free < paid
    assert paid == pytest.approx(privacy.epsilon(4.0, 10, left, sampling=0.3), rel=1e-6)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"select": "poisson(C=0.5)"}, r"needs to share out all of the weight: .* write poisson\(C=0.5, least=4\)"),
        (
            {"select": "poisson(C=0.5)", "strategy": "FedWorse(k=4)", "secure": "masked"},
            r"write poisson\(C=0.5, least=3\)",
        ),
        ({"strategy": "FedWorse(k=3)", "secure": "masked", "combine": "noise(clip(mean), c=0.6)"}, r"use c ≤ 0.5"),
    ],
)
def test_rounds_that_would_be_kept_for_their_cohort_are_refused_under_noise(
    digits: Pooled, changes: dict[str, Any], reason: str
) -> None:
    """Whether the model moved would tell who took part, which no ε accounts for."""
    with pytest.raises(ValueError, match=reason):
        model(digits, **changes)


def test_a_private_run_with_poisson_cohorts(digits: Pooled) -> None:
    _, history = model(digits, select="poisson(C=0.8, least=4)", secure="masked(threshold=1/2)")
    assert history.rows[-1]["kept"] is None


# Noise


def model(digits: Pooled, rounds: int = 1, **changes: Any) -> tuple[np.ndarray, fedalpha.History]:
    given = {"combine": NOISE, "strategy": RULE, "engine": "embedded(workers=1)", **changes}
    history = fedalpha.run(digits, "softmax", rounds=rounds, seed=0, **given)  # type: ignore[arg-type]
    return np.concatenate([v.numpy().ravel() for v in history.model.values()]).astype(np.float64), history


QUIET = NOISE.replace("z=0.2", "z=0")


def test_clients_add_at_least_the_noise_that_is_accounted_for(digits: Pooled) -> None:
    """12 clients, of which 9 may remain: 9 of them add the variance (z·2·c·C)², all 12 of them 12/9 of it."""
    still, _ = model(digits, combine=QUIET)
    wanted = 0.2 * 2 * 0.25 * 0.5
    found, history = model(digits, secure="masked")
    noise = found - still
    assert history.rows[-1]["kept"] is None
    expected = wanted * math.sqrt(12 / 9)
    assert noise.std() == pytest.approx(expected, rel=0.1)
    assert abs(noise.mean()) < 5 * expected / math.sqrt(len(noise))


def test_without_noise_the_private_sum_is_that_of_single_updates(digits: Pooled) -> None:
    """Clipping on the clients gives what clipping on the server gives."""
    plain, _ = model(digits, combine=QUIET)
    veiled, history = model(digits, combine=QUIET, secure="masked")
    assert np.abs(plain - veiled).max() <= history.rows[-1]["secure_error"] + 2e-6


def test_the_weight_of_a_lost_client_stays_with_the_model(digits: Pooled) -> None:
    """Under noise nobody's weight rises above c: the sum is not divided by the weight that arrived.

    Clipped to a tiny norm, updates are alike in length, and a sum of three of four moves three quarters as far at most.
    """
    settings = {
        "combine": "noise(clip(mean, C=0.001), z=0, c=0.25)",
        "strategy": "FedWorse(k=4)",
        "secure": "masked(threshold=1/2)",
    }
    first, _ = model(digits, rounds=0, **settings)
    _, history = model(digits, **settings)
    weighed = [id for id, a in zip(history.rows[-1]["cohort"], history.rows[-1]["alpha"], strict=True) if a]
    assert len(weighed) == 4
    lost, history = model(digits, **settings, fault=f"drop(clients=[{weighed[0]}])")
    row = history.rows[-1]
    assert row["kept"] is None
    assert max(row["alpha"]) == pytest.approx(1 / 3)
    assert np.linalg.norm(lost - first) <= 0.75 * 0.001 * (1 + 1e-3)


def test_two_runs_with_the_systems_noise_differ_and_with_a_seed_they_agree(digits: Pooled) -> None:
    system = NOISE.replace(")", ", seed=system)").replace("C=0.5, seed=system", "C=0.5")
    one, two = (model(digits, combine=system)[0] for _ in range(2))
    assert 0.9 < np.std(one - two) / (math.sqrt(2) * 0.2 * 2 * 0.25 * 0.5) < 1.1
    assert np.array_equal(model(digits)[0], model(digits)[0])
    assert str(COMBINES.parse(system)) == "noise(clip(mean, C=0.5), z=0.2, c=0.25, seed=system)"
    with pytest.raises(ValueError, match="give a whole number ≥ 0, or system"):
        COMBINES.parse("noise(clip(mean), seed=dice)")


def test_the_server_cannot_add_noise_to_weights_that_it_does_not_know(digits: Pooled) -> None:
    with pytest.raises(ValueError, match=r"needs a bound on the weights|compares the losses"):
        model(digits, secure="blind(reference=2.0)")
    with pytest.raises(ValueError, match=r"needs a bound|more weight than|write cap"):
        model(digits, strategy="FedSoftWorse(T=0.2)", secure="blind(reference=2.0)")
