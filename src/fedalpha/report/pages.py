"""Tables of stored studies in a Markdown page, so that every number on the page can be reproduced.

Two comments mark the place and the content of a table; `fill_page` writes the part between them::

    <!-- fedalpha results/fmnist-r60: R_60, steps_to_60 -->
    <!-- end -->

The folder is relative to the page. After the colon come the measures to show, or ``claims``.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from fedalpha.analysis.measures import Measure
from fedalpha.analysis.tables import markdown_table
from fedalpha.report.claims import claims_table
from fedalpha.report.findings import gather
from fedalpha.report.tables import results_table
from fedalpha.runs.reading import read_text
from fedalpha.study.store import write_bytes

_START = re.compile(r"<!--\s*fedalpha\b")
_MARK = re.compile(r"<!-- fedalpha (\S+): ([^>]+?) -->")
_END = "<!-- end -->"


def fill_page(page: str | Path) -> int:
    """Rewrite the tables of a Markdown page. Returns how many there are."""
    page = Path(page)
    text = read_text(page, "page").replace("\r\n", "\n")
    write_bytes(page, filled(text, page.parent).encode())
    return len(_tables(text))


def filled(text: str, place: Path) -> str:
    """The page with its tables; ``place`` is the folder of the page."""
    lines, done, out = text.split("\n"), 0, []
    for start, end, folder, what in _tables(text):
        out += [*lines[done : start + 1], *_table(place / folder, what).split("\n")]
        done = end
    return "\n".join([*out, *lines[done:]])


def _tables(text: str) -> list[tuple[int, int, str, str]]:
    """The lines of each pair of marks, and the folder and the measures of each table."""
    found: list[tuple[int, int, str, str]] = []
    begun: tuple[int, str, str] | None = None
    marks = 0
    for number, line in enumerate(text.split("\n")):
        marks += _START.match(line) is not None
        if begun is None and (mark := _MARK.fullmatch(line)):
            begun = (number, mark[1], mark[2])
        elif begun is not None and line == _END:
            found.append((begun[0], number, begun[1], begun[2]))
            begun = None
    if len(found) != marks or not marks:
        raise ValueError(
            "the page has no table marks that can be read; write <!-- fedalpha FOLDER: MEASURE, MEASURE --> (or "
            "claims after the colon) and <!-- end -->, each on a line of its own"
        )
    return found


def _table(folder: Path, what: str) -> str:
    findings = gather(folder)
    claims = what.strip() == "claims"
    if not claims:
        measures = tuple(str(Measure.parse(name.strip())) for name in what.split(","))
        findings = dataclasses.replace(findings, study=findings.study.model_copy(update={"measures": measures}))
    elif not findings.study.claims:
        raise ValueError(f"the study in {folder} makes no claims; name measures instead")
    tables = {case: (claims_table if claims else results_table)(findings, case) for case in findings.cases}
    header = next(iter(tables.values()))[0]
    if len(tables) == 1:
        return markdown_table(*next(iter(tables.values())))
    return markdown_table(["case", *header], [[case, *row] for case, (_, body) in tables.items() for row in body])
