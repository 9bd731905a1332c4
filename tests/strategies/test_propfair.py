"""PropFair: the gradient of the product of utilities."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fedalpha
from fedalpha.strategies import STRATEGIES


def test_weights_are_the_gradient_of_the_log_utilities() -> None:
    losses = torch.tensor([0.5, 1.0, 3.5], dtype=torch.float64, requires_grad=True)
    p = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    (-(p * (4 - losses).log()).sum()).backward()  # type: ignore[no-untyped-call]
    assert losses.grad is not None
    expected = (losses.grad / losses.grad.sum()).numpy()
    np.testing.assert_allclose(fedalpha.weights("PropFair(M=4)", [0.5, 1.0, 3.5], [2, 3, 5]), expected, rtol=1e-12)
    above = fedalpha.weights("PropFair(M=4, epsilon=0.5)", [3.0, 9.0])  # a loss above M counts as a utility of 0.5
    np.testing.assert_allclose(above, [1 / 3, 2 / 3])
    with pytest.raises(ValueError, match="M = 0"):
        STRATEGIES.parse("PropFair(M=0)")
