"""FedDist: the mean, plus neurons of clients that diverge from it."""

from __future__ import annotations

import math
from dataclasses import field

import numpy as np

from fedalpha.combine.base import COMBINES, Combine, Reports
from fedalpha.combine.layers import WIDTHS_CHANGE, layers, rebuilt
from fedalpha.combine.mean import mean
from fedalpha.strategies import Array, State
from fedalpha.update import Broadcast


@COMBINES.register(
    formula="Σ alpha_i·w_i, then each neuron farther than mean + spread·deviation from its average is added",
    reference="Ek et al., PerCom 2021, 10.1109/PERCOM50583.2021.9439129",
    examples=("feddist", "feddist(spread=2, rise=0, limit=128)"),
)
class feddist(Combine):
    """Diverging neurons may be features of rare data. They are appended to the model instead of averaged.

    For each neuron of a hidden layer the distances of all clients' versions (incoming weights and bias) from the
    average are compared: a version whose distance exceeds their mean by ``spread`` standard deviations (plus
    ``rise`` after every fifth round, as in the authors' code) is appended, with its outgoing weights. That needs more
    than spread² clients: among m, none can be farther than √(m − 1) deviations. Layer-wise: round t looks
    at hidden layer t mod L, and the rounds after it train the new model; the authors train the later
    layers within the round, with the earlier ones frozen. A layer grows to at most ``limit`` neurons, the
    farthest versions first.
    """

    spread: float = field(default=3.0, metadata={"always": True})
    rise: float = 0.25
    limit: int = 512

    def __post_init__(self) -> None:
        for name in ("spread", "rise"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise ValueError(f"feddist: {name} = {value!r}; give a number ≥ 0")
        if isinstance(self.limit, bool) or not isinstance(self.limit, int) or self.limit < 1:
            raise ValueError(f"feddist: limit = {self.limit!r}; give the largest width, at least 1")

    def init(self) -> State:
        return {"round": 0}

    @property
    def against_stale(self) -> str:
        return WIDTHS_CHANGE

    def combine(
        self, state: State, broadcast: Broadcast, reports: Reports, alpha: Array, simplex: bool
    ) -> tuple[Broadcast, State]:
        models = [layers("feddist", broadcast, m) for m in reports.models()]
        averaged, _ = mean().combine({}, broadcast, reports, alpha, simplex)
        found = layers("feddist", averaged, averaged.parameters)
        round: int = state["round"]
        depth = round % (len(found) - 1)
        weight, bias = found[depth]
        rows = np.stack([np.hstack([m[depth][0], m[depth][1][:, None]]) for m in models])  # client × neuron × input
        far = np.linalg.norm(rows - np.hstack([weight, bias[:, None]]), axis=2)
        excess = far - far.mean(axis=0) - (self.spread + self.rise * (round // 5)) * far.std(axis=0)
        diverging = np.argwhere(excess > 1e-12 * far.max())  # client, neuron
        if len(diverging) > (room := max(self.limit - len(bias), 0)):
            farthest = np.argsort(-excess[tuple(diverging.T)], kind="stable")[:room]
            diverging = diverging[np.sort(farthest)]
        for client, neuron in diverging.tolist():
            w, b = models[client][depth]
            weight, bias = np.vstack([weight, w[neuron]]), np.append(bias, b[neuron])
            outward = models[client][depth + 1][0][:, neuron]
            found[depth + 1] = (np.column_stack([found[depth + 1][0], outward]), found[depth + 1][1])
        found[depth] = (weight, bias)
        following = averaged if not len(diverging) else rebuilt(averaged, found)
        return following, {"round": round + 1}
