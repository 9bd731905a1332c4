"""The tables of the reliability benchmark, as JSON, Markdown and a picture."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.reliability.byzantine import (
    ATTACKERS,
    ATTACKS,
    CLIENTS,
    DEFENCES,
    ROUNDS,
    byzantine_cells,
    byzantine_table,
)
from benchmarks.reliability.matrix import fault_matrix
from benchmarks.reliability.saving import LONG, save_cost
from benchmarks.reliability.vectors import BYZFL, F, N, vector_table
from fedalpha.runs.machine import versions
from fedalpha.strategies import STRATEGIES

Say = Callable[[str], None]


def measure(out: Path, seeds: Sequence[int], least: int, environment: Path | None, say: Say) -> None:
    """Do the measurements that ``out`` lacks, and write the page."""
    out.mkdir(parents=True, exist_ok=True)
    matrix = []
    for row in fault_matrix(least):
        matrix.append(row)
        say(f"fault matrix: {row['strategy']}: {row['injected']} faults, {row['crashes']} crashes")
    _write(out / "faults.json", matrix)
    vectors = vector_table(environment)
    _write(out / "vectors.json", vectors)
    if not (out / "saving.json").exists():
        say("saving: three rounds of the paper's workload")
        _write(out / "saving.json", save_cost())
    total = len(seeds) * len(ATTACKS) * len(DEFENCES) * 3
    for number, cell in enumerate(byzantine_cells(seeds, out / "byzantine.jsonl"), start=1):
        say(f"Byzantine table {number}/{total}: {cell['strategy']}, {cell['defence']}, {cell['attack']}")
    page(out)


def page(out: Path) -> None:
    """The page and the picture, from the files in ``out``."""
    matrix = json.loads((out / "faults.json").read_text()) if (out / "faults.json").exists() else []
    vectors = json.loads((out / "vectors.json").read_text()) if (out / "vectors.json").exists() else []
    saving = json.loads((out / "saving.json").read_text()) if (out / "saving.json").exists() else None
    lines = (out / "byzantine.jsonl").read_text().splitlines() if (out / "byzantine.jsonl").exists() else []
    table = byzantine_table([json.loads(line) for line in lines])
    kept = {k: v for k, v in versions().items() if k in ("fedalpha", "python", "torch", "numpy")}
    parts = [
        "# Reliability: what was measured",
        f"Written by `python -m benchmarks reliability` with {', '.join(f'{k} {v}' for k, v in kept.items())}.",
        "## Fault matrix",
        "Digits, 12 clients, updates clipped to norm 1; every fault in turn, round by round. *share of 2BC*: the "
        "largest distance that faulty clients moved the model from where the others would have, over the bound "
        "(–: coefficients off the simplex, for which there is no such bound).",
        _markdown(
            ["strategy", "injected", "refused", "logged", "not refused", "rounds kept", "crashes", "non-finite",
             "over 2BC", "share of 2BC"],
            [
                [r["strategy"], r["injected"], r["refused"], r["logged"], r["unrefused"], r["kept"], r["crashes"],
                 r["non_finite"], *_bound(r)]
                for r in matrix
            ],
        ),
        "## Attack × strategy × defence",
        f"Digits over {CLIENTS} clients (dirichlet(a=5): mild heterogeneity), {ATTACKERS} of them attackers, MLP, "
        f"{ROUNDS} rounds, final round; mean ± 95 % over seeds (Student t). *share*: of the same strategy's accuracy "
        "without attack and defence; the bar is 0.95. *mass*: the attackers' alpha, mean over rounds; *possible*: the "
        "most that any so many liars could have had. "
        + "; ".join(f"*{name}*: `{d.weigh('S')}` with `{d.combine}`" for name, d in DEFENCES.items()) + ".",
        _markdown(
            ["strategy", "defence", "attack", "seeds", "accuracy (%)", "share", "worst client (%)", "mass", "possible",
             "2BC", "non-finite"],
            [
                [r["strategy"], r["defence"], r["attack"], r["seeds"], r["accuracy"], f"{r['share']:.2f}",
                 r["worst_client"], f"{r['mass']:.2f}", f"{r['possible']:.2f}",
                 "–" if r["bound"] is None else f"{r['bound']:.2f}", r["non_finite"]]
                for r in table
            ],
        ),
        f"## The same vectors through ByzFL ({BYZFL})",
        f"{N - F} honest vectors and {F} attackers, equal weights: distance of the aggregate to the honest mean. "
        "“not finite” is what one NaN coordinate does to an aggregator; our gate refuses that client before.",
        _markdown(
            ["attack", "rule", "fedalpha", "ByzFL", "between the two"],
            [
                [r["attack"], r["rule"], _number(r["ours"]), _number(r.get("byzfl")), _number(r.get("difference"), "–")]
                for r in vectors
            ],
        ),
    ]  # fmt: skip
    if saving is not None:
        parts += [
            "## What saving costs",
            f"`python -m benchmarks saving`: Fashion-MNIST, {saving['clients']} clients, {saving['model']}, a save "
            f"after every round; medians of {saving['rounds']} rounds. The time inside the save path over the round's "
            "time in the same run; the bar is 3 %, which this save meets for every round longer than "
            f"{max(saving['save_seconds'], saving['save_seconds_at_100_rows']) / 0.03:.1f} s.",
            _markdown(
                ["round (s)", "save (s)", "share", f"save with {LONG} rows (s)", "share"],
                [
                    [f"{saving['round_seconds']:.1f}", f"{saving['save_seconds']:.3f}", f"{saving['share']:.2%}",
                     f"{saving['save_seconds_at_100_rows']:.3f}", f"{saving['share_at_100_rows']:.2%}"]
                ],
            ),
        ]  # fmt: skip
    (out / "README.md").write_text("\n\n".join(parts) + "\n")
    if table:
        _picture(table, out / "byzantine.png")


def _picture(table: list[dict[str, Any]], path: Path) -> None:
    """One heat map per defence: share of the attack-free accuracy."""
    import numpy as np
    from matplotlib.figure import Figure

    strategies = list(dict.fromkeys(r["strategy"] for r in table))
    attacks = list(dict.fromkeys(r["attack"] for r in table))
    defences = list(dict.fromkeys(r["defence"] for r in table))
    figure = Figure(figsize=(4.2 * len(defences), 0.42 * len(attacks) + 2.2), layout="constrained")
    axes = figure.subplots(1, len(defences), squeeze=False)[0]
    share = {(r["defence"], r["attack"], r["strategy"]): r["share"] for r in table}
    for axis, defence in zip(axes, defences, strict=True):
        values = np.array([[share.get((defence, a, s), np.nan) for s in strategies] for a in attacks])
        axis.imshow(values, vmin=0, vmax=1, cmap="RdYlGn", aspect="auto")
        for (i, j), value in np.ndenumerate(values):
            ink = "black" if 0.25 < value < 0.85 else "white"  # the ends of the scale are dark
            axis.text(j, i, "" if np.isnan(value) else f"{value:.2f}", ha="center", va="center", fontsize=8, color=ink)
        axis.set_title(f"defence: {defence}", fontsize=9)
        axis.set_xticks(range(len(strategies)), [s.split("(")[0] for s in strategies], fontsize=7)
        axis.set_yticks(range(len(attacks)), attacks if axis is axes[0] else [""] * len(attacks), fontsize=8)
    figure.suptitle("share of the attack-free accuracy, 4 attackers of 20", fontsize=10)
    figure.savefig(path, dpi=120)


def _bound(row: dict[str, Any]) -> list[Any]:
    simplex = STRATEGIES.parse(row["strategy"]).traits.simplex
    return [row["over_bound"], f"{row['largest_share_of_bound']:.2f}"] if simplex else ["–", "–"]


def _number(value: float | None, missing: str = "not finite") -> str:
    return missing if value is None else f"{value:.2g}"


def _markdown(head: list[str], rows: list[list[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
