"""Federations: clients made on demand, what they say about themselves and how they are drawn."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from fedalpha.data import Generated, Pooled, federation


def test_generated_clients_are_made_on_demand() -> None:
    made: list[int] = []

    def client(id: int) -> tuple[np.ndarray, np.ndarray]:
        made.append(id)
        return np.full((2, 3), id, dtype=np.float32), np.zeros(2, dtype=int)

    crowd = Generated(10**9, client, lambda ids: np.full(len(ids), 2), client(0), classes=2)
    made.clear()
    assert crowd.sizes(np.array([5, 10**8])).tolist() == [2, 2]
    assert made == []
    assert crowd.client(7).x.tolist() == [[7.0] * 3] * 2


def test_a_federation_says_what_it_holds(digits: Pooled) -> None:
    assert repr(digits).startswith("Pooled(digits: 12 clients, 1,29")
    assert "10 classes, 359 test samples, 144 validation samples, shape (1, 8, 8)" in repr(digits)
    assert repr(digits).endswith("partition = shards(size=30), seed = 0)")
    assert "<td>samples per client</td>" in digits._repr_html_()
    small = federation((np.zeros((10, 3)), np.zeros(10)), clients=2, task="mse")
    assert repr(small) == "Pooled(2 clients, 8 training samples (4 a client), 1 value to predict, " + (
        "2 test samples, 3 features, partition = iid, seed = 0)"
    )
    crowd = Generated(3, lambda id: (np.zeros((1, 2)), np.zeros(1, dtype=int)), np.ones_like, digits.test, classes=10)
    assert "3 clients, 10 classes" in repr(crowd)


def test_a_federation_draws_itself(digits: Pooled) -> None:
    whole = digits.plot()
    assert len(whole.axes) == 2
    assert whole._repr_png_()[:4] == b"\x89PNG"  # type: ignore[attr-defined]  # what a notebook shows
    figure = Figure()
    ax = figure.subplots()
    assert digits.plot(ax) is figure
    assert len(ax.patches) == 12 * 10
    real = federation((np.zeros((10, 3)), np.zeros(10)), clients=2, task="mse")
    assert len(real.plot().axes) == 2
    hidden = federation((np.zeros((20, 3)), np.array(["<a>", "b"] * 10)), clients=2)
    assert [label.get_text() for label in hidden.plot().axes[1].get_yticklabels()] == ["<a>", "b"]
