"""Tables of stored studies in a Markdown page, so that every number on it can be reproduced.

A page marks where a table is and what it shows; `fill` writes the part between the two comments::

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
from fedalpha.study.store import write_bytes

_START = re.compile(r"^<!--\s*fedalpha\b", re.MULTILINE)
_TABLE = re.compile(r"^(<!-- fedalpha (\S+): ([^>\n]+?) -->\n).*?^(<!-- end -->)$", re.DOTALL | re.MULTILINE)


def fill_page(page: str | Path) -> int:
    """Rewrite the tables of a Markdown page. Returns how many there are."""
    page = Path(page)
    try:
        text = page.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"cannot read the page {page}: {error.strerror}") from None
    write_bytes(page, filled(text, page.parent).encode())
    return len(_TABLE.findall(text))


def filled(text: str, place: Path) -> str:
    """The page with its tables; ``place`` is the folder of the page."""
    if len(_START.findall(text)) != len(_TABLE.findall(text)) or not _START.search(text):
        raise ValueError(
            "the page has no table marks that can be read; write <!-- fedalpha FOLDER: MEASURE, MEASURE --> (or "
            "claims after the colon) and <!-- end -->, each on a line of its own"
        )
    return _TABLE.sub(lambda found: found[1] + _table(place / found[2], found[3]) + "\n" + found[4], text)


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
