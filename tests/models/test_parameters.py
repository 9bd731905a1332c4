"""Initial parameters and fingerprints."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedalpha.models import Template, fingerprint, initial, same_fingerprint


def test_the_seed_decides_and_the_global_generator_is_left_alone() -> None:
    state = torch.get_rng_state()
    a, b, c = (initial("mlp", (8,), 3, seed=s)[1]["layer1.weight"] for s in (1, 1, 2))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_module_starts_from_its_own_parameters() -> None:
    module = nn.Linear(8, 3)
    architecture, values = initial(module, (8,), 3, seed=0)
    assert isinstance(architecture, Template)
    assert torch.equal(values["weight"], module.weight)
    assert values["weight"].data_ptr() != module.weight.data_ptr()


def test_a_function_is_called_under_the_seed() -> None:
    a, b, c = (initial(lambda: nn.Linear(8, 3), (8,), 3, seed=s)[1]["weight"] for s in (1, 1, 2))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


def test_what_is_not_a_model_is_refused() -> None:
    with pytest.raises(TypeError, match=r"nn\.Module"):
        initial(lambda: 3, (8,), 3, seed=0)  # type: ignore[arg-type,return-value]


def test_a_fingerprint_forgives_last_bits_and_nothing_else() -> None:
    _, values = initial("mlp", (8,), 3, seed=1)
    nearly = {name: value * (1 + 1e-6) for name, value in values.items()}
    _, other = initial("mlp", (8,), 3, seed=2)
    assert same_fingerprint(fingerprint(values), fingerprint(nearly))
    assert not same_fingerprint(fingerprint(values), fingerprint(other))
    assert not same_fingerprint(fingerprint(values), None)
