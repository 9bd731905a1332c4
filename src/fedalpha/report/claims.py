"""Tests of claims on the stored rows: holds, contradicted, or not decided, from paired differences."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

from fedalpha.analysis.comparison import rounds_played, summarise
from fedalpha.analysis.measures import Measure
from fedalpha.analysis.stats import Difference, holm
from fedalpha.analysis.tables import p_text
from fedalpha.report.findings import Findings

LEVEL = 0.05


@dataclass(frozen=True)
class Verdict:
    """One comparison of a claim; ``p_holm`` is corrected for all comparisons of the case's claims."""

    claim: str
    measure: Measure
    better: str
    than: str
    difference: Difference | None
    measured: bool
    p_holm: float | None = None

    @property
    def word(self) -> str:
        """holds · contradicted · not decided · equal on every seed · not measured."""
        if self.difference is None:  # some runs are missing, or all are censored
            return "not decided" if self.measured else "not measured"
        if self.difference.mean == 0 and not self.difference.half > 0 and not self.difference.bound:
            return "equal on every seed"
        if self.p_holm is None or not self.p_holm < LEVEL:
            return "not decided"
        if self.difference.bound not in ("", "≥ " if self.difference.mean > 0 else "≤ "):
            return "not decided"  # with the true values of censored runs the sign could change
        right = (self.difference.mean > 0) == self.measure.higher_is_better
        return "holds" if right else "contradicted"


def verdicts(findings: Findings, case: str) -> list[Verdict]:
    """Every comparison of every claim; the difference is ``better`` − ``than`` over common seeds.

    Comparisons of the same rounds (hybrids before their change) count as one; a comparison of twins does not count.
    """
    runs = findings.curves(case)
    found: list[Verdict] = []
    played: list[Hashable] = []
    for claim in findings.study.claims:
        measure = Measure.parse(claim.measure)
        for rival in claim.than:
            difference, measured, compared = None, False, None
            if claim.better in runs and rival in runs:
                base, row = summarise({name: runs[name] for name in (rival, claim.better)}, measure, rival)
                difference, measured = row.difference, bool(row.values and base.values)
                if row.same_as is None:  # A against B and B against A are one comparison
                    sides = (rounds_played(runs[name], measure) for name in (claim.better, rival))
                    compared = (measure, frozenset(frozenset(side.items()) for side in sides))
            found.append(Verdict(claim.text, measure, claim.better, rival, difference, measured))
            played.append(compared)
    tested = {key: v.difference.p for key, v in zip(played, found, strict=True) if key is not None and v.difference}
    corrected = dict(zip(tested, holm(list(tested.values())), strict=True))
    return [replace(v, p_holm=corrected.get(key)) for key, v in zip(played, found, strict=True)]


def claims_table(findings: Findings, case: str) -> tuple[list[str], list[list[str]]]:
    """The verdicts as a table."""
    header = ["claim", "comparison", "measure", "difference ± 95 %", "pairs", "p (Holm)", "verdict"]
    body = []
    for v in verdicts(findings, case):
        d = v.difference
        shown = "–" if d is None else d.text(v.measure.digits, v.measure.scale)
        pairs = "0" if d is None else str(d.n)
        comparison = f"{v.better} against {v.than}"
        body.append([v.claim, comparison, v.measure.heading, shown, pairs, p_text(v.p_holm), v.word])
    return header, body
