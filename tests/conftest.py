"""Shared by the tests: a small federation."""

from __future__ import annotations

import pytest

from fedalpha import federation
from fedalpha.data import Pooled


@pytest.fixture(scope="session")
def digits() -> Pooled:
    """Digits, split unevenly over 12 clients, with a validation part."""
    return federation("digits", partition="shards(size=30)", clients=12, seed=0, validation=0.1)
