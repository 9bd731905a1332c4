"""How differently shadow rules would have weighed, over a whole run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ShadowSummary:
    """One shadow rule: means over the rounds in which it could weigh.

    ``distance`` is the total variation distance ½ Σ |β_i − α_i| between its weights and those that were applied,
    ``last`` that of the last round. ``applied`` are the effective clients of the rule that was applied, in the same
    rounds. ``missing`` counts rounds without weights; ``reason`` is the first reason.
    """

    rule: str
    rounds: int
    distance: float | None = None
    last: float | None = None
    effective_clients: float | None = None
    applied: float | None = None
    missing: int = 0
    reason: str = ""

    @property
    def text(self) -> str:
        """One line for people."""
        if self.distance is None:
            return f"{self.rule}: no weights in {self.missing} rounds ({self.reason})"
        parts = [f"{self.rule}: distance {self.distance:.3f} on average, {self.last:.3f} at last"]
        if self.effective_clients is not None and self.applied is not None:
            parts.append(f"{self.effective_clients:.1f} effective clients (applied: {self.applied:.1f})")
        if self.missing:
            parts.append(f"no weights in {self.missing} of {self.rounds + self.missing} rounds ({self.reason})")
        return "; ".join(parts)


def shadow_summaries(rows: Sequence[Mapping[str, Any]]) -> list[ShadowSummary]:
    """A summary per shadow rule of a run; empty if it has none.

    >>> beside = {"FedBetter": {"alpha": [1.0, 0.0], "distance": 0.5, "effective_clients": 1.0, "heaviest": 1.0}}
    >>> print(shadow_summaries([{"round": 1, "effective_clients": 2.0, "shadow": beside}])[0].text)
    FedBetter: distance 0.500 on average, 0.500 at last; 1.0 effective clients (applied: 2.0)
    """
    played = [row for row in rows if row.get("shadow")]
    try:
        return [_summary(rule, played) for rule in dict.fromkeys(rule for row in played for rule in row["shadow"])]
    except (KeyError, TypeError, AttributeError, OverflowError):  # the rows were read from a file
        raise ValueError("the rows of the shadow rules are not those of a run") from None


def _summary(rule: str, rows: Sequence[Mapping[str, Any]]) -> ShadowSummary:
    there = [(row, row["shadow"][rule]) for row in rows if rule in row["shadow"]]
    missing = [found["missing"] for _, found in there if "missing" in found]
    weighed = [(row, found) for row, found in there if "missing" not in found]
    reason = missing[0] if missing else ""
    if not weighed:
        return ShadowSummary(rule, 0, missing=len(missing), reason=reason)
    return ShadowSummary(
        rule,
        len(weighed),
        _mean([found["distance"] for _, found in weighed]),
        weighed[-1][1]["distance"],
        _mean([found["effective_clients"] for _, found in weighed]),
        _mean([row["effective_clients"] for row, _ in weighed]),
        len(missing),
        reason,
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None
