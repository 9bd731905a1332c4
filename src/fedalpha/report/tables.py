"""The tables of a report, as plain rows: the terminal, Markdown, CSV and the page show the same ones."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence
from typing import Any

from fedalpha.analysis.comparison import Summary
from fedalpha.report.findings import Findings
from fedalpha.report.processors import processor_note
from fedalpha.store.exports import csv_text
from fedalpha.text import plain

STATISTICS = (
    "case",
    "measure",
    "strategy",
    "seeds",
    "mean",
    "half_width_95",
    "median",
    "not_reached",
    "horizon",
    "no_answer",
    "reference",
    "difference",
    "difference_half_width_95",
    "difference_bound",
    "pairs",
    "p",
    "p_holm",
    "same_as",
)


def results_table(findings: Findings, case: str) -> tuple[list[str], list[list[str]]]:
    """A row per measure and strategy: ours, the published figure if there is one, the paired difference."""
    published = {(p.measure, p.strategy): p for p in findings.study.published}
    header = ["measure", "strategy", "seeds", "mean ± 95 %"] + ["published"] * bool(published)
    header += [f"paired difference to {findings.study.against}", "p (Holm)", "note"]
    body = []
    for name, rows in findings.summaries(case).items():
        for row in rows:
            line = [row.measure.heading, row.strategy, str(len(row.values)), row.text]
            if published:
                line.append(_published(published.get((name, row.strategy)), row))
            own = "reference" if row.strategy == findings.study.against else row.difference_text
            notes = [row.note, processor_note(findings, case, row.strategy)]
            body.append([*line, own, p_text(row.p_holm), "; ".join(note for note in notes if note)])
    return header, body


def coincidence_notes(findings: Findings, case: str) -> list[str]:
    """One sentence per strategy whose cells coincide with another's by construction, in part or in full."""
    notes = [
        f"{strategy} coincides with {twin} on {count} of {total} seeds: the same rounds, computed once."
        for strategy, twin, count, total in findings.coinciding(case)
    ]
    return notes + [
        f"{strategy} and {twin} share their first {rounds} rounds, which were computed once."
        for strategy, (twin, rounds) in findings.sharing(case).items()
    ]


def statistics_csv(findings: Findings) -> str:
    """Every summary of every case, in the measures' own units (accuracies are fractions)."""
    found: list[Sequence[Any]] = [STATISTICS]
    for case in findings.cases:
        for name, rows in findings.summaries(case).items():
            for row in rows:
                found.append([_cell(v) for v in (case, name, *_statistics(row, findings.study.against))])
    return csv_text(found)


def _statistics(row: Summary, reference: str) -> list[Any]:
    d = row.difference
    compared = [None] * 7 if d is None else [reference, d.mean, d.half, d.mark, d.n, d.p, row.p_holm]
    start = [row.strategy, len(row.values), row.mean.mean, row.mean.half, row.median]
    return [*start, row.unreached, row.horizon, row.missing, *compared, row.same_as]


def print_table(title: str, header: list[str], body: list[list[str]]) -> None:
    """Print a table; rows are grouped by their first cell."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left")
    for i, heading in enumerate(header[1:]):
        table.add_column(Text(heading), justify="left" if i in (0, len(header) - 2) else "right")
    before = ""
    for group, *row in body:
        if group != before:
            before = group
            table.add_section()
            table.add_row(Text(group, style="bold"), *[""] * (len(row) - 1))
        table.add_row(*map(Text, row))
    Console(width=None if sys.stdout.isatty() else 140).print(table)


def markdown_table(header: list[str], body: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = [header, ["---"] * len(header), *body]
    return "\n".join("| " + " | ".join(_one_line(cell) for cell in line) + " |" for line in lines)


def _one_line(cell: str) -> str:
    return markdown_text(cell).replace("\n", " ").replace("|", "\\|")


def markdown_text(text: str) -> str:
    """A text in Markdown: a name cannot open an HTML tag, a link or a picture.

    >>> markdown_text("<script>, [x](javascript:y), < 0.001")
    '&lt;script>, [x]\\\\(javascript:y), < 0.001'
    """
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", plain(text, lines=True)).replace("](", "]\\(")


def p_text(p: float | None) -> str:
    """A p-value for people.

    >>> p_text(0.03124), p_text(1e-9), p_text(None)
    ('0.031', '< 0.001', '–')
    """
    if p is None or math.isnan(p):
        return "–"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _published(figure: Any, row: Summary) -> str:
    if figure is None:
        return "–"
    digits, scale = row.measure.digits, row.measure.scale
    half = "" if figure.half is None else f" ± {scale * figure.half:.{digits}f}"
    return f"{scale * figure.mean:.{digits}f}{half}"


def _cell(value: Any) -> Any:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return repr(value) if isinstance(value, float) else value
