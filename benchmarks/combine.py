"""Combine rules against torch, NumPy, Flower and ByzFL on the same vectors, and the memory that they need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.combine_side import OURS
from benchmarks.commits import trees
from benchmarks.reliability.vectors import python_with_byzfl

ROOT = Path(__file__).parents[1]
TIMES = ((10, 1_000_000), (100, 1_000_000), (1000, 100_000))
"""Clients and values of each."""
MEMORY = ((10, 1_000_000), (100, 1_000_000), (1000, 1_000_000))
PATIENCE = 3.0
"""What takes more seconds is called once."""
PARTS = ("time", "memory", "both")


def measure(out: Path, turns: int, before: str | None, byzfl: Path | None, part: str, quick: bool = False) -> str:
    """Measure, write ``combine.json`` and ``combine.md``, and return the tables. The part not measured is kept."""
    if part not in PARTS:
        raise ValueError(f"--part {part!r}: give one of {', '.join(PARTS)}")
    short = 1000 if quick else 1
    store = out / "combine.json"
    found: dict[str, Any] = json.loads(store.read_text()) if store.exists() else {}
    if part != "memory":
        python = sys.executable if byzfl is None else str(python_with_byzfl(byzfl.absolute()))
        peers = ["torch", "numpy", "flower"] + ([] if byzfl is None else ["byzfl"])
        found |= {"turns": turns, "patience": PATIENCE, "time": [], "before": before}
        for n, d in TIMES:
            seconds = _run(python, ROOT, n, d // short, turns, "ours", *peers)
            found["time"].append({"clients": n, "values": d // short, "seconds": seconds})
        if before is not None:
            with trees(before) as (tree,):
                for row in found["time"]:
                    row["before"] = _run(sys.executable, tree, row["clients"], row["values"], min(turns, 3), "ours")
    if part != "time":
        found["memory"] = [
            {"clients": n, "values": d // short, "models": _run(sys.executable, ROOT, n, d // short, 1, "memory")}
            for n, d in MEMORY
        ]
    out.mkdir(parents=True, exist_ok=True)
    store.write_text(json.dumps(found, indent=1) + "\n")
    text = table(found)
    (out / "combine.md").write_text(text)
    return text


def table(found: dict[str, Any]) -> str:
    """The tables as Markdown."""
    lines = []
    for row in found.get("time", ()):
        lines += [f"**{row['clients']} clients × {row['values']:,} values**, seconds", ""]
        lines += ["| rule | fedalpha | before | torch | Flower | ByzFL | ours / torch.median |", "|---|" + "---:|" * 6]
        seconds, before = row["seconds"], row.get("before", {})
        for name in (*OURS, "median, unequal", "trimmed, unequal"):
            mine = seconds[f"fedalpha {name}"]
            plain = {"median": "torch median", "trimmed": "torch sort", "mean": "torch mean"}
            short = name.split(",")[0]
            theirs = [before.get(f"fedalpha {name}"), seconds.get(plain.get(short, ""))]
            theirs += [seconds.get(f"{who} {short}") for who in ("flower", "byzfl")]
            ratio = f"{mine[0] / seconds['torch median'][0]:.2f}" if short in ("median", "trimmed") else ""
            lines.append(f"| {name} | {' | '.join(_seconds(s) for s in (mine, *theirs))} | {ratio} |")
        lines += ["", f"`np.median`: {_seconds(seconds['numpy median'])}", ""]
    if "memory" in found:
        heads = [f"{row['clients']} × {row['values']:,}" for row in found["memory"]]
        lines += ["Memory besides the updates, in models", "", f"| rule | {' | '.join(heads)} |"]
        lines += ["|---|" + "---:|" * len(heads)]
        for name in found["memory"][0]["models"]:
            cells = (f"{row['models'][name]:.1f}" for row in found["memory"])
            lines.append(f"| {name.removeprefix('fedalpha ')} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def _seconds(found: list[float] | None) -> str:
    """The median; a star where it is a single call."""
    return "–" if found is None else f"{found[0]:.3f}" + ("*" if found[3] == 1 else "")


def _run(python: str, tree: Path, clients: int, values: int, turns: int, *what: str) -> Any:
    command = [python, "-m", "benchmarks.combine_side", str(clients), str(values), str(turns), str(PATIENCE), *what]
    # The script is this one also where the package is that of another commit.
    path = os.pathsep.join([str(tree / "src"), str(ROOT)])
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])
