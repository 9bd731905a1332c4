"""``make fuzz``: inputs for every reader of foreign content, and a table of what happened.

``python -m fuzzing --inputs 1000000`` (in ``tests``) tries them; ``--coverage`` also counts the branches of the readers
that fewer inputs reach. The same seed gives the same inputs.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import random
import sys
import tempfile
import time
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fuzzing.base import Target
from fuzzing.targets import TARGETS

SLOW = 20.0
"""Seconds of processor time after which one input is a finding."""
MOST_FINDINGS = 20
CHUNK = 20_000
"""Inputs that one process tries."""


@dataclass
class Tally:
    """What happened to the inputs of one target; ``past`` of them passed the reader's first check."""

    target: str
    tried: int = 0
    past: int = 0
    accepted: int = 0
    seconds: float = 0.0
    findings: list[str] = field(default_factory=list)
    branches: tuple[int, int] = (0, 0)


def try_inputs(target: Target, seed: int, start: int, count: int, tally: Tally, mark: Any = None) -> None:
    """Try the inputs ``start`` … ``start + count − 1`` of a seed; ``mark`` tells another process which one is tried."""
    begun = time.process_time()
    for number in range(start, start + count):
        if mark is not None:
            mark.value = number
        draw = random.Random(f"{seed} {target.name} {number}")
        try:
            given = target.make(draw)
            tally.past += target.first(given)
            before = time.process_time()
            tally.accepted += target.tried(given)
            if time.process_time() - before > SLOW:
                raise AssertionError(f"took {time.process_time() - before:.0f} s")
        except Exception as error:
            if len(tally.findings) < MOST_FINDINGS:
                place = traceback.extract_tb(error.__traceback__)[-1]
                where = f"{Path(place.filename).name}:{place.lineno}"
                tally.findings.append(f"input {number}: {type(error).__name__} at {where}: {str(error)[:200]}")
        tally.tried += 1
    tally.seconds += time.process_time() - begun


def _child(kind: type[Target], folder: Path, seed: int, start: int, count: int, mark: Any, answer: Any) -> None:
    import warnings

    warnings.simplefilter("ignore")
    os.environ["FEDALPHA_STATE"] = str(folder / "state")
    tally = Tally(kind.name)
    try_inputs(kind(folder), seed, start, count, tally, mark)
    answer.send(asdict(tally))


def try_in_process(kind: type[Target], folder: Path, seed: int, start: int, count: int) -> Tally:
    """The same in a process of its own, which a reader may crash: then the tally ends with that input."""
    import fedalpha.runs.experiment  # noqa: F401 - imported once, before processes are forked

    context = multiprocessing.get_context("fork")
    mark, (here, there) = context.Value("q", start), context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(kind, folder, seed, start, count, mark, there))
    process.start()
    there.close()
    try:
        return Tally(**here.recv())
    except EOFError:
        process.join()
        reason = f"input {mark.value}: the process ended with code {process.exitcode}"
        return Tally(kind.name, tried=mark.value - start + 1, findings=[reason])
    finally:
        process.join()


def covered(kind: type[Target], folder: Path, seed: int, count: int) -> tuple[int, int]:
    """How many branches of the readers ``count`` inputs take, and of how many."""
    import coverage

    import fedalpha

    root = Path(fedalpha.__file__).parent
    target = kind(folder)
    # Lines that no input can reach are marked in the source, with the reason.
    measured = coverage.Coverage(branch=True, include=[str(root / file) for file in kind.readers], data_file=None)
    measured.start()
    try_inputs(target, seed, 0, count, Tally(kind.name))
    measured.stop()
    report = folder / "coverage.json"
    measured.json_report(outfile=str(report))
    taken = there = 0
    for file, found in json.loads(report.read_text())["files"].items():
        functions = found["functions"]
        wanted = next(names for path, names in kind.readers.items() if Path(file).resolve() == (root / path).resolve())
        for name in wanted:
            summary = functions[name]["summary"]
            taken += summary["covered_branches"]
            there += summary["num_branches"]
            if summary["missing_branches"]:
                missing = functions[name]["missing_branches"]
                print(f"  not taken in {path_of(file, root)} {name}: {missing}", file=sys.stderr)
    return taken, there


