"""Claims against the rows: holds, contradicted, or not decided, from paired differences."""

from __future__ import annotations

from dataclasses import dataclass

from fedalpha.comparison import summarise
from fedalpha.measures import Measure
from fedalpha.report.findings import Findings
from fedalpha.report.tables import p_text
from fedalpha.stats import Difference, holm

LEVEL = 0.05


@dataclass(frozen=True)
class Verdict:
    """One comparison of a claim; ``p_holm`` is corrected for all comparisons of all claims of the case."""

    claim: str
    measure: Measure
    better: str
    than: str
    difference: Difference | None
    same: bool
    p_holm: float | None = None

    @property
    def word(self) -> str:
        """holds · contradicted · not decided · equal on every seed · not measured."""
        if self.difference is None:
            return "not measured"
        if self.same:
            return "equal on every seed"
        if self.p_holm is None or not self.p_holm < LEVEL:
            return "not decided"
        right = (self.difference.mean > 0) == self.measure.higher_is_better
        return "holds" if right else "contradicted"


def verdicts(findings: Findings, case: str) -> list[Verdict]:
    """Every comparison of every claim; the difference is ``better`` − ``than`` over common seeds."""
    runs = findings.curves(case)
    found = []
    for claim in findings.study.claims:
        measure = Measure.parse(claim.measure)
        for rival in claim.than:
            difference, same = None, False
            if claim.better in runs and rival in runs:
                pair = {rival: runs[rival], claim.better: runs[claim.better]}
                _, row = summarise(pair, measure, rival)
                difference, same = row.difference, row.same_as is not None
            found.append(Verdict(claim.text, measure, claim.better, rival, difference, same))
    tested = [v for v in found if v.difference is not None and not v.same]
    corrected = iter(holm([v.difference.p for v in tested if v.difference is not None]))
    return [
        Verdict(v.claim, v.measure, v.better, v.than, v.difference, v.same, next(corrected))
        if v.difference is not None and not v.same
        else v
        for v in found
    ]


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
