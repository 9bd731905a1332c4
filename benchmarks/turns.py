"""Whether a commit is as fast as another: seconds a round of workloads A and B, measured in turns on one machine."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.commits import digest, trees
from benchmarks.speed.workloads import FULL, Sizes, prepare
from fedalpha.runs.machine import versions

PLACES = ("benchmarks/speed/peers", "src/fedalpha/bench/speed/peers")
"""Where a commit keeps the script that runs a workload; the second one until the benchmarks left the package."""


def compare(
    before: str, after: str = "HEAD", turns: int = 7, rounds: int = 4, sizes: Sizes = FULL
) -> Iterator[tuple[str, list[float], list[float]]]:
    """(workload, seconds a round at ``before``, seconds a round at ``after``): the median of each turn.

    The commits take turns, each in a process of its own, whose first round is not counted. Which one begins
    changes from turn to turn.
    """
    with tempfile.TemporaryDirectory() as scratch, trees(before, after) as places:
        for workload in "AB":
            work = prepare(workload, sizes, Path(scratch) / workload)
            played = rounds if workload == "A" else 5 * rounds  # rounds of B are short
            seconds: list[list[float]] = [[], []]
            for turn in range(turns):
                for side in (0, 1) if turn % 2 == 0 else (1, 0):
                    seconds[side].append(statistics.median(_rounds(places[side], work, played)[1:]))
            yield workload, seconds[0], seconds[1]


def line(workload: str, old: list[float], new: list[float]) -> str:
    """The result of a workload as a sentence."""
    ratios = sorted(b / a for a, b in zip(old, new, strict=True))
    seconds = f"{statistics.median(old):.3f} s a round before, {statistics.median(new):.3f} s after"
    middle = statistics.median(ratios)
    return f"{workload}: {seconds}; ratio in {len(ratios)} turns {middle:.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})"


def store(out: Path, before: str, after: str, found: list[tuple[str, list[float], list[float]]]) -> None:
    """Write the seconds of every turn to ``turns.json``."""
    seconds = {workload: {"before": old, "after": new} for workload, old, new in found}
    out.mkdir(parents=True, exist_ok=True)
    record = {"before": digest(before), "after": digest(after), "versions": versions(), "seconds": seconds}
    (out / "turns.json").write_text(json.dumps(record, indent=1) + "\n")


def _rounds(tree: Path, work: Path, rounds: int) -> list[float]:
    """Seconds of each round of a workload at a commit."""
    scripts = next(tree / place for place in PLACES if (tree / place).exists())
    path = os.pathsep.join(map(str, (scripts, tree / "src", tree)))
    command = [sys.executable, str(scripts / "run_fedalpha.py"), "--work", str(work), "--rounds", str(rounds)]
    command += ["--model", str(work / "model.npz")]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [event["seconds"] for event in said if event["event"] == "round"]
