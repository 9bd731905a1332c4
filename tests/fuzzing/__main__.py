"""``make fuzz``: inputs for every reader of foreign content, and a table of what happened.

``python -m fuzzing --inputs 1000000`` (in ``tests``) tries them; ``--coverage`` also counts the branches of the readers
that fewer inputs reach. The same seed gives the same inputs.
"""

from __future__ import annotations

import argparse
import json
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

from fuzzing.targets import TARGETS, Target

SLOW = 20.0
"""Seconds of processor time after which one input is a finding."""
MOST_FINDINGS = 20


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


def try_in_process(kind: type[Target], folder: Path, seed: int, count: int, chunk: int = 20_000) -> Tally:
    """The same in processes of their own, which a reader may crash."""
    import fedalpha.runs.experiment  # noqa: F401 - imported once, before processes are forked

    context = multiprocessing.get_context("fork")
    total, done = Tally(kind.name), 0
    while done < count:
        mark, (here, there) = context.Value("q", done), context.Pipe(duplex=False)
        some = min(chunk, count - done)
        process = context.Process(target=_child, args=(kind, folder, seed, done, some, mark, there))
        process.start()
        there.close()
        try:
            found = here.recv()
            done += some
        except EOFError:  # it died: go on after the input that killed it
            process.join()
            tried = mark.value - done + 1
            found = asdict(Tally(kind.name, tried=tried))
            found["findings"] = [f"input {mark.value}: the process ended with code {process.exitcode}"]
            done += tried
        process.join()
        for name in ("tried", "past", "accepted", "seconds", "findings"):
            setattr(total, name, getattr(total, name) + found[name])
    return total


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
        for name in ("tried", "past", "accepted", "seconds"):
            setattr(total, name, getattr(total, name) + getattr(t, name))
        total.findings += t.findings
        total.branches = (total.branches[0] + t.branches[0], total.branches[1] + t.branches[1])
    return total


def main() -> None:
    parser = argparse.ArgumentParser(prog="fuzzing", description="Try changed inputs on every reader.")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="inputs in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="targets whose names contain this")
    parser.add_argument(
        "--coverage", type=int, default=0, metavar="N", help="count branches over this many inputs each"
    )
    parser.add_argument("--out", type=Path, help="write the table and the numbers into this folder")
    options = parser.parse_args()
    kinds = [kind for kind in TARGETS if options.only in kind.name]
    tallies = []
    with tempfile.TemporaryDirectory(prefix="fedalpha-fuzz-") as temporary:
        for kind in kinds:
            count = -(-options.inputs * kind.share // sum(k.share for k in kinds))
            tally = try_in_process(kind, Path(temporary), options.seed, count)
            if options.coverage:
                tally.branches = covered(kind, Path(temporary), options.seed, options.coverage)
            tallies.append(tally)
            print(f"{kind.name}: {tally.tried:,} inputs, {len(tally.findings)} findings", flush=True)
            for finding in tally.findings[:5]:
                print(f"  {finding}", flush=True)
    print(table(tallies))
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        record = {"inputs": options.inputs, "seed": options.seed, "targets": [asdict(t) for t in tallies]}
        (options.out / "fuzz.json").write_text(json.dumps(record, indent=1) + "\n")
        (options.out / "table.md").write_text(table(tallies) + "\n")
    sys.exit(any(t.findings for t in tallies))


if __name__ == "__main__":
    main()
