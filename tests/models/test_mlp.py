"""The fully connected network."""

from __future__ import annotations

import pytest

from fedalpha.models import MODELS, mlp


def test_hidden_is_a_width_or_a_list_of_widths() -> None:
    values = mlp(hidden=[20, 30]).layers((64,), 10).state_dict().values()
    assert sum(v.numel() for v in values) == 64 * 20 + 20 + 600 + 30 + 310
    assert mlp(hidden=20) == mlp(hidden=[20])
    assert str(mlp(hidden=20)) == "mlp(hidden=[20])"


@pytest.mark.parametrize("text", ["mlp(hidden=0)", "mlp(hidden=[])", "mlp(hidden=2.5)", "mlp(hidden=true)"])
def test_what_is_not_a_width_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="width"):
        MODELS.parse(text)
