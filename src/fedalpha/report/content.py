"""The data of the page and the figures: plain values, ready for JSON."""

from __future__ import annotations

import json
import math
from functools import lru_cache
from typing import Any

import numpy as np

from fedalpha.analysis.columns import numbers
from fedalpha.analysis.comparison import Summary
from fedalpha.analysis.measures import Curve
from fedalpha.analysis.stats import interval
from fedalpha.analysis.tables import p_text
from fedalpha.report.across import across
from fedalpha.report.claims import claims_table
from fedalpha.report.findings import Findings
from fedalpha.report.processors import processor_table, processors
from fedalpha.report.tables import notes, results_table
from fedalpha.store.exports import COLOURS
from fedalpha.study import Published, Result
from fedalpha.text import counted

HEAT_CELLS = 150_000
"""A larger heat map (rounds × clients) is left out, because it is unreadable and makes the page slow."""


def content(findings: Findings) -> dict[str, Any]:
    """The page's data."""
    study = findings.study
    seeds = {cell.seed for cell in findings.cells if cell.key in findings.results}
    return {
        "title": study.title or study.name,
        "note": study.note,
        "facts": facts(findings),
        "strategies": list(study.names),
        "reference": study.against,
        "colours": colours(findings),
        "palette": list(COLOURS),
        "seeds": len(seeds),
        "across": across(findings),
        "cases": _cases(findings),
        "run": run_text(findings),
        "config": json.dumps(findings.cells[0].config, indent=1, ensure_ascii=False),
        "versions": json.dumps(findings.versions(), indent=1),
    }


def facts(findings: Findings) -> list[str]:
    """The main facts of the study."""
    study = findings.study
    unique = {cell.key for cell in findings.cells}
    found = [
        f"{counted(len(study.names), 'strategy', 'strategies')} × {counted(len(study.seeds), 'seed')}"
        + (f" × {len(findings.cases)} cases" if len(findings.cases) > 1 else ""),
        f"{len(findings.results)} of {counted(len(unique), 'cell')} done",
    ]
    for name, shown in (("dataset", "{}"), ("partition", "{}"), ("clients", "{} clients"), ("update", "{}")):
        values = {getattr(cell.settings, name) for cell in findings.cells}
        found += [shown.format(*values)] * (len(values) == 1)
    rounds = sorted({cell.settings.rounds for cell in findings.cells})
    length = counted(rounds[-1], "round") if len(rounds) == 1 else f"{rounds[0]:,} to {rounds[-1]:,} rounds"
    stops = questions(findings)
    found.append(f"until {stops}, ≤ {length}" if stops else length)
    return found + ([f"protocol {study.protocol}"] if study.protocol else [])


def questions(findings: Findings) -> str:
    """The conditions that end a cell early."""
    return ", ".join(dict.fromkeys(str(cell.stop_at) for cell in findings.cells if cell.stop_at is not None))


def run_text(findings: Findings) -> str:
    """One paragraph on the design."""
    stopped = sum(r.stopped for r in findings.results.values())
    twins = sum("coincides_with" in r.about for r in findings.results.values())
    text = (
        "Paired design: for one seed every strategy has the same initial model, partition, cohorts and batches. "
        "Intervals are 95 % (Student t) over seeds; p-values are those of paired t tests, corrected by Holm's method "
        "for the comparisons of one measure. Values are those of the final or the named round, never of the best one. "
        "Runs that never reach p % are censored: they count with the last round that was run, so the mean is a lower "
        "bound (≥). A difference to such a mean is also a bound (≥, ≤). If both strategies have such runs, it is the "
        "difference of the times cut at the last round ('cut at'), and no claim is decided by it."
    )
    if stopped:
        text += f" {counted(stopped, 'cell')} stopped early because their condition was met ({questions(findings)})."
    if len(kinds := processors(findings)) > 1:
        text += f" Cells ran on {len(kinds)} processors, whose arithmetic differs in the last bits: see the tables."
    if twins:
        same = counted(twins, "cell coincides", "cells coincide")
        text += f" {same} with another one by construction; their rows were computed once."
    return text


