"""The server computes weights from the clients' losses, but does not learn single updates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fedalpha.secure.forms.base import SECURES, Secure
from fedalpha.strategies import KNOWN_BEFORE_TRAINING
from fedalpha.strategies.plug_point import AnyAlgorithm


@SECURES.register(
    formula="Σ (alpha_i·x_i + masks) mod 2^k, where the masks of all clients cancel",
    reference="Bonawitz et al., 2017; Bell et al., 2020",
    examples=("masked", "masked(bits=64, clip=1.0)", "masked(neighbours=log, threshold=1/2)"),
)
class masked(Secure):
    """Two phases: clients report their losses, the server sends each its alpha_i; clients send alpha_i·x_i masked."""

    def played(self, algorithm: Any) -> Any:
        private = self.private(algorithm)
        return algorithm if private is None else replace(algorithm, combine=private.of_sums(), secure=None)

    def _check_weights(self, algorithm: AnyAlgorithm) -> None:
        late = sorted(algorithm.weigh.requires - KNOWN_BEFORE_TRAINING)
        if late:
            raise ValueError(
                f"{algorithm.weigh} weighs by what is known after training ({', '.join(late)}), but clients must know "
                "their alpha when they mask their update; use a rule that weighs by loss=before"
            )
        k = getattr(algorithm.weigh, "k", None)
        if type(k) is int and k < self.least:
            raise ValueError(
                f"{algorithm.weigh} gives weight to {k} clients, and a sum of fewer than {self.least} (least) "
                "reveals too much about each; use a larger k"
            )
