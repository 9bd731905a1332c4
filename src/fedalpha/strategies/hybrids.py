"""The paper's hybrids by name: each is a `switch`, with the paper's T and rounds as defaults."""

from __future__ import annotations

from collections.abc import Sequence

from fedalpha.strategies.base import PAPER, STRATEGIES, Strategy
from fedalpha.strategies.cohort import Need
from fedalpha.strategies.fedavg import FedAvg
from fedalpha.strategies.soft import FedSoftBetter, FedSoftWorse
from fedalpha.strategies.switch import Switch, switch

_STAGES = {"SoftBetter": FedSoftBetter, "SoftWorse": FedSoftWorse, "Avg": FedAvg}
_HYBRIDS: dict[str, tuple[tuple[str, ...], int | tuple[int, ...]]] = {
    "FedSoftBetterAvg": (("SoftBetter", "Avg"), 20),
    "FedSoftWorseAvg": (("SoftWorse", "Avg"), 20),
    "FedAvgSoftWorse": (("Avg", "SoftWorse"), 20),
    "FedAvgSoftBetter": (("Avg", "SoftBetter"), 20),
    "FedSoftBetterAvgSoftWorse": (("SoftBetter", "Avg", "SoftWorse"), (15, 30)),
}


def _register(name: str, stages: tuple[str, ...], default: int | tuple[int, ...]) -> None:
    def hybrid(
        T: float = 0.2,
        at: int | Sequence[int] | None = None,
        *,
        accuracy: float | Sequence[float] | None = None,
        prior: str = "size",
        loss: Need = "before",
    ) -> Switch:
        rules: list[Strategy] = [
            FedAvg(prior=prior) if stage == "Avg" else _STAGES[stage](T=T, prior=prior, loss=loss) for stage in stages
        ]
        if at is None and accuracy is None:
            at = default
        return switch(*rules, at=at, accuracy=accuracy)

    then = ", then ".join("Fed" + s for s in stages)
    hybrid.__doc__ = f"The paper's hybrid: {then} (changes at round {default} unless at= or accuracy= is given)."
    STRATEGIES.register(name=name, formula=then, reference=PAPER)(hybrid)


for _name, (_stages, _at) in _HYBRIDS.items():
    _register(_name, _stages, _at)