def colours(findings: Findings) -> dict[str, str]:
    """A colour per strategy."""
    return {s: COLOURS[i % len(COLOURS)] for i, s in enumerate(findings.study.names)}


def _cases(findings: Findings) -> list[dict[str, Any]]:
    """Every case. The picture of a partition is shown in the first case that has it."""
    cases = [_case(findings, case) for case in findings.cases]
    seen: list[Any] = []
    for item in cases:
        part = item.get("partition")
        item["partition"] = None if part in seen else part
        seen.append(part)
    return cases


def _case(findings: Findings, case: str) -> dict[str, Any]:
    runs = findings.curves(case)
    if not runs:
        return {"name": case, "curves": []}
    summaries = findings.summaries(case)
    times = [rows for rows in summaries.values() if rows[0].measure.unit]
    header, body = results_table(findings, case)
    claims, places = claims_table(findings, case), processor_table(findings, case)
    targets = [rows[0].measure.percent for rows in times]
    return {
        "name": case,
        "curves": [line(strategy, list(by_seed.values())) for strategy, by_seed in runs.items()],
        "stopped": any(c.last < c.rounds for by_seed in runs.values() for c in by_seed.values()),
        "target": targets[0] if targets else None,
        "zoom": [view.model_dump() for view in findings.study.zoom],
        "dots": [dots(rows, tuple(p for p in findings.study.published if p.of(case))) for rows in times],
        "forests": [forest(rows) for rows in summaries.values() if any(r.difference for r in rows)],
        "table": {"header": header, "body": body},
        "claims": {"header": claims[0], "body": claims[1]},
        "processors": {"header": places[0], "body": places[1]},
        "notes": notes(findings, case),
        "diagnostics": diagnostics(runs),
        "heat": heat_maps(findings, case),
        "partition": partition(findings, case),
    }


def line(strategy: str, curves: list[Curve]) -> dict[str, Any]:
    """The mean curve of a strategy with its half-widths, as far as every seed goes; accuracies in %."""
    length = min(c.last for c in curves) + 1
    drawn: dict[str, Any] = {"strategy": strategy, "rounds": list(range(length))}
    return drawn | {"accuracy": _band(curves, "accuracy", 4, scale=100.0), "loss": _band(curves, "loss", 6)}


def diagnostics(runs: dict[str, dict[int, Curve]]) -> list[dict[str, Any]]:
    """The diagnostics of the weights: one panel for each diagnostic with a value in some round.

    A round in which a seed has no value is left out.
    """
    panels = []
    for column in (found for found in numbers() if found.panel):
        lines = []
        for strategy, by_seed in runs.items():
            curves = list(by_seed.values())
            if all(column.name in c.columns for c in curves):  # older cells have none
                band = _band(curves, column.name, 6, column.scale)
                lines.append({"strategy": strategy, "rounds": list(range(len(band["mean"]))), **band})
        if any(v is not None for item in lines for v in item["mean"]):
            panels.append({"name": column.name, "title": column.heading, "lines": lines})
    return panels


def _band(curves: list[Curve], name: str, digits: int, scale: float = 1.0) -> dict[str, list[float | None]]:
    length = min(c.last for c in curves) + 1
    values = scale * np.stack([c.columns[name][:length] for c in curves])
    bands = [interval(values[:, r]) for r in range(length)]
    return {"mean": [_round(b.mean, digits) for b in bands], "half": [_round(b.half, digits) for b in bands]}


