"""Superquantile by hand."""

from __future__ import annotations

import numpy as np
import pytest

import fedalpha
from fedalpha.strategies import STRATEGIES


def test_superquantile_by_hand() -> None:
    """Sizes 1, 2, 3, 4 with losses 4, 3, 2, 1: masses from below are 0.4, 0.7, 0.9, 1."""
    losses, sizes = [4, 3, 2, 1], [1, 2, 3, 4]
    np.testing.assert_allclose(fedalpha.weights("Superquantile(tail=0.1)", losses, sizes), [1 / 3, 2 / 3, 0, 0])
    np.testing.assert_allclose(fedalpha.weights("Superquantile(tail=0.09)", losses, sizes), [1, 0, 0, 0])
    np.testing.assert_allclose(fedalpha.weights("Superquantile(tail=0.5)", losses, sizes), [1 / 6, 2 / 6, 3 / 6, 0])
    np.testing.assert_allclose(fedalpha.weights("Superquantile(tail=1)", losses, sizes), [0.1, 0.2, 0.3, 0.4])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Superquantile(tail=0)", "tail = 0; give the share"),
    ],
)
def test_bad_arguments_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        STRATEGIES.parse(text)
