"""The tables of a report, as plain rows, for the terminal, Markdown, CSV and the page."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from fedalpha.analysis.comparison import Summary, diverged_notes
from fedalpha.analysis.tables import STATISTICS, latex, latex_table, number, p_text, statistics
from fedalpha.report.findings import Findings
from fedalpha.report.processors import processor_note
from fedalpha.store.exports import csv_text
from fedalpha.terminal import console


def results_table(findings: Findings, case: str) -> tuple[list[str], list[list[str]]]:
    """A row per measure and strategy: the measured value, the published figure if any, the paired difference."""
    published = {(p.measure, p.strategy): p for p in findings.study.published if p.of(case)}
    header = ["measure", "strategy", "seeds", "mean ± 95 %"] + ["published"] * bool(published)
    header += [f"paired difference to {findings.study.against}", "p (Holm)", "note"]
    diverged = diverged_notes(findings.curves(case))
    body = []
    for name, rows in findings.summaries(case).items():
        for row in rows:
            line = [row.measure.heading, row.strategy, str(len(row.values)), row.text]
            if published:
                line.append(_published(published.get((name, row.strategy)), row))
            own = "reference" if row.strategy == findings.study.against else row.difference_text
            notes = [row.note, diverged.get(row.strategy, ""), processor_note(findings, case, row.strategy)]
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


def notes(findings: Findings, case: str) -> list[str]:
    """The notes below the table of a case."""
    return coincidence_notes(findings, case) + client_notes(findings, case)


def client_notes(findings: Findings, case: str) -> list[str]:
    """One sentence per strategy about the worst and the best client, if clients have their own test parts."""
    found = []
    for strategy, by_seed in findings.of(case).items():
        for seed, result in list(by_seed.items())[:1]:
            number, accuracies = result.clients()
            ranked = [f"client {i} {100 * a:.1f} %" for i, a in sorted(accuracies.items(), key=lambda one: one[1])]
            if ranked:
                found.append(
                    f"{strategy}, seed {seed}, on the clients' own test parts after round {number}: "
                    f"worst {', '.join(ranked[:3])}; best {ranked[-1]}; all {len(ranked)} in clients.csv."
                )
    return found


def statistics_csv(findings: Findings) -> str:
    """Every summary of every case, in the measures' own units (accuracies are fractions)."""
    found: list[Sequence[Any]] = [("case", *STATISTICS)]
    for case in findings.cases:
        for rows in findings.summaries(case).values():
            for row in rows:
                found.append([number(v) for v in (case, *statistics(row, findings.study.against))])
    return csv_text(found)


def latex_tables(findings: Findings) -> str:
    """The results of every case as LaTeX tables (package booktabs)."""
    found = ["% Results of a fedalpha study; needs \\usepackage{booktabs}."]
    for case in findings.cases:
        if findings.curves(case):
            title = [rf"\paragraph{{{latex(case)}}}"] if case else []
            found += [*title, latex_table(*results_table(findings, case))]
    return "\n\n".join(found) + "\n"


def print_table(title: str, header: list[str], body: list[list[str]]) -> None:
    """Print a table; rows are grouped by their first cell."""
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
    console(width=None if sys.stdout.isatty() else 140).print(table)


def _published(figure: Any, row: Summary) -> str:
    if figure is None:
        return "–"
    digits, scale = row.measure.digits, row.measure.scale
    half = "" if figure.half is None else f" ± {scale * figure.half:.{digits}f}"
    return f"{scale * figure.mean:.{digits}f}{half}"
