"""PFNM: match the neurons of different clients before averaging them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field

import numpy as np

from fedalpha.combine.base import COMBINES, Combine, Reports
from fedalpha.combine.layers import WIDTHS_CHANGE, Layer, Matrix, layers, rebuilt
from fedalpha.strategies import Array, State
from fedalpha.strategies.cohort import table
from fedalpha.update import Broadcast


@COMBINES.register(
    formula="neurons of all clients matched by a Beta–Bernoulli process (assignment problem), then averaged; "
    "output weights of client j for class k by n_jk/Σ_j n_jk",
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
    are kept. A client's knowledge of class k is taken as proportional to its samples of that class: its output weights
    and bias for k have the precision alpha_j·n_jk/Σ_j alpha_j·n_jk (over sigma), so clients report their class counts
    (docs/privacy.md). With ``shrink`` the result is the posterior mean: a mean of total precision s is multiplied by
    s/(s + 1/sigma0). Over many rounds this acts as a weight decay: choose a small sigma, or shrink=false. The global
    width may grow up to ``limit``. Use PFNM for few clients whose hidden units are in different orders; if clients
    start from a common model, a plain mean is as good.

    With ``FedAvg(prior=uniform)`` the output weights are averaged as in the authors' code. The cost follows the
    paper's equation 8 (popularity 2·log(m/(J − m)); the authors' code leaves out the 2, limits m to 10 and centres
    biases at 0.1).
    """

    gamma: float = field(default=1.0, metadata={"always": True})
    sigma: float = 1.0
    sigma0: float = 10.0
    sweeps: int = 2
    limit: int = 512
    shrink: bool = True

    def __post_init__(self) -> None:
        for name in ("gamma", "sigma", "sigma0"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
                raise ValueError(f"pfnm: {name} = {value!r}; give a positive number")
        for name, least in (("sweeps", 0), ("limit", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"pfnm: {name} = {value!r}; give a whole number of at least {least}")
        if not isinstance(self.shrink, bool):
            raise ValueError(f"pfnm: shrink = {self.shrink!r}; give true or false")

    @property
    def wants(self) -> frozenset[str]:
        return frozenset({"labels"})

    @property
    def against_stale(self) -> str:
        return WIDTHS_CHANGE

    def combine(
        self, state: State, broadcast: Broadcast, reports: Reports, alpha: Array, simplex: bool
    ) -> tuple[Broadcast, State]:
        if not simplex:
            raise ValueError("pfnm averages matched neurons and needs weights on the simplex; choose such a strategy")
        counted = alpha > 0
        models = [layers("pfnm", broadcast, m) for m, some in zip(reports.models(), counted, strict=True) if some]
        outputs, last = len(models[0][-1][1]), len(models[0]) - 1
        precision = alpha[counted] * len(models) / self.sigma
        labels = [r.labels for r, some in zip(reports.items, counted, strict=True) if some]
        known = self._known(labels, precision, outputs)
        above: list[Matrix] = [np.eye(outputs)] * len(models)  # outputs have one order for all clients
        places: list[list[Matrix]] = [above]
        for depth in reversed(range(last)):
            vectors = [self._vectors(m, depth, up) for m, up in zip(models, above, strict=True)]
            each = np.repeat(precision[:, None], vectors[0].shape[1], axis=1)
            if depth == last - 1:
                each[:, 1 : 1 + outputs] = known
            above = self._match(vectors, each)
            places.insert(0, above)
        places.insert(0, [np.eye(models[0][0][0].shape[1])] * len(models))  # and so have inputs
        found = []
        for i in range(last + 1):
            rows = known if i == last else np.repeat(precision[:, None], places[i + 1][0].shape[1], axis=1)
            found.append(self._average([m[i] for m in models], places[i], places[i + 1], rows))
        return rebuilt(broadcast, found), state

    def _known(self, labels: Sequence[Sequence[int] | None], precision: Array, outputs: int) -> Matrix:
        """The precision of output weights, client × class. For a class without samples all clients are alike."""
        told = [row for row in labels if row is not None]
        if len(told) < len(labels):
            raise ValueError("pfnm needs the class counts of every client (labels), and these reports have none")
        counts = table(told, outputs)[:, :outputs]
        held = precision[:, None] * np.where(counts.any(axis=0), counts, 1.0)
        return np.asarray(held / held.sum(axis=0) / self.sigma)

    def _vectors(self, model: list[Layer], depth: int, above: Matrix) -> Matrix:
        """One row per neuron of a hidden layer, in coordinates that all clients share."""
        weight, bias = model[depth]
        parts = [bias[:, None], (above.T @ model[depth + 1][0]).T]
        return np.hstack([*parts, weight] if depth == 0 else parts)

    def _match(self, vectors: list[Matrix], precision: Matrix) -> list[Matrix]:
        """For each client the 0/1 matrix neurons × global neurons; ``precision`` is client × coordinate."""
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
        self, j: int, vectors: list[Matrix], precision: Matrix, assigned: dict[int, list[int]], width: int
    ) -> list[int]:
        """The global neurons, old or new, that client j's neurons belong to."""
        from scipy.optimize import linear_sum_assignment

        J, mine = len(vectors), precision[j] * vectors[j]
        sums, counts = np.zeros((width, vectors[j].shape[1])), np.zeros(width)
        weights = np.full(sums.shape, 1 / self.sigma0)
        for k, places in assigned.items():
            if not places:  # client j itself, and clients whose turn is still to come
                continue
            sums[places] += precision[k] * vectors[k]
            weights[places] += precision[k]
            counts[places] += 1
        # Σ (sums + mine)²/(weights + precision) − sums²/weights over the coordinates, and the log-odds of the process
        joint = 1 / (weights + precision[j])
        squares = mine**2 @ joint.T + 2 * mine @ (sums * joint).T + (sums**2 * joint).sum(axis=1)
        old = squares - (sums**2 / weights).sum(axis=1) + 2 * np.log(counts / (J - counts))
        room = min(len(mine), max(self.limit - width, len(mine) - width, 0))
        alone = (mine**2 / (1 / self.sigma0 + precision[j])).sum(axis=1)
        fresh = alone[:, None] + 2 * math.log(self.gamma / J)
        new = fresh - 2 * np.log(np.arange(1, room + 1))
        _, columns = linear_sum_assignment(np.hstack([old, new]), maximize=True)
        taken = {c: width + i for i, c in enumerate(sorted(c for c in columns.tolist() if c >= width))}
        return [taken.get(c, c) for c in columns.tolist()]

    def _average(
        self, found: Sequence[Layer], below: Sequence[Matrix], above: Sequence[Matrix], precision: Matrix
    ) -> Layer:
        """Each global weight is the mean over the clients that have both of its ends, 0 where none has.

        ``precision`` is client × output of the layer.
        """
        shape = (above[0].shape[1], below[0].shape[1])
        weight, bias = np.zeros(shape), np.zeros(shape[0])
        weights, biases = np.zeros(shape), np.zeros(shape[0])
        for (w, b), down, up, share in zip(found, below, above, precision, strict=True):
            ends = (share * up.T.sum(axis=1), down.T.sum(axis=1))
            weight += share[:, None] * (up.T @ w @ down)
            weights += np.outer(*ends)
            bias += share * (up.T @ b)
            biases += ends[0]
        if self.shrink:
            return weight / (weights + 1 / self.sigma0), bias / (biases + 1 / self.sigma0)
        return weight / np.where(weights > 0, weights, 1.0), bias / biases