def dots(rows: list[Summary], published: tuple[Published, ...]) -> dict[str, Any]:
    """R_p or T_p of every strategy: seeds, mean, interval, the published figure."""
    measure = rows[0].measure
    figures = {p.strategy: p for p in published if p.measure == str(measure)}
    items = []
    for row in rows:
        figure = figures.get(row.strategy)
        items.append(
            {
                "strategy": row.strategy,
                "mean": _round(row.mean.mean, 4),
                "half": _round(row.mean.half, 4),
                "points": [{"value": v.value, "reached": v.reached} for v in row.values.values()],
                "bound": "≥" if row.unreached else "",
                "text": f"{measure.heading}: {row.text}",
                "detail": "" if figure is None else f"published: {figure.mean} ± {figure.half or '–'}",
                "published": None if figure is None else {"mean": figure.mean, "half": figure.half},
            }
        )
    title = f"{measure}: {measure.unit} to reach {measure.percent:g} %"
    shared = {"name": str(measure), "items": items, "digits": 2, "unit": measure.unit, "within": [0, None]}
    return {"title": title, **shared, "published": bool(figures)}


def forest(rows: list[Summary]) -> dict[str, Any]:
    """Paired differences to the reference in one measure."""
    measure = rows[0].measure
    items = []
    for row in rows:
        if row.difference is not None:
            note = f"; same rounds as {row.same_as}" if row.same_as else ""
            items.append(
                {
                    "strategy": row.strategy,
                    "mean": _round(measure.scale * row.difference.mean, 4),
                    "half": _round(measure.scale * row.difference.half, 4),
                    "bound": row.difference.mark,
                    "text": f"{row.difference_text} ({row.difference.n} pairs)",
                    "detail": f"p (Holm) {p_text(row.p_holm)}{note}",
                }
            )
    unit = f"{'right' if measure.higher_is_better else 'left'} is {measure.praise}"
    title = f"Difference in {measure.heading}"
    within = [-100, 100] if measure.scale == 100 else [None, None]  # no difference of two percentages is larger
    named = {"title": title, "name": str(measure), "unit": unit}
    return {**named, "items": items, "digits": measure.digits, "within": within}


def heat_maps(findings: Findings, case: str) -> list[dict[str, Any]]:
    """α over rounds and clients, of the first seed of each strategy."""
    clients = next(cell.settings.clients for cell in findings.cells if cell.case == case)
    maps = []
    for strategy, by_seed in findings.of(case).items():
        seed = min((seed for seed, result in by_seed.items() if "alpha" in result.columns), default=None)
        if seed is not None:
            alpha = alphas(by_seed[seed], clients)
            if alpha is not None:
                rows = [[None if math.isnan(v) else float(f"{v:.3g}") for v in row] for row in alpha.tolist()]
                maps.append({"strategy": strategy, "seed": seed, "clients": clients, "alpha": rows})
    return maps


def alphas(result: Result, clients: int) -> Any:
    """The matrix rounds × clients of α, NaN for clients outside the cohort; None if it was not stored."""
    if "alpha" not in result.columns or result.last == 0 or result.last * clients > HEAT_CELLS:
        return None
    matrix = np.full((result.last, clients), np.nan)
    for r in range(1, result.last + 1):
        matrix[r - 1, result.columns["cohort"][r]] = result.columns["alpha"][r]
    return matrix


def partition(findings: Findings, case: str) -> dict[str, Any] | None:
    """The partition of the first seed; None if the data are not on this machine, or belong to a plugin."""
    cell = next(cell for cell in findings.cells if cell.case == case)
    s = cell.settings
    found = _label_counts(s.dataset, s.partition, s.clients, s.seed, s.validation or 0.0)
    if found is None:
        return None
    counts, names = found
    title = f"{s.dataset}, {s.partition}, seed {s.seed}"
    return {"title": title, "counts": counts, "names": names}


@lru_cache(maxsize=32)
def _label_counts(
    dataset: str, split: str, clients: int, seed: int, validation: float
) -> tuple[list[list[int]], list[str]] | None:
    from fedalpha.data import DATASETS, federation

    try:
        data = DATASETS.parse(dataset)
        here, _ = data.origin()
        if clients > 400 or not here:
            return None
        counts = federation(data, partition=split, clients=clients, seed=seed, validation=validation).label_counts
    except ValueError:  # a plugin's, which need not be here
        return None
    return None if counts is None else (counts.tolist(), list(data.class_names))


def _round(value: float, digits: int) -> float | None:
    return None if not math.isfinite(value) else round(value, digits)
