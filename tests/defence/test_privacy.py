"""Privacy: the sensitivity holds, the noise is what it says, the accounting agrees with the exact formula."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fedalpha
from fedalpha.combine import COMBINES, Reports
from fedalpha.data import Pooled
from fedalpha.defence import privacy
from fedalpha.runs.evaluate import Evaluate
from fedalpha.strategies import STRATEGIES, Cohort
from fedalpha.update import Broadcast, Report


def test_sampling_amplifies_and_the_multiplier_inverts() -> None:
    assert privacy.epsilon(1.0, 10, 1e-5, sampling=0.1) < 0.5 * privacy.epsilon(1.0, 10, 1e-5)
    z = privacy.multiplier(2.0, 10, 1e-5)
    assert 1.95 < privacy.epsilon(z, 10, 1e-5) <= 2.0


SAFE = (
    "cap(FedSoftWorse(T=0.3), 0.3)",
    "cap(FedAvg, 0.25)",
    "cap(FedSoftBetter(T=1.0, prior=uniform), 0.4)",
    "cap(anneal(FedSoftWorse(T=0.2), T=inf, rounds=5), 0.3)",
    "FedWorse(k=3)",
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(SAFE), st.integers(0, 10**6), st.integers(6, 12))
def test_removing_a_client_moves_the_sum_by_no_more_than_the_sensitivity(text: str, seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    rule = STRATEGIES.parse(text)
    sizes, losses = rng.integers(1, 50, n).astype(float), rng.uniform(0, 3, n)
    losses = np.round(losses) if seed % 2 else losses  # with ties
    x = rng.normal(size=(n, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)

    def total(ids: np.ndarray) -> np.ndarray:
        alpha, _ = rule.weights(rule.init(n), Cohort(ids, sizes[ids], before=losses[ids]))
        return alpha @ x[ids]

    everybody = np.arange(n)
    for gone in everybody:
        moved = np.linalg.norm(total(everybody) - total(np.delete(everybody, gone)))
        assert moved <= privacy.sensitivity(text, C=1.0) * (1 + 1e-9)
    first = np.delete(everybody, 1)  # a cohort of fixed size: client 1 takes the place of client 0
    moved = np.linalg.norm(total(first) - total(np.delete(everybody, 0)))
    assert moved <= privacy.sensitivity(text, C=1.0) * (1 + 1e-9)


@pytest.mark.parametrize(
    "text",
    [
        "FedAvg",
        "FedSoftWorse(T=0.2)",
        "FedWorse(k=0.1)",
        "clipped(FedSoftWorse(T=0.2), k=3)",
        "cap(clipped(FedSoftWorse(T=0.2), k=3), 0.1)",
        "cap(FedSoftWorse(T=0.2, optima=estimated), 0.1)",
        "cap(switch(FedSoftBetter(T=0.2), FedAvg, accuracy=0.6), 0.1)",
        "mix(FedWorse, FedAvg)",
    ],
)
def test_what_is_not_bounded_is_refused(text: str, digits: Pooled) -> None:
    with pytest.raises(ValueError, match=r"cap\(|whole number|weights of others"):
        privacy.sensitivity(text, 1.0)
    with pytest.raises(ValueError, match=r"cap\(|whole number|weights of others"):
        fedalpha.run(
            digits,
            "softmax",
            text,
            rounds=1,
            engine="embedded(workers=1)",
            combine="noise(clip(mean, C=1.0), z=1.0, c=0.2)",
        )


def test_noise_for_less_weight_than_the_strategy_gives_is_refused(digits: Pooled) -> None:
    with pytest.raises(ValueError, match=r"set c ≥ 0.3"):
        fedalpha.run(
            digits,
            "softmax",
            "cap(FedAvg, 0.3)",
            rounds=1,
            engine="embedded(workers=1)",
            combine="noise(clip(mean, C=1.0), z=1.0, c=0.2)",
        )
    for rule in ("noise(mean, z=1, c=0.1)", "noise(clip(median, C=1), z=1, c=0.1)"):
        with pytest.raises(ValueError, match="sensitivity"):
            COMBINES.parse(rule)


@pytest.mark.parametrize("update", ["scaffold(lr=0.1)", "fedpage(lr=0.1, steps=2, p=0.5)"])
def test_updates_that_publish_what_clients_send_are_refused(update: str, digits: Pooled) -> None:
    with pytest.raises(ValueError, match=r"next broadcast without noise"):
        private(digits, update=update)


def test_weights_by_what_the_server_measures_are_refused(digits: Pooled) -> None:
    with pytest.raises(ValueError, match=r"reevaluate = 2.* leave reevaluate at 0"):
        private(digits, evaluate=Evaluate(reevaluate=2))


@pytest.mark.parametrize("select", ["power_of_choice(C=0.5, d=0.9)", "loss_proportional(C=0.5)"])
def test_losses_may_not_decide_who_takes_part(digits: Pooled, select: str) -> None:
    with pytest.raises(ValueError, match="selects clients by their losses"):
        private(digits, select=select)


@pytest.mark.parametrize("step", ["clip({}, C=10)", "nnm({}, f=1)", "clip(nnm({}, f=1), C=10)"])
@pytest.mark.parametrize("strategy", ["FedAvg", "cap(FedAvg, 0.2)"])
def test_noise_inside_another_rule_is_refused(step: str, strategy: str, digits: Pooled) -> None:
    rule = "noise(clip(mean, C=1.0), z=1.0, c=0.2)"
    with pytest.raises(ValueError, match=r"write noise\(clip\(mean, C=1.0\), z=1.0, c=0.2\) alone"):
        private(digits, strategy=strategy, combine=step.format(rule))


def private(digits: Pooled, **changed: Any) -> None:
    """A run that is private, but for what is changed."""
    settings = {"strategy": "cap(FedAvg, 0.2)", "combine": "noise(clip(mean, C=1.0), z=1.0, c=0.2)", **changed}
    fedalpha.run(digits, "softmax", rounds=1, engine="embedded(workers=1)", **settings)


def test_the_noise_has_the_stated_deviation_and_weights_are_capped() -> None:
    d = 40_000
    sent = Broadcast(None, {"w": torch.zeros(d, dtype=torch.float64), "n": torch.tensor(3)})  # type: ignore[arg-type]
    point = torch.zeros(d, dtype=torch.float64)
    point[0] = 50.0
    items = [Report(i, {"w": point, "n": torch.tensor(9)}, {}, 1, 1) for i in range(2)]
    rule = COMBINES.parse("noise(clip(mean, C=2.0), z=1.5, c=0.1)")
    assert COMBINES.parse(str(rule)) == rule
    first, state = rule.combine(rule.init(), sent, Reports(items), np.array([0.5, 0.5]), True)
    second, _ = rule.combine(state, sent, Reports(items), np.array([0.5, 0.5]), True)
    deviation = 1.5 * 2 * 0.1 * 2.0
    drawn = first.parameters["w"][1:].numpy()
    assert drawn.std() == pytest.approx(deviation, rel=0.02)
    assert abs(drawn.mean()) < 4 * deviation / math.sqrt(d)
    assert float(first.parameters["n"]) == 3
    assert abs(np.corrcoef(drawn, second.parameters["w"][1:].numpy())[0, 1]) < 0.03
    silent = COMBINES.parse("noise(clip(mean, C=2.0), z=0, c=0.1)")
    quiet, _ = silent.combine(silent.init(), sent, Reports(items), np.array([0.5, 0.5]), True)
    assert float(quiet.parameters["w"][0]) == pytest.approx(2 * 0.1 * 2.0, rel=1e-5)


def test_a_private_run_goes_on_to_the_same_bytes(digits: Pooled, tmp_path) -> None:  # type: ignore[no-untyped-def]
    from fedalpha.runs.callbacks import Callback
    from histories import same_model

    class Stop(Callback):
        def on_round(self, row, state):  # type: ignore[no-untyped-def]
            if row["round"] == 1:
                raise KeyboardInterrupt

    arguments = {
        "rounds": 3,
        "engine": "embedded(workers=1)",
        "combine": "noise(clip(mean, C=1.0), z=0.1, c=0.2, seed=5)",
    }
    whole = fedalpha.run(digits, "softmax", "cap(FedAvg, 0.2)", **arguments)
    with pytest.raises(KeyboardInterrupt):
        fedalpha.run(digits, "softmax", "cap(FedAvg, 0.2)", **arguments, out=tmp_path, callbacks=[Stop()])
    assert same_model(whole, fedalpha.run(digits, "softmax", "cap(FedAvg, 0.2)", **arguments, out=tmp_path))


def test_senseless_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="no privacy"):
        privacy.epsilon(0.0, 1, 1e-5)
    with pytest.raises(ValueError, match="rounds"):
        privacy.epsilon(1.0, 0, 1e-5)
    with pytest.raises(ValueError, match="C = 0"):
        privacy.sensitivity("FedWorse(k=2)", 0)
