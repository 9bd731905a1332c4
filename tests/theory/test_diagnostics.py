from __future__ import annotations

import json

import pytest

from fedalpha.theory.diagnostics import diagnostics
from fedalpha.theory.quantities import skew


def test_by_hand() -> None:
    found = diagnostics([0.2, 0.3, 0.5], [50, 25, 25], losses=[4, 2, 1], optima=[1, 0, 0.5])
    assert found["rho"] == pytest.approx(float(skew([0.2, 0.3, 0.5], [0.5, 0.25, 0.25], [3, 2, 0.5])))
    assert (found["pi"], found["Pi"]) == pytest.approx((0.4, 2.0))
    assert found["effective_clients"] == pytest.approx(1 / 0.38)
    assert found["heaviest"] == 0.5


def test_fedavg_needs_no_losses() -> None:
    assert diagnostics([0.75, 0.25], [30, 10]) == {
        "rho": 1,
        "pi": 1,
        "Pi": 1,
        "effective_clients": 1.6,
        "heaviest": 0.75,
    }


def test_what_is_unknown_is_none_and_all_is_json() -> None:
    cases = [
        diagnostics([1, 0], [1, 1]),
        diagnostics([1, 0], [1, 1], losses=[0, 0]),
        diagnostics([0.5, 0.5], [1, 0], losses=[1, 2]),
        diagnostics([0, 0], [1, 1], losses=[1, 2]),
        diagnostics([3, 1], [1, 1], losses=[1, 2]),  # coefficients off the simplex are read as shares
    ]
    assert cases[0]["rho"] is None
    assert cases[1]["rho"] is None
    assert cases[2]["Pi"] is None
    assert set(cases[3].values()) == {None}
    assert cases[4]["heaviest"] == 0.75
    for case in cases:
        json.dumps(case, allow_nan=False)
