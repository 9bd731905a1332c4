"""The goals: ratios that are computed from the measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from benchmarks.speed.environments import PEERS
from benchmarks.speed.results import RATES, Cell, Cells, bandwidth, roofline
from benchmarks.speed.workloads import Sizes, flops

OURS = "fedalpha"
Verdict = Literal["met", "resolved", "not met", "not measured"]


@dataclass(frozen=True)
class Goal:
    """``value`` must be at least (or at most) ``bound``; ``enough`` is a weaker bound that is also accepted."""

    workload: str
    text: str
    value: float | None
    sense: Literal["≥", "≤"]
    bound: float
    enough: float | None = None
    unit: str = ""

    @property
    def verdict(self) -> Verdict:
        if self.value is None:
            return "not measured"
        if self._holds(self.value, self.bound):
            return "met"
        return "resolved" if self.enough is not None and self._holds(self.value, self.enough) else "not met"

    def _holds(self, value: float, bound: float) -> bool:
        return value >= bound if self.sense == "≥" else value <= bound


def goals(cells: Cells, rates: Mapping[str, float], sizes: Sizes) -> list[Goal]:
    """Every goal, measured or not."""
    return [*_a(cells, rates, sizes), *_b(cells), *_c(cells), *_d(cells), *_e(cells, rates), *_start(cells)]


def same_work(cells: Cells, tolerance: float) -> list[Cell]:
    """The contestants whose loss after two rounds shows that they do other work than the reference."""
    return [c for c in cells.values() if c.progress is not None and not abs(c.progress - 1) <= tolerance]


def arithmetic(cells: Cells, sizes: Sizes) -> float | None:
    """The GFLOP/s at which this library trains in workload A."""
    ours = _median(cells, "A", OURS)
    return None if ours is None else flops(sizes) / ours / 1e9


def _a(cells: Cells, rates: Mapping[str, float], sizes: Sizes) -> list[Goal]:
    found = []
    for peer in PEERS.values():
        if "A" in peer.workloads and not peer.by_hand:
            value = _ratio(cells, ("A", peer.name), ("A", OURS))
            found.append(Goal("A", f"times faster than {peer.title}", value, "≥", 2.5, 2.2))
    ours, limit = arithmetic(cells, sizes), roofline(rates)
    share = None if ours is None or limit is None else ours / limit[1]
    way = f" ({RATES[limit[0]]})" if limit else ""
    found.append(Goal("A", f"share of the machine's peak{way}", share, "≥", 0.55, 0.5))
    cell = cells.get(("A", OURS))
    pss = None if cell is None or cell.pss is None else cell.pss / 1e9
    return [*found, Goal("A", "summed PSS", pss, "≤", 1.5, unit="GB")]


def _b(cells: Cells) -> list[Goal]:
    wanted = {"pfl": 10.0, "fedlab": 10.0, "fedjax": 8.0, "flower": 60.0, "batched": 1.0}
    return [
        Goal("B", f"times faster than {PEERS[name].title}", _ratio(cells, ("B", name), ("B", OURS)), "≥", bound)
        for name, bound in wanted.items()
    ]


def _c(cells: Cells) -> list[Goal]:
    populations = [c for (workload, _), c in cells.items() if workload == "C"]
    times = [c.median for c in populations if c.median is not None]
    memory = [c.pss for c in populations if c.pss is not None]
    return [
        Goal("C", "round time, slowest over fastest population", _range(times, len(populations)), "≤", 1.2),
        Goal("C", "peak memory, largest over smallest population", _range(memory, len(populations)), "≤", 1.2),
    ]


def _d(cells: Cells) -> list[Goal]:
    value = _ratio(cells, ("D", "skipping"), ("D", "everybody"))
    return [Goal("D", "FedWorse(k=0.1) round over FedAvg round", value, "≤", 0.35, 0.45)]


def _e(cells: Cells, rates: Mapping[str, float]) -> list[Goal]:
    mean, copy = cells.get(("E", "mean")), bandwidth(rates)
    share = None
    if mean is not None and mean.median and mean.details and copy is not None:
        share = mean.details["bytes"] / mean.median / 1e9 / copy[1]
    way = f" ({RATES[copy[0]]})" if copy else ""
    found = [Goal("E", f"mean: bytes of updates read a second, of the bandwidth{way}", share, "≥", 0.6)]
    for (workload, name), cell in cells.items():
        if workload == "E" and cell.details and cell.details["linear"]:
            extra = None if cell.extra_bytes is None else cell.extra_bytes / cell.details["model_bytes"]
            found.append(
                Goal("E", f"{name}: memory besides the updates, whatever their number", extra, "≤", 8, None, "models")
            )
    return found


def _start(cells: Cells) -> list[Goal]:
    wanted = {"import": 0.5, "help": 0.5, "first round": 5.0}
    texts = {"import": "import fedalpha", "help": "fedalpha --help", "first round": "fedalpha run on digits, one round"}
    return [
        Goal("start", texts[name], _median(cells, "start", name), "≤", bound, unit="s")
        for name, bound in wanted.items()
    ]


def _median(cells: Cells, workload: str, name: str) -> float | None:
    cell = cells.get((workload, name))
    return None if cell is None else cell.median


def _ratio(cells: Cells, above: tuple[str, str], below: tuple[str, str]) -> float | None:
    a, b = _median(cells, *above), _median(cells, *below)
    return None if a is None or not b else a / b


def _range(values: list[float] | list[int], expected: int) -> float | None:
    return max(values) / min(values) if len(values) == expected > 1 else None
