"""Whether two commits give the same bytes: model SHA-256, cohorts and alpha of some forty settings, on one machine."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.commits import trees

DIGITS = ["--dataset", "digits", "--partition", "shards(size=30)", "--clients", "12", "--rounds", "4"]
STRATEGIES = (
    "FedAvg",
    "FedAvg(prior=uniform)",
    "FedWorse(k=0.3)",
    "FedBetter(k=3)",
    "FedSoftWorse(T=0.2)",
    "FedSoftBetter(T=0.2, loss=after)",
    "FedSoftWorse(T=0.2, loss=train)",
    "FedSoftWorse(T=0.2, optima=estimated)",
    "FedSoftWorseAvg(T=0.2, at=2)",
    "cap(FedSoftWorse(T=0.2), 0.2)",
    "floor(FedWorse(k=0.3), 0.1)",
    "anneal(FedSoftWorse(T=0.2), FedAvg, rounds=4)",
    "clipped(FedSoftWorse(T=0.2))",
    "AFL",
    "FedNova",
)
OTHERS: Mapping[str, list[str]] = {
    "a share of the clients": ["--ratio", "0.5"],
    "Power-of-Choice": ["--select", "power_of_choice(C=0.3, d=0.6)", "--strategy", "FedAvg(prior=uniform)"],
    "Power-of-Choice on samples": ["--select", "power_of_choice(C=0.3, d=0.6, batch=8)"],
    "loss-proportional": ["--select", "loss_proportional(C=0.3)"],
    "FedPAGE": ["--select", "fedpage(C=0.3, p=0.3)", "--update", "fedpage(p=0.3)"],
    "SCAFFOLD": ["--update", "scaffold"],
    "FedProx": ["--update", "fedprox(mu=0.1)"],
    "FedAdam": ["--apply", "fedadam"],
    "refused and lost clients": ["--fault", "drop(clients=3)", "--strategy", "FedSoftWorse(T=0.2)"],
    "bad losses": ["--fault", "nan(clients=2, where=loss)", "--strategy", "FedSoftWorse(T=0.2)"],
    "below the quorum": ["--fault", "drop(p=0.5)", "--quorum", "0.6"],
    "the server's own losses": ["--reevaluate", "2", "--strategy", "FedSoftWorse(T=0.2)"],
    "many small clients": ["--clients", "200", "--partition", "iid", "--model", "softmax"],
    **{
        f"{strategy} on {engine} with {workers} workers": [
            *("--engine", engine, "--strategy", strategy, "--ratio", "0.7", "--workers", str(workers))
        ]
        for strategy in ("FedAvg", "FedSoftWorse(T=0.2)")
        for engine in ("embedded", "ray", "flower")
        for workers in (1, 3)
    },
}
RESUMED = "FedSoftWorse(T=0.2, optima=estimated)"
"""The strategy of the run that is killed after some rounds and resumed."""


def settings() -> dict[str, list[str]]:
    """All settings by name, as options of ``fedalpha run``; later options win."""
    named = {strategy: ["--strategy", strategy] for strategy in STRATEGIES}
    return {name: [*DIGITS, *more] for name, more in {**named, **OTHERS}.items()}


def compare(before: str, after: str = "HEAD", only: str | None = None) -> Iterator[tuple[str, str]]:
    """Run every setting at both commits: (its name, "equal" or what differs)."""
    with tempfile.TemporaryDirectory() as scratch, trees(before, after) as places:
        for name, options in [
            *settings().items(),
            ("killed and resumed", [*DIGITS, "--strategy", RESUMED, "--rounds", "30"]),
        ]:
            if only is None or only in name:
                resume = name == "killed and resumed"
                found = [_run(tree, options, Path(scratch) / "out", resume) for tree in places]
                changed = [key for key in found[0] if found[0][key] != found[1][key]]
                yield name, f"other {', '.join(changed)}" if changed else "equal"


def _run(tree: Path, options: list[str], out: Path, resume: bool) -> dict[str, Any]:
    """The results of a run at one commit. With ``resume`` it is killed after two rounds and resumed."""
    shutil.rmtree(out, ignore_errors=True)
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    command = [sys.executable, "-m", "fedalpha", "run", *options, "--seed", "3", "--out", str(out)]
    if resume:
        running = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while running.poll() is None:
            history = out / "history.jsonl"
            if history.exists() and len(history.read_bytes().splitlines()) > 2:
                running.kill()
                running.wait()
                break
            time.sleep(0.01)
        else:
            raise RuntimeError(f"{' '.join(command)} ended before it could be killed")
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} at {tree.name} ended with {done.returncode}:\n{done.stderr}")
    rows = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    return {
        "model": hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest(),
        **{column: [row[column] for row in rows] for column in ("cohort", "alpha", "accuracy", "loss", "losses")},
    }
