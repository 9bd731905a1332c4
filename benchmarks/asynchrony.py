"""Servers, strategies and speeds of clients on the same seeds: the cells of ``studies/async.toml``, and their tables.

``python -m benchmarks asynchrony --out docs/results/async --page docs/async.md`` repeats what the page shows. The
histories are long (a row for each version), so only the measures of each cell are stored. ``fedalpha study
studies/async.toml`` runs the same cells with their rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pages import put
from fedalpha.analysis.measures import Measure
from fedalpha.analysis.measures.base import curve
from fedalpha.analysis.stats import holm, interval, paired
from fedalpha.study import Cell, read_study

STUDY = Path(__file__).parents[1] / "studies" / "async.toml"
TIME, ACCURACY, WORST = "T_80", "accuracy@100s", "worst_tenth_accuracy@100s"
FINAL, FINAL_WORST = "accuracy", "worst_tenth_accuracy"
MEASURES = (TIME, ACCURACY, WORST, "auc@100s", FINAL, FINAL_WORST)
SHARES = {
    ACCURACY: "accuracy at 100 s",
    WORST: "worst tenth at 100 s",
    FINAL: "final accuracy",
    FINAL_WORST: "final worst tenth",
}
"""the measures that are shares, and the heads of their columns"""
Record = dict[str, dict[str, dict[str, dict[str, Any]]]]
"""case → strategy → seed → measure → value, and whether it was reached; ``cell``: the hash of what was run"""


def measured(cell: Cell) -> dict[str, Any]:
    """The measures of one cell."""
    history = cell.settings.experiment().run("embedded(workers=1)")
    run = curve(history.rows, cell.settings.rounds)
    found = {text: Measure.parse(text).of(run) for text in MEASURES}
    return {"cell": cell.key} | {text: [one.value, one.reached] for text, one in found.items() if one is not None}


def asked(case: str, strategy: str) -> bool:
    """Whether the tables need a cell: where the server waits, a discount of stale updates changes nothing."""
    return case.startswith("buffered") or not strategy.startswith("stale(")


def stored(record: Mapping[str, Any], cell: Cell) -> bool:
    """Whether the measures of this very cell are in the record."""
    found: Mapping[str, Any] = record.get(cell.case, {}).get(cell.strategy, {}).get(str(cell.seed), {})
    return bool(found.get("cell") == cell.key)


def measure(out: Path, page: Path | None, jobs: int, seeds: str | None = None) -> str:
    """Run the cells that ``out`` does not have, and write their measures; the tables."""
    study = read_study(STUDY).with_changes(seeds=seeds, rounds=None)
    file = out / "results.json"
    out.mkdir(parents=True, exist_ok=True)
    record: Record = json.loads(file.read_text()) if file.exists() else {}
    cells = [cell for cell in study.cells() if asked(cell.case, cell.strategy) and not stored(record, cell)]
    cells.sort(key=lambda cell: cell.seed)
    with get_context("fork").Pool(jobs) as pool:
        for number, (cell, found) in enumerate(zip(cells, pool.imap(measured, cells), strict=True)):
            record.setdefault(cell.case, {}).setdefault(cell.strategy, {})[str(cell.seed)] = found
            if number % 5 == 4 or number == len(cells) - 1:
                file.write_text(json.dumps(record, separators=(",", ":")) + "\n")
                print(f"{number + 1} of {len(cells)} cells", flush=True)
    text = tables(record)
    if page is not None:
        put(page, "measured", text)
    return text


def tables(record: Mapping[str, Any]) -> str:
    """The tables of the page: every case, and the paired differences that answer its question."""
    seeds = sorted({int(seed) for rules in record.values() for seeds in rules.values() for seed in seeds})
    lines = [f"Seeds: {', '.join(map(str, seeds))}.", ""]
    for speeds in ("independent", "correlated"):
        lines += [
            f"**Speeds {'independent of the data' if speeds == 'independent' else 'correlated with the data'}**",
            "",
            f"| server | strategy | seconds to 80 % | {' | '.join(f'{head} (%)' for head in SHARES.values())} |",
            "|---|---|" + "---|" * (1 + len(SHARES)),
        ]
        for case, rules in record.items():
            if case.endswith(speeds):
                for rule, seeds in rules.items():
                    values = [_seconds(seeds), *(_percent(seeds, text) for text in SHARES)]
                    lines.append(f"| {case.partition(',')[0]} | `{rule}` | {' | '.join(values)} |")
        lines.append("")
    lines += [
        "**Paired differences** (points; the p-values of each column are corrected together by Holm's method)",
        "",
    ]
    lines += [f"| compared | speeds | {' | '.join(SHARES.values())} |", "|---|---|" + "---|" * len(SHARES)]
    rows = list(_pairs(record))
    corrected = [holm([found[place].p for _, _, found in rows]) for place in range(len(SHARES))]
    for number, (name, speeds, found) in enumerate(rows):
        cells = [_difference(one, p[number]) for one, p in zip(found, corrected, strict=True)]
        lines.append(f"| {name} | {speeds} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _pairs(record: Mapping[str, Any]) -> Any:
    """What is compared: servers under one strategy, and strategies on one server."""
    for speeds in ("independent", "correlated"):
        of = {case.partition(",")[0]: rules for case, rules in record.items() if case.endswith(speeds)}
        for rule in of["synchronous"]:
            for server in ("first 10 of 13", "buffered"):
                pair = of[server][rule], of["synchronous"][rule]
                yield f"`{rule}`: {server} − synchronous", speeds, _found(*pair)
        for server, rules in of.items():
            for rule in rules:
                if rule != "FedAvg":
                    yield f"{server}: `{rule}` − `FedAvg`", speeds, _found(rules[rule], rules["FedAvg"])


def _found(seeds: Mapping[str, Any], others: Mapping[str, Any]) -> list[Any]:
    def difference(text: str) -> Any:
        common = sorted((seed for seed in seeds.keys() & others.keys() if both(seed, text)), key=int)
        mine, theirs = ([100 * one[seed][text][0] for seed in common] for one in (seeds, others))
        return paired(mine, theirs)

    def both(seed: str, text: str) -> bool:  # a run may end before 100 s
        return text in seeds[seed] and text in others[seed]

    return [difference(text) for text in SHARES]


def _seconds(seeds: Mapping[str, Any]) -> str:
    """The mean, if every run got there; else how many did, and the median where it is known."""
    found = [one[TIME] for one in seeds.values()]
    reached = sum(bool(one[1]) for one in found)
    if reached == len(found):
        return f"{interval([one[0] for one in found]).text(1)}"
    middle = np.median([one[0] if one[1] else np.inf for one in found])
    known = f", median {middle:.1f}" if np.isfinite(middle) else ""
    return f"{reached} of {len(found)} runs{known}"


def _percent(seeds: Mapping[str, Any], text: str) -> str:
    found = [100 * one[text][0] for one in seeds.values() if text in one]  # a run may end before that time
    short = "" if len(found) == len(seeds) else f" ({len(found)} runs)"
    return interval(found).text(1) + short


def _difference(one: Any, p: float) -> str:
    if np.isnan(p):  # fewer than two pairs
        return "–" if np.isnan(one.mean) else f"{one.mean:+.1f}"
    shown = f"{one.mean:+.1f} ± {one.half:.1f}"
    return f"**{shown}** (p {'< 0.001' if p < 0.001 else f'= {p:.3f}'})" if p < 0.05 else f"{shown} (p = {p:.2f})"
