"""FedAWA against autograd and torch's Adam on the vectors themselves."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fedalpha
from fedalpha.data import Pooled
from fedalpha.strategies import STRATEGIES, Cohort, strategy


@pytest.mark.parametrize("epochs", [1, 4])
def test_weights_by_autograd(epochs: int) -> None:
    rng = np.random.default_rng(0)
    rule, sizes = strategy(f"FedAWA(lr=0.05, epochs={epochs})"), np.array([1.0, 2, 3, 4])
    state, logits = rule.init(4), torch.tensor(sizes / 10)
    for round in range(3):
        sent = torch.tensor(rng.normal(size=7))
        models = sent + torch.tensor(rng.normal(size=(4, 7)))
        moves = models - sent
        logits = logits.detach().requires_grad_()
        adam = torch.optim.Adam([logits], lr=0.05, betas=(0.5, 0.999))
        cosines = torch.nn.functional.cosine_similarity(models, sent[None])
        for _ in range(epochs):
            alpha = logits.softmax(0)
            loss = (alpha * (1 - cosines)).sum() + (alpha * (moves - alpha @ moves).norm(dim=1)).sum()
            adam.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            adam.step()
        cohort = Cohort(
            ids=np.arange(4), sizes=sizes, gram=(moves @ moves.T).numpy(), cosines=cosines.numpy(), round=round
        )
        found, state = rule.weights(state, cohort)
        np.testing.assert_allclose(found, alpha.detach().numpy(), rtol=1e-6)
        np.testing.assert_allclose(state["values"], logits.detach().numpy(), rtol=1e-6)


def test_cosines_come_from_the_models(digits: Pooled) -> None:
    history = fedalpha.run(digits, "mlp", "FedAWA(lr=0.5)", rounds=3, engine="embedded(workers=1)")
    first, last = history.rows[1]["alpha"], history.rows[3]["alpha"]
    assert np.ptp(last) > np.ptp(first) > 0
    with pytest.raises(ValueError, match="epochs = 0"):
        STRATEGIES.parse("FedAWA(epochs=0)")
