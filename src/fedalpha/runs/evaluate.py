"""What is measured in a run, and who may look at it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from fedalpha.analysis.conditions import Condition
from fedalpha.analysis.watch import Watch
from fedalpha.strategies import Strategy
from fedalpha.text import quoted, whole


@dataclass(frozen=True)
class Evaluate:
    """What is measured in a run: the test set every ``every`` rounds, and the influence of any ``liars`` clients.

    ``stop`` ends the run early: "accuracy >= 0.9", "patience(loss, rounds=5)", or several with "or".
    ``keep="best"`` keeps also the model with the best accuracy ("best(loss)": the least loss), as ``history.best`` and
    ``best.safetensors``. ``shadow`` names strategies whose weights are recorded in every row but not applied.

    ``signal`` names the data at which ``stop``, ``keep`` and strategies may look: validation (the federation must
    hold some) or test. What is looked at is measured in every round.

    With ``reevaluate`` the server measures losses for the strategy, too: this many of the heaviest clients are weighed
    by losses on the server's validation part, in place of those that they report.
    """

    every: int = 1
    signal: str = "validation"
    liars: int = 1
    stop: str | Condition | None = None
    keep: str = "last"
    shadow: Sequence[str | Strategy] = ()
    reevaluate: int = 0

    def __post_init__(self) -> None:
        whole("evaluate: every", self.every, least=1)
        whole("liars", self.liars)
        whole("reevaluate", self.reevaluate)
        if self.signal not in ("validation", "test"):
            raise ValueError(f"signal = {quoted(self.signal)} is not one of validation, test")
        _ = self.watch  # reports mistakes

    @cached_property
    def watch(self) -> Watch:
        return Watch(self.signal, self.stop, self.keep, self.shadow)
