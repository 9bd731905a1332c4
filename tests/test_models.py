"""Models and their initial parameters."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedalpha.models import MODELS, initial


def parameters(text: str, shape: tuple[int, ...] = (1, 28, 28)) -> int:
    _, values = initial(text, shape, 10, seed=0)
    return sum(v.numel() for v in values.values())


def test_the_papers_cnn_has_the_papers_size() -> None:
    assert parameters("cnn") == 34_826
    assert parameters("cnn(hidden=1600)") == 320 + 18_496 + 1600 * 1600 + 1600 + 16_010


def test_pooling_before_relu_is_the_papers_function() -> None:
    architecture, values = initial("cnn", (1, 28, 28), 10, seed=1)
    ours = architecture.build()
    ours.load_state_dict(values)
    theirs = nn.Sequential(
        ours.conv1, nn.ReLU(), nn.MaxPool2d(2), ours.conv2, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), ours.output
    )
    x = torch.rand(4, 1, 28, 28)
    assert torch.equal(ours(x), theirs(x))


def test_small_models() -> None:
    assert parameters("softmax", (1, 8, 8)) == 650
    assert parameters("mlp(hidden=[20, 30])", (64,)) == 64 * 20 + 20 + 600 + 30 + 310
    assert parameters("mlp(hidden=20)", (64,)) == parameters("mlp(hidden=[20])", (64,))


@pytest.mark.parametrize("entry", list(MODELS), ids=lambda e: e.name)
def test_text_round_trip(entry: object) -> None:
    for text in entry.examples:  # type: ignore[attr-defined]
        assert MODELS.parse(str(MODELS.parse(text))) == MODELS.parse(text)


def test_the_seed_decides_and_the_global_generator_is_left_alone() -> None:
    state = torch.get_rng_state()
    a, b, c = (initial("mlp", (8,), 3, seed=s)[1]["layer1.weight"] for s in (1, 1, 2))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    assert torch.equal(torch.get_rng_state(), state)


def test_what_is_not_a_model_is_refused() -> None:
    with pytest.raises(TypeError, match=r"nn\.Module"):
        initial(lambda: 3, (8,), 3, seed=0)  # type: ignore[arg-type,return-value]
    with pytest.raises(ValueError, match="width"):
        MODELS.parse("mlp(hidden=0)")
