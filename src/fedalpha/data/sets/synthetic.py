"""Synthetic(a, b): made-up clients, each with its own linear model and its own features.

Client k draws u_k and B_k with standard deviations a and b around 0; its model has W_k, b_k ~ N(u_k, 1), its features
x ~ N(v_k, Σ) with v_k ~ N(B_k, 1) and Σ = diag(j^−1.2); y = argmax(x·W_k + b_k). a sets how much the clients'
models differ, b how much their features do. Sizes are log-normal(4, 2) + 50. As in the authors' code; the paper writes
N(0, a) for what is a standard deviation there. Earlier versions took a and b as variances, and smaller sizes.
Reference: Li et al., Federated optimization in heterogeneous networks, 2020, 1812.06127; litian96/FedProx.
"""

from __future__ import annotations

import numpy as np

from fedalpha.data.sets.base import DATASETS, Natural, Samples
from fedalpha.rng import generator


@DATASETS.register(
    formula="y = argmax(x·W_k + b_k), W_k ~ N(u_k, 1), u_k ~ N(0, a²), x ~ N(v_k, Σ), v_k ~ N(B_k, 1), B_k ~ N(0, b²)",
    reference="Li et al., 2020, 1812.06127",
    examples=("synthetic(a=1, b=1)",),
)
class synthetic(Natural):
    """Synthetic(a, b) with ``features`` features and ``classes`` classes; at least ``least`` samples per client.

    >>> clients = synthetic(a=1, b=1).make(3, seed=0)
    >>> clients[0].train_x.shape[1], len(clients)
    (60, 3)
    """

    a: float = 1.0
    b: float = 1.0
    features: int = 60
    classes: int = 10
    least: int = 50

    def __post_init__(self) -> None:
        for name in ("a", "b"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"synthetic: {name} = {getattr(self, name)!r}; give a standard deviation ≥ 0")
        for name in ("features", "classes", "least"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 2:
                raise ValueError(f"synthetic: {name} = {getattr(self, name)!r}; give a whole number of at least 2")

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.features,)

    @property
    def class_names(self) -> tuple[str, ...]:
        return tuple(str(label) for label in range(self.classes))

    def make(self, clients: int, seed: int) -> list[Samples]:
        deviations = np.arange(1, self.features + 1) ** -0.6
        found = []
        for k in range(clients):
            random = generator(seed, "synthetic", client=k)
            size = self.least + int(random.lognormal(4, 2))
            u, centre = random.normal(0, self.a), random.normal(0, self.b)
            W, bias = random.normal(u, 1, (self.features, self.classes)), random.normal(u, 1, self.classes)
            x = random.normal(centre, 1, self.features) + deviations * random.standard_normal((size, self.features))
            found.append(Samples(x.astype(np.float32), np.argmax(x @ W + bias, axis=1).astype(np.int64)))
        return found
