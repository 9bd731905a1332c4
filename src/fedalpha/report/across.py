"""One plot per measure over all cases of a study, which shows how each strategy depends on the varied setting."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from fedalpha.report.findings import Findings


def across(findings: Findings) -> list[dict[str, Any]]:
    """The measures of a study with several cases: a line per strategy, a point per case (None without a value).

    Only cases that are increasing or decreasing numbers are ``ordered`` and joined by lines, not "digits" and "E = 5".
    """
    cases = findings.cases
    if len(cases) < 2:
        return []
    names, axis = short_names(cases)
    numbers = [_number(name) for name in names]
    ordered = sorted(numbers) in (numbers, numbers[::-1]) and not any(map(math.isnan, numbers))
    by_case = [findings.summaries(case) for case in cases]
    found = []
    for measure in findings.study.measures:
        columns = [{row.strategy: row for row in rows.get(measure, ())} for rows in by_case]
        lines = [
            {"strategy": strategy, "points": [_point(column.get(strategy)) for column in columns]}
            for strategy in findings.study.names
        ]
        if any(point for line in lines for point in line["points"]):
            shown = next(row.measure for column in columns for row in column.values())
            within = [0, 100 if shown.scale == 100 else None]
            place = {"cases": names, "axis": axis, "ordered": ordered, "within": within}
            found.append({"name": measure, "title": shown.heading, **place, "lines": lines})
    return found


def _point(row: Any) -> dict[str, Any] | None:
    if row is None or not row.values:
        return None
    scale = row.measure.scale
    half = scale * row.mean.half
    return {
        "mean": round(scale * row.mean.mean, 4),
        "half": round(half, 4) if math.isfinite(half) else None,
        "reached": not row.unreached,
        "text": row.text,
    }


def short_names(cases: Sequence[str]) -> tuple[list[str], str]:
    """The parts in which the names of the cases differ, and their common part (for the axis).

    >>> short_names(["lr=exponential(0.01, rate=0.99)", "lr=exponential(0.1, rate=0.99)"])
    (['0.01', '0.1'], 'lr=exponential(…, rate=0.99)')
    >>> short_names(["E = 5", "digits"])
    (['E = 5', 'digits'], '')
    """
    start = _common(cases)
    rest = [case[len(start) :] for case in cases]
    end = _common([name[::-1] for name in rest])[::-1]
    names = [name[: len(name) - len(end)] for name in rest]
    return (names, f"{start}…{end}") if (start or end) and all(names) else (list(cases), "")


def _number(text: str) -> float:
    """The number that a text is; NaN if it is not one."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return math.nan


def _common(texts: Sequence[str]) -> str:
    """The common beginning of all texts, up to the last character that is not part of a word or number."""
    equal = takewhile(lambda letters: len(set(letters)) == 1, zip(*texts, strict=False))
    return re.sub(r"[\w.]*$", "", "".join(letters[0] for letters in equal))
