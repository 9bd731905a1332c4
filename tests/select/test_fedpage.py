"""FedPAGE's selection: everybody at first and with chance p, a sample otherwise."""

from __future__ import annotations

import numpy as np
import pytest

from fedalpha.select import SELECTIONS
from fedalpha.select.fedpage import everybody


class Crowd:
    clients = 10

    def named(self, places: np.ndarray) -> np.ndarray:
        return places

    def sizes(self, ids: np.ndarray) -> np.ndarray:
        return np.ones(len(ids))

    def optima(self, ids: np.ndarray) -> None:
        return None


def test_everybody_at_first_then_as_the_coin_falls() -> None:
    rule, full = SELECTIONS.parse("fedpage(count=3, p=0.25)"), 0
    ids, begun = rule.select(rule.init(10), Crowd(), None, np.random.default_rng(0))
    assert ids.tolist() == list(range(10))
    for seed in range(400):
        ids, state = rule.select(begun, Crowd(), None, np.random.default_rng(seed))
        assert state == begun
        assert len(set(ids.tolist())) == len(ids) == (10 if everybody(np.random.default_rng(seed), 0.25) else 3)
        full += len(ids) == 10
    assert 70 < full < 130


@pytest.mark.parametrize("text", ["fedpage(p=0)", "fedpage(p=2)", "fedpage(C=2)"])
def test_wrong_settings_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="fedpage: "):
        SELECTIONS.parse(text)
