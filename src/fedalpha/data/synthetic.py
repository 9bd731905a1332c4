"""Synthetic(a, b): made-up clients, each with its own linear model and its own features.

Client k draws u_k ~ N(0, a) and B_k ~ N(0, b); its model has W_k, b_k ~ N(u_k, 1), its features
x ~ N(v_k, Σ) with v_k ~ N(B_k, 1) and Σ = diag(j^−1.2); y = argmax(x·W_k + b_k). a steers how much the clients'
models differ, b how much their features do. Sizes are log-normal.
Reference: Li et al., Federated optimization in heterogeneous networks, 2020, 1812.06127.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedalpha.rng import generator
from fedalpha.text import Registry, Spelled

Clients = list[tuple[NDArray[np.float32], NDArray[np.int64]]]


class Maker(Spelled):
    """A data set that is made, client by client."""

    def make(self, clients: int, seed: int) -> Clients:
        """(X, y) of every client."""
        raise NotImplementedError


MADE: Registry[Maker] = Registry("made-up data set", Maker)


@MADE.register(
    formula="y = argmax(x·W_k + b_k), W_k ~ N(u_k, 1), u_k ~ N(0, a), x ~ N(v_k, Σ), v_k ~ N(B_k, 1), B_k ~ N(0, b)",
    reference="Li et al., 2020, 1812.06127",
    examples=("synthetic(a=1, b=1)",),
)
@dataclass(frozen=True, eq=False, repr=False)
class synthetic(Maker):  # noqa: N801 - written in lower case
    """Synthetic(a, b) with ``features`` features and ``classes`` classes; at least ``least`` samples a client.

    >>> clients = synthetic(a=1, b=1).make(3, seed=0)
    >>> clients[0][0].shape[1], len(clients)
    (60, 3)
    """

    a: float = 1.0
    b: float = 1.0
    features: int = 60
    classes: int = 10
    least: int = 50

    text_name: ClassVar[str] = "synthetic"

    def __post_init__(self) -> None:
        for name in ("a", "b"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"synthetic: {name} = {getattr(self, name)!r}; give a variance ≥ 0")
        for name in ("features", "classes", "least"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 2:
                raise ValueError(f"synthetic: {name} = {getattr(self, name)!r}; give a whole number of at least 2")

    def make(self, clients: int, seed: int) -> Clients:
        deviations = np.arange(1, self.features + 1) ** -0.6
        found: Clients = []
        for k in range(clients):
            random = generator(seed, "synthetic", client=k)
            size = self.least + min(int(random.lognormal(4, 1)), 1000)
            u, centre = random.normal(0, np.sqrt(self.a)), random.normal(0, np.sqrt(self.b))
            W, bias = random.normal(u, 1, (self.features, self.classes)), random.normal(u, 1, self.classes)
            x = random.normal(centre, 1, self.features) + deviations * random.standard_normal((size, self.features))
            found.append((x.astype(np.float32), np.argmax(x @ W + bias, axis=1).astype(np.int64)))
        return found
