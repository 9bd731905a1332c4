"""Shared by the tests: a small federation, and how hypothesis draws (the same every time)."""

from __future__ import annotations

import os
import tempfile

import hypothesis
import pytest

from fedalpha import federation
from fedalpha.data import Pooled

hypothesis.settings.register_profile(
    "fedalpha",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],  # a busy machine is no failure
)
hypothesis.settings.load_profile("fedalpha")
# What tests allow is not remembered for the user who runs them.
os.environ["FEDALPHA_STATE"] = tempfile.mkdtemp(prefix="fedalpha-tests-")


@pytest.fixture(scope="session")
def digits() -> Pooled:
    """Digits, split unevenly over 12 clients, with a validation part."""
    return federation("digits", partition="shards(size=30)", clients=12, seed=0, validation=0.1)