def path_of(file: str, root: Path) -> str:
    return Path(file).resolve().relative_to(root.resolve()).as_posix()


def table(tallies: list[Tally]) -> str:
    """The table of inputs tried, as Markdown."""
    lines = ["| reader | inputs | past the first check | accepted | branches taken | seconds | findings |"]
    lines.append("|---|---:|---:|---:|---:|---:|---:|")
    every = [*tallies, _sum(tallies)]
    for t in every:
        share = f"{100 * t.branches[0] / t.branches[1]:.0f} % of {t.branches[1]}" if t.branches[1] else "–"
        past, accepted = (f"{100 * n / max(1, t.tried):.0f} %" for n in (t.past, t.accepted))
        lines.append(
            f"| {t.target} | {t.tried:,} | {past} | {accepted} | {share} | {t.seconds:.0f} | {len(t.findings)} |"
        )
    return "\n".join(lines)


def _sum(tallies: list[Tally]) -> Tally:
    total = Tally("**all**")
    for t in tallies:
        _add(total, t)
        total.branches = (total.branches[0] + t.branches[0], total.branches[1] + t.branches[1])
    return total


def main() -> None:
    parser = argparse.ArgumentParser(prog="fuzzing", description="Try changed inputs on every reader.")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="inputs in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="targets whose names contain this")
    parser.add_argument("--coverage", type=int, default=0, metavar="N", help="count branches over N inputs each")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after this processor time")
    parser.add_argument("--out", type=Path, help="keep the numbers and the table here; the same command goes on")
    options = parser.parse_args()
    kinds = [kind for kind in TARGETS if options.only in kind.name]
    kept = {t.target: t for t in _kept(options.out, options.seed)}
    tallies = [kept.get(kind.name, Tally(kind.name)) for kind in kinds]
    begun, left = sum(t.seconds for t in tallies), False
    with tempfile.TemporaryDirectory(prefix="fedalpha-fuzz-") as temporary:
        for kind, tally in zip(kinds, tallies, strict=True):
            count = -(-options.inputs * kind.share // sum(k.share for k in kinds))
            while tally.tried < count and not left:
                chunk = min(CHUNK // (5 if kind.share < 10 else 1), count - tally.tried)
                _add(tally, try_in_process(kind, Path(temporary), options.seed, tally.tried, chunk))
                _keep(options.out, options.seed, [*kept.values(), *(t for t in tallies if t.target not in kept)])
                left = sum(t.seconds for t in tallies) - begun > options.seconds
            if options.coverage and not left and not tally.branches[1]:
                tally.branches = covered(kind, Path(temporary), options.seed, options.coverage)
            for finding in tally.findings[:5]:
                print(f"{kind.name}: {finding}", flush=True)
    _keep(options.out, options.seed, [*kept.values(), *(t for t in tallies if t.target not in kept)])
    print(table(tallies))
    if left:
        print("not finished; the same command with --out goes on")
    sys.exit(any(t.findings for t in tallies))


def _add(tally: Tally, more: Tally) -> None:
    for name in ("tried", "past", "accepted", "seconds", "findings"):
        setattr(tally, name, getattr(tally, name) + getattr(more, name))


def _kept(out: Path | None, seed: int) -> list[Tally]:
    """What an earlier command with the same seed has tried."""
    if out is None or not (out / "fuzz.json").exists():
        return []
    found = json.loads((out / "fuzz.json").read_text())
    return [Tally(**tally) for tally in found["targets"]] if found["seed"] == seed else []


def _keep(out: Path | None, seed: int, tallies: list[Tally]) -> None:
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        record = {"seed": seed, "targets": [asdict(t) for t in tallies]}
        (out / "fuzz.json").write_text(json.dumps(record, indent=1) + "\n")
        (out / "table.md").write_text(table(tallies) + "\n")


if __name__ == "__main__":
    main()
