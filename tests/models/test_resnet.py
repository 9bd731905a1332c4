"""Residual networks in federated runs."""

from __future__ import annotations

import pytest
import torch

import fedalpha
from fedalpha.models import MODELS

X = torch.rand(48, 3, 8, 8, generator=torch.Generator().manual_seed(0))
Y = torch.arange(48) % 3


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_it_trains_to_the_same_bytes_with_any_number_of_workers(norm: str) -> None:
    data = fedalpha.federation((X + Y.view(-1, 1, 1, 1), Y), clients=3)
    options = {"rounds": 2, "update": "sgd(lr=0.1, batch=4, drop_last=true)"}
    one, two = (
        fedalpha.run(data, f"resnet(norm={norm})", **options, engine=f"embedded(workers={workers})")
        for workers in (1, 2)
    )
    assert all(torch.equal(value, two.model[name]) for name, value in one.model.items())
    assert one.loss[-1] != one.loss[0]
    buffers = [name for name in one.model if "running" in name]
    assert bool(buffers) == (norm == "batch")
    assert all(one.model[name].isfinite().all() for name in buffers)


def test_depth_and_width_are_checked() -> None:
    for text, said in (
        ("resnet(depth=9)", "6n"),
        ("resnet(width=7)", "multiple of 8"),
        ("resnet(norm=layer)", "group"),
    ):
        with pytest.raises(ValueError, match=said):
            MODELS.parse(text)
    blocks = len([m for m in MODELS.parse("resnet(depth=20)").layers((3, 32, 32), 10) if type(m).__name__ == "_Block"])
    assert blocks == 9
