"""Writing of a report: an HTML page, the same tables as Markdown and CSV, the same plots as SVG and PNG."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from fedalpha.analysis.tables import markdown_table, markdown_text
from fedalpha.report.claims import claims_table
from fedalpha.report.content import content, facts, run_text
from fedalpha.report.figures import write_figures
from fedalpha.report.findings import Findings, gather
from fedalpha.report.processors import processor_table
from fedalpha.report.tables import latex_tables, notes, results_table, statistics_csv


def write_report(folder: str | Path) -> Path:
    """Write ``report.html``, ``report.md``, ``report.tex``, ``statistics.csv`` and ``figures/``; return the page."""
    findings = gather(folder)
    data = content(findings)
    place = Path(folder)
    findings.store.write_rounds(findings.cells)
    findings.store.write_clients(findings.cells)
    figures = write_figures(data, place / "figures")
    findings.store.write_text(place / "statistics.csv", statistics_csv(findings))
    findings.store.write_text(place / "report.tex", latex_tables(findings))
    findings.store.write_text(place / "report.md", markdown(findings, figures))
    findings.store.write_text(place / "report.html", html(data))
    return place / "report.html"


def html(data: dict[str, Any]) -> str:
    """The page as one file that needs no others."""
    page = resources.files("fedalpha.report").joinpath("page")
    parts = {
        "css": page.joinpath("page.css").read_text(encoding="utf-8"),
        "js": page.joinpath("page.js").read_text(encoding="utf-8"),
        "title": _escape(data["title"]),
        # In a script element only "<" can end or change the script.
        "data": json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
    }
    text = page.joinpath("page.html").read_text(encoding="utf-8")
    pieces = text.split("{{")
    return pieces[0] + "".join(parts[name] + rest for name, rest in (p.split("}}", 1) for p in pieces[1:]))


def markdown(findings: Findings, figures: Mapping[str, str]) -> str:
    """The report as Markdown; ``figures`` are those that were drawn, with their descriptions."""
    study = findings.study
    lines = [f"# {markdown_text(study.title or study.name)}", ""]
    lines += [markdown_text(study.note), ""] * bool(study.note)
    lines += [markdown_text("; ".join(facts(findings))) + ".", ""]
    several = len(findings.cases) > 1
    if several:
        lines += _images(figures, "across-")
    for number, case in enumerate(findings.cases):
        lines += [f"## {markdown_text(case)}", ""] * bool(case)
        if not findings.curves(case):
            lines += ["No finished cells yet.", ""]
            continue
        lines += [markdown_table(*results_table(findings, case)), ""]
        if study.claims:
            lines += ["Tests of the claims on the rows:", "", markdown_table(*claims_table(findings, case)), ""]
        processors = processor_table(findings, case)
        if processors[1]:
            lines += ["Cells by processor:", "", markdown_table(*processors), ""]
        for note in notes(findings, case):
            lines += [markdown_text(note), ""]
        lines += _images(figures, f"case{number + 1}-" if several else "")
    versions = "; ".join(", ".join(f"{k} {v}" for k, v in sorted(found.items())) for found in findings.versions())
    lines += ["## What was run", "", run_text(findings), "", f"Versions: {markdown_text(versions)}.", ""]
    return "\n".join(lines)


def _images(figures: Mapping[str, str], prefix: str) -> list[str]:
    shown = {name: markdown_text(caption) for name, caption in figures.items() if name.startswith(prefix)}
    return [
        line for name, caption in shown.items() for line in (f"![{caption}](figures/{name}.svg)", "", f"{caption}.", "")
    ]


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
