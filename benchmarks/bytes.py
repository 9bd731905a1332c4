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

from benchmarks.commits import digest, trees

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
        f"{strategy} with {workers} workers": ["--strategy", strategy, "--ratio", "0.7", "--workers", str(workers)]
        for strategy in ("FedAvg", "FedSoftWorse(T=0.2)")
        for workers in (2, 3)
    },
}
RUNTIMES: Mapping[str, list[str]] = {
    f"{strategy} on {engine}": ["--engine", engine, "--strategy", strategy, "--ratio", "0.7", "--workers", "3"]
    for strategy in ("FedAvg", "FedSoftWorse(T=0.2)")
    for engine in ("ray", "flower")
}
KILLED = "killed and resumed"
RESUMED = "FedSoftWorse(T=0.2, optima=estimated)"
"""The strategy of the run that is killed after some rounds and resumed."""


COLUMNS = ("cohort", "alpha", "accuracy", "loss", "losses")


def settings() -> dict[str, list[str]]:
    """All settings by name, as options of ``fedalpha run``; later options win."""
    named = {strategy: ["--strategy", strategy] for strategy in STRATEGIES}
    named |= {**OTHERS, **RUNTIMES, KILLED: ["--strategy", RESUMED, "--rounds", "30"]}
    return {name: [*DIGITS, *more, "--seed", "3"] for name, more in named.items()}


def compare(before: str, after: str = "HEAD", only: str = "", out: Path | None = None) -> Iterator[tuple[str, str]]:
    """Run every setting at both commits: (its name, "equal" or what differs).

    With ``out`` the results are in ``bytes.json`` there, and settings that it holds for the same commits are not run
    again.
    """
    commits = [digest(commit) for commit in (before, after)]
    stored = None if out is None else out / "bytes.json"
    record: dict[str, Any] = {"before": commits[0], "after": commits[1], "settings": {}}
    if stored is not None and stored.exists():
        known = json.loads(stored.read_text())
        record = known if [known["before"], known["after"]] == commits else record
    left = {name: given for name, given in settings().items() if only in name and name not in record["settings"]}
    yield from ((name, found) for name, found in record["settings"].items() if only in name)
    with tempfile.TemporaryDirectory() as scratch, trees(*commits) as places:
        for batch in _batches(left):
            found = [_results(tree, batch, Path(scratch) / tree.name) for tree in places]
            for name in batch:
                changed = [key for key, value in found[0][name].items() if value != found[1][name][key]]
                record["settings"][name] = f"other {', '.join(changed)}" if changed else "equal"
                yield name, record["settings"][name]
            if stored is not None:
                stored.parent.mkdir(parents=True, exist_ok=True)
                stored.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


def _batches(left: Mapping[str, list[str]]) -> Iterator[dict[str, list[str]]]:
    """Settings that a commit runs in one go: a few at a time; runtimes with processes of their own one by one."""
    together = {name: given for name, given in left.items() if name not in RUNTIMES and name != KILLED}
    names = list(together)
    for start in range(0, len(names), 8):
        yield {name: together[name] for name in names[start : start + 8]}
    yield from ({name: left[name]} for name in left if name not in together)


def _results(tree: Path, batch: Mapping[str, list[str]], scratch: Path) -> dict[str, dict[str, Any]]:
    """The results of some settings at one commit."""
    outs = {name: scratch / str(place) for place, name in enumerate(batch)}
    commands = {name: ["run", *given, "--out", str(outs[name])] for name, given in batch.items()}
    shutil.rmtree(scratch, ignore_errors=True)
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    if KILLED in batch:
        _kill([sys.executable, "-m", "fedalpha", *commands[KILLED]], environment, outs[KILLED])
    done = subprocess.run(
        [sys.executable, "-c", _IN_TURN, json.dumps(list(commands.values()))],
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{list(batch)} at {tree.name} ended with {done.returncode}:\n{done.stderr}")
    return {name: _result(out) for name, out in outs.items()}


_IN_TURN = """
import json, os, sys
import matplotlib.figure, scipy.stats, sklearn.datasets, torch  # imported once; each run is a fork without threads
for command in json.loads(sys.argv[1]):
    if (child := os.fork()) == 0:
        sys.argv = ["fedalpha", *command]
        from fedalpha.cli import main
        main()
        os._exit(0)
    if code := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        sys.exit(f"{command}: {code}")
"""


def _kill(command: list[str], environment: Mapping[str, str], out: Path) -> None:
    """Start a run and kill it after two rounds."""
    running = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while running.poll() is None:
        history = out / "history.jsonl"
        if history.exists() and len(history.read_bytes().splitlines()) > 2:
            running.kill()
            running.wait()
            return
        time.sleep(0.01)
    raise RuntimeError(f"{' '.join(command)} ended before it could be killed")


def _result(out: Path) -> dict[str, Any]:
    """What a run folder holds of a finished run."""
    rows = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    return {
        "model": hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest(),
        **{column: [row[column] for row in rows] for column in COLUMNS},
    }
