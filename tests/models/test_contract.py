"""Every registered model: its text, and the module it builds."""

from __future__ import annotations

import pytest
import torch

from fedalpha.models import MODELS

EXAMPLES = [text for entry in MODELS for text in entry.examples]


@pytest.mark.parametrize("text", EXAMPLES)
def test_text_parses_back_to_an_equal_object(text: str) -> None:
    assert MODELS.parse(str(MODELS.parse(text))) == MODELS.parse(text)


@pytest.mark.parametrize("text", EXAMPLES)
def test_it_gives_one_value_per_class(text: str) -> None:
    module = MODELS.parse(text).layers((1, 28, 28), 7)
    assert module(torch.zeros(2, 1, 28, 28)).shape == (2, 7)


@pytest.mark.parametrize("entry", list(MODELS), ids=lambda entry: entry.name)
def test_it_says_what_it_is(entry) -> None:
    assert entry.formula
    assert entry.summary
