"""Every registered model: its text, and the module it builds."""

from __future__ import annotations

import pytest
import torch

from fedalpha.models import MODELS
from fedalpha.models.symbols import SymbolModel

EXAMPLES = [text for entry in MODELS for text in entry.examples]


@pytest.mark.parametrize("text", EXAMPLES)
def test_text_parses_back_to_an_equal_object(text: str) -> None:
    assert MODELS.parse(str(MODELS.parse(text))) == MODELS.parse(text)


@pytest.mark.parametrize("text", EXAMPLES)
def test_it_gives_one_value_per_class(text: str) -> None:
    model = MODELS.parse(text)
    if not isinstance(model, SymbolModel):
        assert model.layers((1, 28, 28), 7)(torch.zeros(2, 1, 28, 28)).shape == (2, 7)
        return
    found = model.layers((12,), 7)(torch.arange(24).view(2, 12) % 7)
    assert found.shape == ((2, 7) if model.last else (2, 7, 12))
    with pytest.raises(ValueError, match="sequences of symbols"):
        model.layers((1, 28, 28), 7)


@pytest.mark.parametrize("entry", list(MODELS), ids=lambda entry: entry.name)
def test_it_says_what_it_is(entry) -> None:
    assert entry.formula
    assert entry.summary
