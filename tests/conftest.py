"""Shared by the tests: a small federation, and how hypothesis draws (the same every time)."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module

import hypothesis
import pytest

from fedalpha import federation, plugins
from fedalpha.cli.kinds import KINDS
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


@pytest.fixture(autouse=True)
def _environment_of_this_test_alone() -> Iterator[None]:
    """Undo what libraries write into the environment, as torch, Ray and Flower do when they are first used.

    With other variables than those of its server, every later command would need an interpreter of its own.
    """
    before = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    yield
    for name in [name for name in os.environ if name not in before and not name.startswith("PYTEST_")]:
        del os.environ[name]
    os.environ.update(before)


@pytest.fixture(autouse=True)
def _plugins_of_this_test_alone() -> Iterator[None]:
    """Forget the plugins that a test loads: other tests read what is registered, in any order."""
    before = set(plugins._loaded.items())
    yield
    gone = {f"fedalpha_plugin_{digest}" for _, digest in set(plugins._loaded.items()) - before}
    if not gone:
        return
    plugins._loaded.clear()
    plugins._loaded.update(before)
    for module, name, _ in KINDS.values():
        registry = getattr(import_module(module), name)
        entries = registry._entries if hasattr(registry, "_entries") else registry._classes
        for key, made in list(entries.items()):
            if getattr(made, "make", made).__module__ in gone:
                del entries[key]
    for module in gone:
        sys.modules.pop(module, None)
