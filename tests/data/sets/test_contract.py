"""Every registered data set: what it says of itself is true of its samples."""

from __future__ import annotations

import os

import numpy as np
import pytest

from fedalpha.data import DATASETS, DataUnavailable, Natural, Partitioned
from fedalpha.models import MODELS

EXAMPLES = [entry.examples[0] for entry in DATASETS]


@pytest.mark.parametrize("text", EXAMPLES)
def test_text_parses_back_to_an_equal_object(text: str) -> None:
    data = DATASETS.parse(text)
    assert DATASETS.parse(str(data)) == data
    assert DATASETS.parse(data) is data


@pytest.mark.parametrize("text", EXAMPLES)
def test_its_samples_are_as_it_says(text: str) -> None:
    data = DATASETS.parse(text)
    try:
        found = data.make(3, seed=0) if isinstance(data, Natural) else [data.load()]
    except DataUnavailable as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))
    for one in found:
        assert one.train_x.shape == (len(one.train_y), *data.shape)
        assert one.train_y.min() >= 0
        assert one.train_y.max() < len(data.class_names)
    if isinstance(data, Partitioned):
        assert (len(found[0].train_x), len(found[0].test_x)) == data.samples
        assert len(np.unique(found[0].train_y)) == len(data.class_names)
        if found[0].train_x.dtype == np.uint8:  # pixels
            assert found[0].train_x.max() == data.scale


@pytest.mark.parametrize("entry", list(DATASETS), ids=lambda entry: entry.name)
def test_it_says_where_it_comes_from_and_can_be_trained(entry) -> None:
    assert entry.reference
    assert entry.summary
    data = DATASETS.parse(entry.examples[0])
    MODELS.parse(data.model).layers(data.shape, len(data.class_names))


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("digit", "'digits'"), ("FashionMNIST", "'fashion-mnist'"), ("fashion-mnst", "'fashion-mnist'"), ("zzz", "")],
)
def test_unknown_names(name: str, nearest: str) -> None:
    with pytest.raises(
        ValueError, match=f"unknown data set '{name}'.*{nearest}.*known: cifar10, digits, fashion-mnist, mnist"
    ):
        DATASETS.parse(name)
