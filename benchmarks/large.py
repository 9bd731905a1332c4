"""Large models and large cohorts: seconds, processor time and memory of a round beside a plain loop in PyTorch."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SIZES = ((25_000_000, 4, 7), (125_000_000, 2, 3))
"""Parameters, clients, and how many turns."""
PAIRS = (("plain:1", "workers:1"), ("plain:2", "workers:2"))
COHORTS = (10, 100, 1000)
COHORT_PARAMETERS = 2_000_000
RULES = ("mean", "clip(mean, C=0.1)")
PARTS = ("train", "cohort", "both")


def measure(out: Path, part: str = "both", quick: bool = False) -> str:
    """Measure, write ``large.json`` and ``large.md``, and return the tables. The part not measured is kept."""
    if part not in PARTS:
        raise ValueError(f"--part {part!r}: give one of {', '.join(PARTS)}")
    store = out / "large.json"
    found: dict[str, Any] = json.loads(store.read_text()) if store.exists() else {}
    if part != "cohort":
        sizes = ((20_000, 2, 1),) if quick else SIZES
        found["train"] = [_trained(*size) for size in sizes]
    if part != "train":
        parameters, cohorts = (20_000, (4, 8)) if quick else (COHORT_PARAMETERS, COHORTS)
        peaks = {rule: {str(n): _run("workers:2", parameters, n, 1, rule)["peak"] for n in cohorts} for rule in RULES}
        found["cohort"] = {"parameters": parameters, "peaks": peaks}
    out.mkdir(parents=True, exist_ok=True)
    store.write_text(json.dumps(found, indent=1) + "\n")
    text = table(found)
    (out / "large.md").write_text(text)
    return text


def _trained(parameters: int, clients: int, turns: int) -> dict[str, Any]:
    """The figures of each contestant, turn by turn."""
    figures: dict[str, list[Any]] = {who: [] for pair in PAIRS for who in pair}
    for _ in range(turns):
        for who, several in figures.items():
            several.append(_run(who, parameters, clients, 2, "mean"))
    return {"parameters": parameters, "clients": clients, "turns": turns, "figures": figures}


def table(found: dict[str, Any]) -> str:
    """The tables as Markdown."""
    lines: list[str] = []
    if "train" in found:
        lines += ["A round of training and summing beside a plain loop on as many threads: medians over the turns", ""]
        heads = ["parameters", "clients", "turns", "workers", "seconds", "ratio of seconds", "ratio of processor time"]
        heads += ["models", "limit", "models of the loop"]
        lines += [f"| {' | '.join(heads)} |", "|" + "---:|" * len(heads)]
    for row in found.get("train", ()):
        for loop, ours in PAIRS:
            theirs, mine = (row["figures"][who] for who in (loop, ours))
            workers = int(ours.partition(":")[2])
            cells = [f"{row['parameters']:,}", str(row["clients"]), str(row["turns"]), str(workers)]
            cells.append(f"{_median(mine, 'seconds'):.2f}")
            for kind in ("seconds", "processor"):
                ratios = [a[kind] / max(b[kind], 1e-9) for a, b in zip(mine, theirs, strict=True)]
                cells.append(f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
            cells += [f"{_median(mine, 'models'):.1f}", str(4 * workers + 6), f"{_median(theirs, 'models'):.1f}"]
            lines.append(f"| {' | '.join(cells)} |")
    if "cohort" in found:
        peaks = found["cohort"]["peaks"]
        cohorts = list(peaks[RULES[0]])
        model = f"a model of {found['cohort']['parameters']:,} parameters"
        lines += ["", f"The peak of a round with two workers and {model}, MB (and relative to the smallest cohort)", ""]
        lines += [f"| rule | {' | '.join(f'{int(n):,} clients' for n in cohorts)} |", "|---|" + "---:|" * len(cohorts)]
        for rule, by_cohort in peaks.items():
            first = by_cohort[cohorts[0]]
            cells = [f"{by_cohort[n] / 1e6:.0f} ({by_cohort[n] / first:.2f})" for n in cohorts]
            lines.append(f"| `{rule}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _median(figures: list[Any], kind: str) -> float:
    return float(statistics.median(one[kind] for one in figures))


def _run(who: str, parameters: int, clients: int, rounds: int, combine: str) -> Any:
    command = [sys.executable, "-m", "benchmarks.large_side", who, str(parameters), str(clients), str(rounds), combine]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])
