"""Gaussian noise after a clipped, capped mean: the mechanism of user-level differential privacy."""

from __future__ import annotations

import dataclasses
import math
import secrets
from collections.abc import Mapping
from dataclasses import field
from typing import Any

import numpy as np
import torch

from fedalpha.combine.base import COMBINES, Reports
from fedalpha.combine.clip import clip
from fedalpha.combine.mean import mean
from fedalpha.combine.robust import Wrapper
from fedalpha.combine.sums import Alone
from fedalpha.rng import generator
from fedalpha.select import Select
from fedalpha.select.poisson import poisson
from fedalpha.strategies import Array, State
from fedalpha.strategies.plug_point import AnyAlgorithm
from fedalpha.update import Broadcast, Update

_PIECE = 1 << 18
"""Coordinates whose noise is drawn at a time."""


@COMBINES.register(
    formula="w_t + Σ min(alpha_i, c)·clip(x_i, C) + N(0, (z·2·c·C)²)",
    reference="McMahan et al., 2018, 1710.06963, with unequal weights; see fedalpha.defence.privacy",
    examples=("noise(clip(mean, C=1.0), z=1.0, c=0.1)",),
)
class noise(Wrapper):
    """Adds Gaussian noise of standard deviation z·2·c·C to every coordinate of a clipped mean.

    ``z``: the noise multiplier; ``c``: the largest weight. Larger weights are reduced to c (the rest stays with w_t).
    Integer buffers do not change. ``seed`` determines the noise: anyone who knows it can subtract the noise, so keep
    the seed secret in real use; a live federation refuses the default. The seed is part of the rule's text, which is
    stored in ``config.json``. A resumed run needs the same seed. ``seed=system`` draws the noise from the system's
    generator instead: nobody knows the noise, and a run cannot be repeated to the byte.

    Under a secure sum each client adds its part of the noise, always from the system's generator, and the server adds
    none.
    """

    private = True
    """Whether the rule needs only a sum of clipped, weighted updates with noise; see `of_sums`."""

    z: float = field(default=1.0, metadata={"always": True})
    c: float = field(default=0.1, metadata={"always": True})
    seed: int | str = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.inner, clip) or not isinstance(self.inner.inner, mean):
            raise ValueError(
                f"noise: no bound is known for the sensitivity of {self.inner}; write noise(clip(mean, C=…), z=…, c=…)"
            )
        if not self.z >= 0 or not 0 < self.c <= 1:
            raise ValueError(f"{self}: give z ≥ 0 and c in (0, 1]")
        if self.seed != "system" and (type(self.seed) is not int or self.seed < 0):
            raise ValueError(f"noise: seed = {self.seed!r}; give a whole number ≥ 0, or system")

    linear = True
    keeps_lost_weight = True  # a larger weight than c would not be covered by the noise

    @property
    def alone(self) -> Alone | None:
        return self.inner.alone

    def weights(self, alpha: Array) -> Array:
        return np.minimum(alpha, self.c)

    @property
    def C(self) -> float:
        assert isinstance(self.inner, clip)
        return self.inner.C

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise in each coordinate."""
        return self.z * 2 * self.c * self.C

    @property
    def known_noise(self) -> bool:
        """Whether everybody can draw the same noise, because the seed is the default."""
        return self.z > 0 and self.seed == 0

    @property
    def against_absence(self) -> str:
        return "its privacy statement counts on cohorts that are drawn at random from all clients"

    def check(self, algorithm: AnyAlgorithm) -> None:
        """Raise ValueError for a strategy that the noise does not cover, and for rules that bypass the noise."""
        if algorithm.combine is not self:
            raise ValueError(
                f"{algorithm.combine} has its noise inside another rule, so the effect of the noise is not known; "
                f"write {self} alone"
            )
        select, update = type(algorithm.select), type(algorithm.update)
        if select.ask is not Select.ask or select.learn is not Select.learn:
            raise ValueError(
                f"{algorithm.select} selects clients by their losses, which the noise does not cover; "
                "use uniform(C=…) with noise"
            )
        if update.absorb is not Update.absorb:
            raise ValueError(
                f"{algorithm.update} puts what clients send into the next broadcast without noise, so the model is not "
                "private; use an update that sends a model alone, such as sgd or fedprox"
            )
        if algorithm.reevaluate:
            raise ValueError(
                f"reevaluate = {algorithm.reevaluate} lets the server measure losses of some clients, and their "
                "choice depends on the other clients, so the sensitivity is not bounded; leave reevaluate at 0 "
                "with noise"
            )
        fewest = math.ceil(1 / algorithm.weigh.ceiling - 1e-9)
        if isinstance(algorithm.select, poisson) and algorithm.select.least < fewest:
            raise ValueError(
                f"{algorithm.select} may draw fewer than the {fewest} clients that {algorithm.weigh} needs to share "
                "out all of the weight: such a round would keep the model, which no ε accounts for; write "
                f"poisson(C={algorithm.select.C:g}, least={fewest})"
            )
        needed = algorithm.weigh.sensitivity(self.C)
        if needed > 2 * self.c * self.C * (1 + 1e-12):
            raise ValueError(
                f"{algorithm.weigh} gives a client more weight than the noise covers: "
                f"set c ≥ {needed / (2 * self.C):g} in {self}"
            )

    def init(self) -> State:
        return {**super().init(), "drawn": 0}

    def combine(
        self, state: State, broadcast: Broadcast, reports: Reports, alpha: Array, simplex: bool
    ) -> tuple[Broadcast, State]:
        if not simplex:
            raise ValueError("noise needs weights on the simplex; coefficients have no bounded sensitivity")
        aggregate, following = super().combine(state, broadcast, reports, self.weights(alpha), False)
        drawn_before = int(state["drawn"])
        if self.seed == "system":
            rng = np.random.Generator(np.random.Philox(secrets.randbits(128)))
        else:
            rng = generator(int(self.seed), "privacy noise", drawn_before)
        parameters = {}
        for name, value in aggregate.parameters.items():
            if value.is_floating_point():
                flat = value.reshape(-1).clone()
                for part in torch.split(flat, _PIECE):  # neighbouring pieces are drawn from one stream
                    drawn = torch.from_numpy(rng.standard_normal(len(part)))
                    part.copy_(part.double() + self.deviation * drawn)
                parameters[name] = flat.view(value.shape)
            else:
                parameters[name] = broadcast.parameters[name]
        return dataclasses.replace(aggregate, parameters=parameters), {**following, "drawn": drawn_before + 1}

    def of_sums(self) -> noisy_sum:
        """The rule for a sum of clipped updates, whose weights are at most c, with the clients' noise in it."""
        return noisy_sum(self.init())


class noisy_sum(mean):
    """w_t + Σ min(alpha_i, c)·clip(x_i, C) + noise; everything except w_t has arrived as a sum."""

    start: Mapping[str, Any]

    def init(self) -> State:
        return self.start

    def combine(
        self, state: State, broadcast: Broadcast, reports: Reports, alpha: Array, simplex: bool
    ) -> tuple[Broadcast, State]:
        if not simplex:
            raise ValueError("noise needs weights on the simplex; coefficients have no bounded sensitivity")
        aggregate, _ = super().combine(state, broadcast, reports, alpha, simplex)
        return aggregate, state
