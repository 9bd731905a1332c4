"""FedLWS, tensor by tensor."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedalpha.combine import COMBINES, Reports, fedlws
from fedalpha.models import initial
from fedalpha.update import Broadcast, Report


def test_each_layer_shrinks_by_its_own_factor() -> None:
    rng = torch.Generator().manual_seed(0)
    sent = Broadcast(*initial("mlp(hidden=[5])", (4,), 3, 0))
    models = [{k: v + 0.3 * torch.randn(v.shape, generator=rng) for k, v in sent.parameters.items()} for _ in range(3)]
    alpha = np.array([0.5, 0.3, 0.2])
    reports = Reports([Report(i, m, {}, 1, 1) for i, m in enumerate(models)])
    found, _ = fedlws(beta=0.1, low=0.01, high=0.3).combine({}, sent, reports, alpha, True)
    for layer in ("layer1", "output"):
        names = [f"{layer}.weight", f"{layer}.bias"]
        old = np.concatenate([sent.parameters[n].numpy().ravel() for n in names]).astype(float)
        each = [np.concatenate([m[n].numpy().ravel() for n in names]).astype(float) for m in models]
        mean = sum(a * w for a, w in zip(alpha, each, strict=True))
        moves = [w - old for w in each]
        apart = np.mean([np.linalg.norm(move - np.mean(moves, axis=0)) for move in moves])
        tau = np.clip(0.1 * apart, 0.01, 0.3)
        gamma = np.linalg.norm(old) / (np.linalg.norm(old) + tau * np.linalg.norm(mean - old))
        assert 0.01 < tau < 0.3
        got = np.concatenate([found.parameters[n].numpy().ravel() for n in names])
        np.testing.assert_allclose(got, gamma * mean, rtol=2e-6, atol=1e-7)
    with pytest.raises(ValueError, match="above high"):
        COMBINES.parse("fedlws(low=1, high=0.5)")
