"""The paper's CNN."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedalpha.models import cnn, initial


def test_it_has_the_papers_size() -> None:
    def parameters(text: str) -> int:
        return sum(v.numel() for v in initial(text, (1, 28, 28), 10, seed=0)[1].values())

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


@pytest.mark.parametrize("shape", [(1, 8, 8), (60,)])
def test_data_that_it_cannot_take_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="use mlp or softmax instead"):
        cnn().layers(shape, 10)
