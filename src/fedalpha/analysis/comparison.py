"""Strategies compared over paired seeds: one summary per strategy and measure.

Used by `fedalpha compare`, studies and reports alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedalpha.analysis.measures import Curve, Measure, Measured
from fedalpha.analysis.stats import Difference, Interval, holm, interval, median_time, paired, restricted_mean

Runs = Mapping[str, Mapping[int, Curve]]
"""Curves by strategy and seed."""


@dataclass(frozen=True)
class Summary:
    """One strategy, one measure.

    ``missing`` counts seeds whose run has no value, mostly because it stopped early. Then there are no values
    at all, because the remaining ones would be a biased sample. ``unreached`` counts censored runs: they enter
    the mean at ``horizon``, which makes it a lower bound. ``difference`` is the paired difference to the
    reference, over the seeds that both have. ``p_holm`` is its p-value, corrected for all comparisons of this
    measure. ``same_as`` names an earlier strategy that played the same rounds, as far as this measure depends
    on them. Such a comparison is not counted again; values that are equal by chance are.
    """

    strategy: str
    measure: Measure
    values: dict[int, Measured]
    mean: Interval
    runs: int = 0
    missing: int = 0
    unreached: int = 0
    horizon: float | None = None
    median: float | None = None
    difference: Difference | None = None
    p_holm: float | None = None
    same_as: str | None = None

    @property
    def text(self) -> str:
        """mean ± half in the measure's unit; censored runs are counted."""
        if not self.values:
            return "–"
        shown = self.mean.text(self.measure.digits, self.measure.scale)
        if not self.unreached:
            return shown
        if self.unreached == len(self.values):
            limit = f"{self.measure.scale * self.mean.mean:.{self.measure.digits}f}".removesuffix(".00")
            return f"> {limit} in all {len(self.values)}" if len(self.values) > 1 else f"> {limit}"
        return f"≥ {shown} ({self.unreached} of {len(self.values)} not reached)"

    @property
    def difference_text(self) -> str:
        if self.difference is None:
            return "–"
        return self.difference.text(self.measure.digits, self.measure.scale)

    @property
    def note(self) -> str:
        """What a reader must know besides the numbers."""
        if self.missing:
            return f"no value in {self.missing} of {self.runs} runs: not measured, or stopped earlier"
        return f"same rounds as {self.same_as}" if self.same_as else ""


def summarise(runs: Runs, measure: Measure, reference: str | None = None) -> list[Summary]:
    """A summary per strategy, in order; ``reference`` (the first by default) is what the others are compared with.

    Without runs of the reference there are no differences.
    """
    reference = reference or next(iter(runs))
    measured = {
        strategy: {seed: value for seed, run in by_seed.items() if (value := measure.of(run)) is not None}
        for strategy, by_seed in runs.items()
    }
    missing = {strategy: len(by_seed) - len(measured[strategy]) for strategy, by_seed in runs.items()}
    measured = {strategy: {} if missing[strategy] else values for strategy, values in measured.items()}
    bounds = [v.value for values in measured.values() for v in values.values() if not v.reached]
    horizon = min(bounds) if bounds and measure.unit else None
    rows: list[Summary] = []
    for strategy, values in measured.items():
        numbers, reached = _arrays(values)
        censored = bool((~reached).any())
        if censored:
            limit = horizon if horizon is not None else float(numbers[~reached].min())
            mean = restricted_mean(numbers, reached, limit)
        else:
            limit = None
            mean = interval(np.minimum(numbers, np.inf if horizon is None else horizon))
        row = Summary(
            strategy,
            measure,
            values,
            mean,
            runs=len(runs[strategy]),
            missing=missing[strategy],
            unreached=int((~reached).sum()),
            horizon=limit if censored else horizon,
            median=median_time(numbers, reached) if measure.time_like and values else None,
        )
        if strategy != reference and reference in measured:
            row = replace(row, difference=_difference(measure, values, measured[reference], horizon))
        rows.append(row)
    played = {strategy: rounds_played(by_seed, measure) for strategy, by_seed in runs.items()}
    return _corrected(rows, reference, played)


def rounds_played(runs: Mapping[int, Curve], measure: Measure) -> dict[int, bytes]:
    """By seed, the rounds that decide a strategy's value. Strategies that played the same rounds have equal ones."""
    return {seed: measure.looks_at(run) for seed, run in runs.items()}


def _difference(
    measure: Measure, values: Mapping[int, Measured], reference: Mapping[int, Measured], horizon: float | None
) -> Difference | None:
    """None without common seeds, if all runs are censored, or if censored values (bytes, steps) are not comparable."""
    seeds = sorted(values.keys() & reference.keys())
    ours, theirs = ([not side[s].reached for s in seeds] for side in (values, reference))
    bounds = any(ours) or any(theirs)
    if not seeds or (all(ours) and all(theirs)) or (bounds and not measure.unit):
        return None
    limit = np.inf if horizon is None else horizon
    a, b = (np.minimum([side[s].value for s in seeds], limit) for side in (values, reference))
    cut = f"cut at {limit:g}: " if bounds else ""
    bound = cut if any(ours) and any(theirs) else "≥ " if any(ours) else "≤ " if any(theirs) else ""
    return replace(paired(a, b), bound=bound)


def _corrected(rows: Sequence[Summary], reference: str, played: Mapping[str, Mapping[int, bytes]]) -> list[Summary]:
    """Holm over the distinct comparisons: strategies that played the same rounds are one comparison."""
    marked = []
    first = [reference] * (reference in played)
    for row in rows:
        twin = next((name for name in first if _same(played[name], played[row.strategy])), row.strategy)
        first += [twin] * (twin not in first)
        marked.append(replace(row, same_as=None if twin == row.strategy or not row.values else twin))
    compared = [r for r in marked if r.difference is not None and r.same_as is None]
    p_values = holm([r.difference.p for r in compared if r.difference is not None])
    corrected = dict(zip((r.strategy for r in compared), p_values, strict=True))
    found = []
    for row in marked:
        if row.difference is not None:
            twin = row.same_as or row.strategy
            row = replace(row, p_holm=1.0 if twin == reference and row.difference.n > 1 else corrected.get(twin))
        found.append(row)
    return found


def _same(one: Mapping[int, bytes], other: Mapping[int, bytes]) -> bool:
    """Whether they agree on all seeds that both have; one may have fewer finished runs."""
    common = one.keys() & other.keys()
    return bool(common) and all(one[seed] == other[seed] for seed in common)


def diverged_notes(runs: Runs) -> dict[str, str]:
    """The mark of each strategy with runs that diverged, or that ended with a round without a new model."""
    found = {}
    for strategy, by_seed in runs.items():
        diverged, kept = (sum(getattr(run, name) for run in by_seed.values()) for name in ("diverged", "kept"))
        notes = [f"diverged in {diverged} of {len(by_seed)} runs"] if diverged else []
        notes += [f"last round without a new model in {kept} of {len(by_seed)} runs"] if kept else []
        if notes:
            found[strategy] = "; ".join(notes)
    return found


def _arrays(values: Mapping[int, Measured]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    found = list(values.values())
    return np.array([v.value for v in found], dtype=np.float64), np.array([v.reached for v in found], dtype=bool)
