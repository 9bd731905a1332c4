"""FedLAW: learning on the server's data, in a run and by itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fedalpha
from fedalpha.combine import Reports, fedlaw
from fedalpha.data import Pooled
from fedalpha.models import initial
from fedalpha.update import Broadcast, Report
from histories import same_model


@pytest.fixture(scope="module")
def data() -> Pooled:
    return fedalpha.federation("digits", partition="shards(size=30)", clients=6, seed=0, validation=0.2)


def test_a_useless_model_loses_its_weight(data: Pooled) -> None:
    """Client 0 sends a trained model, client 1 noise: λ moves to client 0, and the server's loss falls."""
    good = fedalpha.run(data, "softmax", rounds=8, engine="embedded(workers=1)").model
    noise = {k: torch.randn(v.shape, generator=torch.Generator().manual_seed(0)) for k, v in good.items()}
    sent = Broadcast(*initial("softmax", data.shape, 10, 0))
    reports = Reports([Report(i, m, {}, 1, 1) for i, m in enumerate((good, noise))])
    found = fedlaw(lr=0.1, epochs=20).learn(sent, reports, np.array([0.5, 0.5]), data)
    assert found[0] > 5 * found[1] > 0
    learnt, _ = fedlaw().combine({}, sent, reports, found, True)
    for name, value in learnt.parameters.items():
        torch.testing.assert_close(value, (found[0] * good[name] + found[1] * noise[name]).float())


def test_in_a_run_the_history_has_what_was_learnt(data: Pooled) -> None:
    same = {"rounds": 2, "combine": "fedlaw(lr=0.1, epochs=3)", "select": "uniform(C=0.5)", "seed": 1}
    runs = [fedalpha.run(data, "mlp", **same, engine=f"embedded(workers={w})") for w in (1, 2)]
    assert same_model(*runs)
    row, sizes = runs[0].rows[1], data.sizes(np.array(runs[0].rows[1]["cohort"]))
    assert sum(row["alpha"]) != pytest.approx(1, abs=1e-6)  # γ
    assert np.abs(np.array(row["alpha"]) - sizes / sizes.sum()).max() > 1e-3


def test_what_it_cannot_do_is_refused(data: Pooled) -> None:
    without = fedalpha.federation("digits", clients=3, seed=0)
    with pytest.raises(ValueError, match="data of the server's own"):
        fedalpha.run(without, "mlp", rounds=1, combine="fedlaw")
    with pytest.raises(ValueError, match="write fedlaw"):
        fedalpha.run(data, "mlp", rounds=1, combine="clip(fedlaw, C=1)")
    with pytest.raises(ValueError, match="starts from weights on the simplex"):
        fedalpha.run(data, "mlp", "FedNova", rounds=1, combine="fedlaw")
