"""qFedAvg against the reference written out, and what it is for."""

from __future__ import annotations

import numpy as np
import pytest

import fedalpha
from fedalpha.data import Pooled
from fedalpha.strategies import STRATEGIES


def test_q_fedavg_equals_the_reference_written_out() -> None:
    """w − ΣΔ/Σh with Δ_k = F_k^q·(w − w_k)/lr, h_k = q·F_k^(q−1)·‖(w − w_k)/lr‖² + F_k^q/lr."""
    rng = np.random.default_rng(0)
    for q, lr in ((0.5, 0.1), (1, 0.05), (5, 1.0)):
        w, models, losses = rng.normal(size=4), rng.normal(size=(3, 4)), rng.uniform(0.1, 3, size=3)
        gradients = (w - models) / lr
        deltas = losses[:, None] ** q * gradients
        h = q * losses ** (q - 1) * (gradients**2).sum(axis=1) + losses**q / lr
        expected = w - deltas.sum(axis=0) / h.sum()
        norms = np.linalg.norm(models - w, axis=1)
        alpha = fedalpha.weights(f"qFedAvg(q={q}, lr={lr})", losses, norms=norms)
        np.testing.assert_allclose(w + alpha @ (models - w), expected, rtol=1e-7)


def test_q_zero_is_the_uniform_mean() -> None:
    np.testing.assert_allclose(fedalpha.weights("qFedAvg(q=0)", [1, 2, 3], [5, 1, 1], norms=[1, 2, 3]), 1 / 3)


def test_q_fedavg_uses_the_loss_of_the_received_model(digits: Pooled) -> None:
    row = fedalpha.run(digits, "softmax", "qFedAvg(q=2)", rounds=1, engine="embedded(workers=1)").rows[1]
    ratios = np.array(row["alpha"]) / np.array(row["losses"]["before"]) ** 2
    np.testing.assert_allclose(ratios, ratios[0], rtol=1e-6)


def test_q_fedavg_evens_out_the_losses(digits: Pooled) -> None:
    def spread(text: str) -> float:
        losses = fedalpha.run(
            digits, "softmax", f"switch({text}, FedSoftWorse, at=29)", rounds=30, engine="embedded(workers=1)"
        ).rows[-1]
        return float(np.std(losses["losses"]["before"]))

    assert spread("qFedAvg(q=3)") < spread("FedAvg")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("qFedAvg(q=-1)", "q = -1; give a number ≥ 0"),
        ("qFedAvg(lr=0)", "lr = 0; give a number > 0"),
    ],
)
def test_bad_arguments_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        STRATEGIES.parse(text)


def test_negative_losses_are_refused_where_powers_are_taken() -> None:
    with pytest.raises(ValueError, match="qFedAvg needs losses ≥ 0"):
        fedalpha.weights("qFedAvg(q=1)", [-1, 1], norms=[1, 1])
