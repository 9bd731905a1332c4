"""Seconds and bytes of a round by where the losses come from, in turns on one SuperLink."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.pages import put
from fedalpha.runs.machine import versions

HERE = Path(__file__).parent
VARIANTS: dict[str, tuple[str, str]] = {
    "FedAvg": ("FedAvg", "query"),
    'FedSoftWorse, losses="query"': ("FedSoftWorse(T=0.2)", "query"),
    'FedSoftWorse, losses="evaluate"': ("FedSoftWorse(T=0.2)", "evaluate"),
    'FedSoftWorse, losses="train"': ("FedSoftWorse(T=0.2)", "train"),
    "FedSoftWorse(loss=train), weighed after training": ("FedSoftWorse(T=0.2, loss=train)", "query"),
}


def measure(
    out: Path,
    turns: int = 3,
    rounds: int = 4,
    nodes: int = 3,
    parameters: int = 250_000,
    say: Callable[..., None] = print,
    page: Path | None = None,
) -> str:
    """Play every variant ``turns`` times; writes phases.json and phases.md to ``out``, and the table into ``page``.

    The first round of a run is left out, because the nodes report their ids in it.
    """
    sys.path.insert(0, str(HERE.parents[1] / "examples" / "flower"))
    from deployment import Deployment  # type: ignore[import-not-found]

    found: dict[str, list[list[float]]] = {name: [] for name in VARIANTS}
    with tempfile.TemporaryDirectory() as temporary, Deployment(temporary, nodes, app=HERE / "app") as flower:
        for turn in range(turns):
            for name, (strategy, losses) in VARIANTS.items():
                told = Path(temporary) / f"{turn}.json"
                config = {"strategy": strategy, "losses": losses, "rounds": rounds, "clients": nodes}
                flower.run({**config, "parameters": parameters, "out": str(told)})
                ends = json.loads(told.read_text())
                for old, new in pairwise(ends[1:]):
                    found[name].append([b - a for a, b in zip(old, new, strict=True)])
                say(f"turn {turn + 1}, {name}: {found[name][-1][0]:.1f} s in the last round", flush=True)
    record = {
        "versions": versions(),
        "rounds": rounds,
        "turns": turns,
        "nodes": nodes,
        "parameters": parameters,
        "found": found,
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "phases.json").write_text(json.dumps(record, indent=1) + "\n")
    (out / "phases.md").write_text(table(record))
    if page is not None:
        put(page, "phases", table(record))
    return table(record)


def table(record: dict[str, Any]) -> str:
    """The medians, and the ratio of seconds to those of FedAvg in the same turns."""
    model = 4 * record["parameters"]
    lines = ["| rule | seconds/round | ratio to FedAvg | messages/round | models down | models up |"]
    lines += ["| --- | ---: | ---: | ---: | ---: | ---: |"]
    usual = statistics.median(row[0] for row in record["found"]["FedAvg"])
    for name, rows in record["found"].items():
        seconds, down, up, messages = (statistics.median(column) for column in zip(*rows, strict=True))
        cells = [f"{seconds:.1f}", f"{seconds / usual:.2f}", f"{messages:.0f}"]
        cells += [f"{down / model:.1f}", f"{up / model:.1f}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
