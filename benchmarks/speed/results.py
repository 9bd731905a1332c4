"""From single runs to one cell per workload and contestant: medians and spread."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Cell:
    """The results of one contestant in one workload; None where nothing was measured."""

    workload: str
    name: str
    title: str
    seconds: tuple[float, ...] = ()
    """The seconds of each round that counts: all but the first of a process, over all timed repetitions."""
    first: float | None = None
    """The median of the first rounds."""
    pss: int | None = None
    rss: int | None = None
    extra_bytes: int | None = None
    loss: float | None = None
    progress: float | None = None
    """How far the loss fell in two rounds, relative to the reference's fall."""
    details: Mapping[str, Any] | None = None
    error: str | None = None

    @property
    def median(self) -> float | None:
        return statistics.median(self.seconds) if self.seconds else None

    @property
    def spread(self) -> tuple[float, float] | None:
        return (min(self.seconds), max(self.seconds)) if self.seconds else None


Cells = Mapping[tuple[str, str], Cell]
"""By workload and name, in the order of the table."""


def cells(runs: Iterable[Mapping[str, Any]], initial: Mapping[str, float]) -> dict[tuple[str, str], Cell]:
    """Summarise runs. ``initial``: the loss of w_0 by workload."""
    grouped: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for run in runs:
        grouped.setdefault((run["workload"], run["name"]), []).append(run)
    losses = {key: _first(group, "loss") for key, group in grouped.items()}
    made = {}
    for (workload, name), group in grouped.items():
        timed = [run for run in group if run["repetition"] > 0 and not run.get("error")]
        whole = bool(group[0].get("whole"))
        counted = tuple(s for run in timed for s in (run["seconds"] if whole else run["seconds"][1:]))
        firsts = [run["seconds"][0] for run in timed if run["seconds"]]
        loss, start = losses[workload, name], initial.get(workload)
        reference = next((found for key in ("plain", "fedalpha") if (found := losses.get((workload, key)))), None)
        made[workload, name] = Cell(
            workload,
            name,
            group[0]["title"],
            counted,
            statistics.median(firsts) if firsts and not whole else None,
            _largest(group, "pss"),
            _largest(group, "rss"),
            max((b for run in group for b in run["extra_bytes"][1:] or run["extra_bytes"]), default=None),
            loss,
            None if loss is None or start is None or reference is None else (start - loss) / (start - reference),
            {name: group[0][name] for name in ("linear", "bytes", "model_bytes") if name in group[0]},
            _first(group, "error"),
        )
    return made


RATES: Mapping[str, str] = {
    "fma_one_core": "fused multiply-adds, one core",
    "fma_together": "fused multiply-adds, all cores together",
    "sgemm_torch_processes": "sgemm of torch, a process per core",
    "sgemm_torch_threads": "sgemm of torch, a thread per core",
    "sgemm_numpy_processes": "sgemm of NumPy, a process per core",
    "sgemm_numpy_threads": "sgemm of NumPy, a thread per core",
    "copy_one_thread": "copy, one thread",
    "copy_processes": "copy, a process per core",
    "copy_threads": "copy, a thread per core",
}
"""The machine's rates, in the order of the table: GB/s of copies, GFLOP/s of the others."""


ROOFLINE = "the largest measured rate of arithmetic: fused multiply-adds, or the sgemm of torch or NumPy"
"""What shares of the machine's peak refer to. A record that was measured with another one keeps that one's name."""


def rates(measured: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The machine's rates over the repetitions: the largest of a peak (fused multiply-adds), else the median.

    >>> rates([{"fma_together": 300.0, "copy_threads": 9.0}, {"fma_together": 200.0, "copy_threads": 11.0}])
    {'fma_together': 300.0, 'copy_threads': 10.0}
    """
    found = {name: [one[name] for one in measured if name in one] for name in RATES}
    return {n: max(v) if n.startswith("fma") else statistics.median(v) for n, v in found.items() if v}


def roofline(rates: Mapping[str, float]) -> tuple[str, float] | None:
    """The largest measured rate of arithmetic, with its name.

    >>> roofline({"fma_together": 350.0, "sgemm_torch_threads": 290.0, "copy_threads": 9.0})
    ('fma_together', 350.0)
    """
    return _fastest(rates, ("fma", "sgemm"))


def bandwidth(rates: Mapping[str, float]) -> tuple[str, float] | None:
    """The largest measured rate of a copy, with its name."""
    return _fastest(rates, ("copy",))


def _fastest(rates: Mapping[str, float], kinds: tuple[str, ...]) -> tuple[str, float] | None:
    found = [(name, value) for name, value in rates.items() if name.startswith(kinds)]
    return max(found, key=lambda pair: pair[1], default=None)


def _first(group: Iterable[Mapping[str, Any]], name: str) -> Any:
    return next((run[name] for run in group if run.get(name) is not None), None)


def _largest(group: Iterable[Mapping[str, Any]], name: str) -> int | None:
    return max((run[name] for run in group if run.get(name)), default=None)
