"""The base of rules that compare the sizes of losses, or follow losses over the rounds."""

from __future__ import annotations

from dataclasses import field

from fedalpha.strategies.arguments import choice
from fedalpha.strategies.base import Strategy
from fedalpha.strategies.cohort import LOSSES, Cohort, Need
from fedalpha.strategies.simplex import Array


class Course(Strategy):
    """A rule with a ``loss`` that it looks at (``train`` as in the references); negative losses are an error."""

    loss: Need = field(default="train", kw_only=True)

    def __post_init__(self) -> None:
        choice(self.text_name, "loss", self.loss, LOSSES)

    @property
    def requires(self) -> frozenset[Need]:
        return frozenset({self.loss})

    def losses(self, cohort: Cohort) -> Array:
        losses = cohort.require(self.loss)
        if (losses < 0).any():
            raise ValueError(f"{self.text_name} needs losses ≥ 0, as it compares their sizes; use FedSoftBetter")
        return losses
