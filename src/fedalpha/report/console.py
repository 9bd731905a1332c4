"""A study's tables on the terminal."""

from __future__ import annotations

from fedalpha.report.claims import claims_table
from fedalpha.report.findings import Findings
from fedalpha.report.processors import processor_table
from fedalpha.report.tables import coincidence_notes, print_table, results_table


def console_tables(findings: Findings) -> None:
    """Print the results, the claims and the cells that coincide."""
    for case in findings.cases:
        if findings.curves(case):
            title = case or findings.study.title or findings.study.name
            print_table(f"{title} (Student t over seeds; never the best round)", *results_table(findings, case))
            if findings.study.claims:
                print_table("tests of the claims on the rows", *claims_table(findings, case))
            processors = processor_table(findings, case)
            if processors[1]:
                print_table("cells by processor", *processors)
            for note in coincidence_notes(findings, case):
                print(note)
