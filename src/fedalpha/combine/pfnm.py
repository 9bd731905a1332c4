"""PFNM: match the neurons of different clients before averaging them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field

import numpy as np

from fedalpha.combine.base import COMBINES, Combine, Reports
from fedalpha.combine.layers import Layer, Matrix, layers, rebuilt
from fedalpha.strategies import Array, State
from fedalpha.update import Broadcast


@COMBINES.register(
    formula="neurons of all clients matched by a Beta–Bernoulli process (assignment problem), then averaged",
    reference="Yurochkin et al., 2019, 1905.12022",
    examples=("pfnm", "pfnm(gamma=5, sigma=0.5, sigma0=5, limit=256)"),
)
class pfnm(Combine):
    """Probabilistic federated neural matching, for fully connected networks.

    Each hidden neuron is a vector: its bias, its outgoing weights and, in the first hidden layer, its incoming
    weights. Client neurons are noisy copies N(θ_i, sigma) of global ones θ_i ~ N(0, sigma0) (variances); how many
    global ones there are follows a Beta–Bernoulli process of mass ``gamma``. One client after the
    other, its neurons are assigned to global ones, or to new ones, at the least cost (Hungarian method), with
    ``sweeps`` repetitions; from the last hidden layer down. Matched neurons are averaged with weights alpha, new ones
    are kept. The prior affects the matching only: shrinking the neurons in every round would be a weight decay. The
    global width may grow up to ``limit``. Use it for few clients whose hidden units are in different orders; after a
    common start a plain mean does as well.

    The cost follows the paper's equation 8 (popularity 2·log(m/(J − m)); the authors' code leaves out the 2).
    """

    gamma: float = field(default=1.0, metadata={"always": True})
    sigma: float = 1.0
    sigma0: float = 10.0
    sweeps: int = 2
    limit: int = 512

    def __post_init__(self) -> None:
        for name in ("gamma", "sigma", "sigma0"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
                raise ValueError(f"pfnm: {name} = {value!r}; give a positive number")
        for name, least in (("sweeps", 0), ("limit", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"pfnm: {name} = {value!r}; give a whole number of at least {least}")

    def combine(
        self, state: State, broadcast: Broadcast, reports: Reports, alpha: Array, simplex: bool
    ) -> tuple[Broadcast, State]:
        if not simplex:
            raise ValueError("pfnm averages matched neurons and needs weights on the simplex; choose such a strategy")
        counted = alpha > 0
        models = [layers("pfnm", broadcast, m) for m, some in zip(reports.models(), counted, strict=True) if some]
        precision = alpha[counted] * int(counted.sum()) / self.sigma
        above: list[Matrix] = [np.eye(len(models[0][-1][1]))] * len(models)  # outputs have one order for all clients
        places: list[list[Matrix]] = [above]
        for depth in reversed(range(len(models[0]) - 1)):
            vectors = [self._vectors(m, depth, up) for m, up in zip(models, above, strict=True)]
            above = self._match(vectors, precision)
            places.insert(0, above)
        places.insert(0, [np.eye(models[0][0][0].shape[1])] * len(models))  # and so have inputs
        found = [
            self._average([m[i] for m in models], places[i], places[i + 1], precision) for i in range(len(models[0]))
        ]
        return rebuilt(broadcast, found), state

    def _vectors(self, model: list[Layer], depth: int, above: Matrix) -> Matrix:
        """One row per neuron of a hidden layer, in coordinates that all clients share."""
        weight, bias = model[depth]
        parts = [bias[:, None], (above.T @ model[depth + 1][0]).T]
        return np.hstack([*parts, weight] if depth == 0 else parts)

    def _match(self, vectors: list[Matrix], precision: Array) -> list[Matrix]:
        """For each client the 0/1 matrix neurons × global neurons."""
        order = sorted(range(len(vectors)), key=lambda j: -len(vectors[j]))
        owners: list[list[int]] = [list(range(len(vectors[order[0]]))) if j == order[0] else [] for j in order]
        assigned = dict(zip(order, owners, strict=True))
        for j in order[1:] + order * self.sweeps:
            assigned[j] = []
            used = sorted({i for places in assigned.values() for i in places})  # without those that only j had
            renumber = {old: new for new, old in enumerate(used)}
            assigned = {k: [renumber[i] for i in places] for k, places in assigned.items()}
            assigned[j] = self._assign(j, vectors, precision, assigned, len(used))
        width = 1 + max(i for places in assigned.values() for i in places)
        return [np.eye(width)[assigned[j]] for j in range(len(vectors))]

    def _assign(
        self, j: int, vectors: list[Matrix], precision: Array, assigned: dict[int, list[int]], width: int
    ) -> list[int]:
        """The global neurons, old or new, that client j's neurons belong to."""
        from scipy.optimize import linear_sum_assignment

        J, mine = len(vectors), precision[j] * vectors[j]
        sums, weights, counts = np.zeros((width, vectors[j].shape[1])), np.full(width, 1 / self.sigma0), np.zeros(width)
        for k, places in assigned.items():
            if not places:  # client j itself, and clients whose turn is still to come
                continue
            sums[places] += precision[k] * vectors[k]
            weights[places] += precision[k]
            counts[places] += 1
        # ‖sums + mine‖²/(weights + precision) − ‖sums‖²/weights, and the log-odds of the process
        squares = (mine**2).sum(axis=1)[:, None] + 2 * mine @ sums.T + (sums**2).sum(axis=1)
        old = squares / (weights + precision[j]) - (sums**2).sum(axis=1) / weights + 2 * np.log(counts / (J - counts))
        room = min(len(mine), max(self.limit - width, len(mine) - width, 0))
        fresh = (mine**2).sum(axis=1)[:, None] / (1 / self.sigma0 + precision[j]) + 2 * math.log(self.gamma / J)
        new = fresh - 2 * np.log(np.arange(1, room + 1))
        _, columns = linear_sum_assignment(np.hstack([old, new]), maximize=True)
        taken = {c: width + i for i, c in enumerate(sorted(c for c in columns.tolist() if c >= width))}
        return [taken.get(c, c) for c in columns.tolist()]

    def _average(
        self, found: Sequence[Layer], below: Sequence[Matrix], above: Sequence[Matrix], precision: Array
    ) -> Layer:
        """Each global weight is the mean over the clients that have both of its ends, 0 where none has."""
        shape = (above[0].shape[1], below[0].shape[1])
        weight, bias = np.zeros(shape), np.zeros(shape[0])
        weights, biases = np.zeros(shape), np.zeros(shape[0])
        for (w, b), down, up, share in zip(found, below, above, precision.tolist(), strict=True):
            ends = (up.T.sum(axis=1), down.T.sum(axis=1))
            weight += share * (up.T @ w @ down)
            weights += share * np.outer(*ends)
            bias += share * (up.T @ b)
            biases += share * ends[0]
        return weight / np.where(weights > 0, weights, 1.0), bias / biases
