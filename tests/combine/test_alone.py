"""What a linear rule does to one update alone happens before it is added: no engine holds the cohort."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fedalpha
from fedalpha.combine import COMBINES, Reports, Sum, blocks
from fedalpha.combine.sums import Scale
from fedalpha.data import Pooled
from fedalpha.flower.sums import Running
from fedalpha.models import Parameters
from fedalpha.round import Train
from fedalpha.update import Broadcast, Report
from histories import same_model, without_times

RULES = ["mean", "clip(mean, C=2.5)", "clip(clip(mean, C=3), C=2.5)", "noise(clip(mean, C=2.5), z=0.1, c=0.2)"]


def model(rng: np.random.Generator, far: float) -> Parameters:
    w = torch.from_numpy((far * rng.normal(size=(3, 4))).astype(np.float32))
    return {"w": w, "half": w[0].to(torch.float16), "n": torch.tensor(int(rng.integers(100)))}


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 150), st.integers(0, 99), st.sampled_from(RULES))
def test_a_sum_of_scaled_updates_is_the_bytes_of_the_collected_ones(m: int, seed: int, text: str) -> None:
    """In torch block by block, in any split, and in NumPy as replies come in."""
    rng, rule = np.random.default_rng(seed), COMBINES.parse(text)
    sent = Broadcast(None, model(rng, 1.0))  # type: ignore[arg-type]
    models = [model(rng, far) for far in rng.choice([0.0, 0.3, 1.0, 30.0], m)]
    alpha = rng.dirichlet(np.full(m, 0.3)) + 1e-9
    items = [Report(i, one, {}, 1, 1) for i, one in enumerate(models)]
    bare = [Report(i, None, {}, 1, 1) for i in range(m)]
    expected, _ = rule.combine(rule.init(), sent, Reports(items), alpha, True)

    given_, alone = rule.weights(alpha), rule.alone
    total, scale = Sum(), None if alone is None else Scale(alone, sent.parameters)
    for block in blocks(m):
        part, cut = Sum(), int(rng.integers(block.start, block.stop + 1))
        for some in (range(block.start, cut), range(cut, block.stop)):
            if some:
                stack = {name: torch.stack([models[i][name] for i in some]) for name in models[0]}
                part.add_stack([float(given_[i]) for i in some], stack, scale)
        total.merge(part)
    running = Running(given_, alone, {name: value.numpy() for name, value in sent.parameters.items()})
    for place, one in enumerate(models):
        running.add(place, {name: value.numpy() for name, value in one.items()})
    live = Sum({name: torch.from_numpy(np.asarray(v)) for name, v in running.total().items()}, running.heaviest)
    for reports in (Reports.of_sum(bare, total, sent), Reports(bare, live, final=True)):
        found, _ = rule.combine(rule.init(), sent, reports, alpha, True)
        for name, value in expected.parameters.items():
            assert found.parameters[name].numpy().tobytes() == value.numpy().tobytes(), name


@pytest.mark.parametrize("combine", RULES[1:])
def test_a_run_has_the_same_bytes_however_its_models_are_added(
    digits: Pooled, combine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one worker and two, one client at a time and many, and where the models were collected."""
    same: dict[str, Any] = {"rounds": 2, "update": "sgd(lr=0.5)", "combine": combine}
    runs = [
        fedalpha.run(digits, "mlp(hidden=[8])", "cap(FedAvg, 0.2)", **same, engine=f"embedded({engine})")
        for engine in ("workers=1", "workers=2")
    ]
    # A fault changes reports one by one, so the engine must collect them; nobody is lost here.
    same["fault"] = "drop(clients=[])"
    runs.append(fedalpha.run(digits, "mlp(hidden=[8])", "cap(FedAvg, 0.2)", **same, engine="embedded(workers=1)"))
    for other in runs[1:]:
        assert same_model(runs[0], other)
        assert without_times(runs[0])[-1]["alpha"] == without_times(other)[-1]["alpha"]


def test_the_lost_weight_of_a_private_sum_stays_with_the_current_model(digits: Pooled) -> None:
    """No other weight rises above what the noise covers."""
    rule = "noise(clip(mean, C=1), z=0, c=0.3)"
    runs = [
        fedalpha.run(digits, "softmax", "cap(FedAvg, 0.3)", rounds=1, combine=rule, fault=fault)
        for fault in (None, "drop(clients=[0, 1])")
    ]
    whole, left = (np.array(run.rows[-1]["alpha"]) for run in runs)
    assert left[:2].tolist() == [0.0, 0.0]
    assert left[2:].tolist() == whole[2:].tolist()


def test_a_clipped_sum_holds_as_little_for_many_clients_as_for_few() -> None:
    """Sums, the update at hand and the pieces that are worked on, in models; torch's memory is NumPy's here."""
    size, rng = 1 << 18, np.random.default_rng(0)
    sent = {"w": np.zeros(size, dtype=np.float32)}
    rule, peaks = COMBINES.parse("clip(mean, C=1)"), []
    for clients in (10, 200):
        running = Running(np.full(clients, 1 / clients), rule.alone, sent)
        tracemalloc.start()
        for place in range(clients):
            running.add(place, {"w": rng.random(size, dtype=np.float32)})
        running.total()
        peaks.append(tracemalloc.get_traced_memory()[1] / sent["w"].nbytes)
        tracemalloc.stop()
    assert max(peaks) < 8


def test_an_update_that_is_not_finite_makes_the_sum_unusable() -> None:
    """So that the clients are asked one by one and the gate finds which it was."""
    sent = {"w": torch.zeros(3)}
    rule = COMBINES.parse("clip(mean, C=1)")
    assert rule.alone is not None
    for bad in (float("nan"), float("inf")):
        total, scale = Sum(), Scale(rule.alone, sent)
        total.add(0.5, {"w": torch.ones(3)}, scale)
        total.add(0.5, {"w": torch.tensor([1.0, bad, 1.0])}, scale)
        broadcast = Broadcast(None, sent)  # type: ignore[arg-type]
        assert not Reports.of_sum([], total, broadcast).finite(broadcast)
    assert Train(0, np.arange(2)).alone is None
