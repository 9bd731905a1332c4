"""Federations whose clients are made on demand."""

from __future__ import annotations

import numpy as np

from fedalpha.data import Generated


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
