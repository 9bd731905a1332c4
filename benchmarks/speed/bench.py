"""The whole benchmark: environments, prepared work, interleaved repetitions, and output files."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.speed.contest import Contestant, measure
from benchmarks.speed.environments import PEERS, SCRIPTS, Unavailable, python_of
from benchmarks.speed.goals import OURS
from benchmarks.speed.report import write
from benchmarks.speed.results import RATES, ROOFLINE
from benchmarks.speed.workloads import SEED, WORKLOADS, Sizes, loss, prepare
from fedalpha.text import nearest

MAIN = "from fedalpha.cli import main; main()"


def bench(
    out: Path,
    cache: Path,
    sizes: Sizes,
    *,
    workloads: Sequence[str] = tuple(WORKLOADS),
    peers: Sequence[str] = tuple(PEERS),
    limit: float = 1800,
    keep: bool = False,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Measure, and write ``results.json``, ``table.md`` and the pictures to ``out``. Returns the record.

    Repetition 0 watches memory and checks that all contestants do the same work; its times do not count.
    In the others the contestants take turns, so that a slow minute of the machine affects all of them.
    Results are written after each repetition. ``keep`` keeps the results of other workloads in ``out``.
    """
    _known("workload", workloads, WORKLOADS)
    _known("peer", peers, PEERS)
    if sizes.rounds < 2 or sizes.repetitions < 1:
        raise ValueError(f"rounds = {sizes.rounds}, repetitions = {sizes.repetitions}; give at least 2 and 1")
    out.mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = {
        "machine": machine(),
        "sizes": {name: getattr(sizes, name) for name in sizes.__dataclass_fields__},
        "workloads": {name: text for name, text in WORKLOADS.items() if name in workloads},
        "unavailable": {},
        "initial": {},
        "roofline": ROOFLINE,
        "no_peak": None,
        "rates": [],
        "runs": [],
    }
    if keep:
        _keep(record, out / "results.json", workloads)
    with tempfile.TemporaryDirectory(prefix="fedalpha-bench-") as scratch:
        work: dict[str, Path] = {}
        for name, users in (("A", "AD"), ("B", "BC")):
            if set(users) & set(workloads):
                say(f"preparing the data of workload {name}")
                work[name] = prepare(name, sizes, Path(scratch) / name)
                record["initial"][name] = loss(work[name], np.load(work[name] / "initial.npz"))
        contestants = [
            *_peers(workloads, peers, work, cache, sizes, record["unavailable"], say),
            *_own(workloads, work, sizes),
        ]
        contestants.sort(key=lambda c: list(WORKLOADS).index(c.workload))
        for repetition in range(sizes.repetitions + 1):
            if repetition and set("AE") & set(workloads):
                say(f"repetition {repetition}: the machine's rates")
                measured, record["no_peak"] = _machine_rates(sizes, limit)
                record["rates"].append(measured)
                if record["no_peak"]:
                    say(f"fused multiply-adds were not measured: {record['no_peak']}")
            for contestant in contestants:
                if contestant.once and repetition != 1:
                    continue
                run = _run(contestant, repetition, limit)
                record["runs"].append(run)
                say(_line(run, sizes.repetitions))
            write(record, sizes, out)
    return record


def _keep(record: dict[str, Any], file: Path, workloads: Sequence[str]) -> None:
    """Copy the results of other workloads, measured earlier on this machine, into ``record``.

    A and E are compared with the machine's rates, so measuring one of them again drops the other.
    """
    old, new = json.loads(file.read_text()), json.loads(json.dumps(record))
    for one in (old, new):
        one["sizes"]["repetitions"] = None
    for name in ("machine", "sizes", "roofline"):
        if old.get(name) != new[name]:
            raise ValueError(f"{file} has another {name}: {old.get(name)}; measure all workloads again, without --keep")
    rated = {"A", "E"} & set(workloads)
    gone = set(workloads) | ({"A", "E"} if rated else set())
    record["runs"] = [run for run in old["runs"] if run["workload"] not in gone]
    record["workloads"] |= {name: text for name, text in old["workloads"].items() if name not in gone}
    record["workloads"] = {name: record["workloads"][name] for name in WORKLOADS if name in record["workloads"]}
    record["initial"] = dict(old["initial"])
    if not rated:
        record["rates"], record["no_peak"] = old["rates"], old["no_peak"]


def machine() -> dict[str, Any]:
    """The machine and the interpreter, without host name and date."""
    model = ""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    memory = None
    with contextlib.suppress(OSError, ValueError, AttributeError):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "processor": model or platform.machine(),
        "cores": cores,
        "memory": memory,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def _peers(
    workloads: Sequence[str],
    peers: Sequence[str],
    work: dict[str, Path],
    cache: Path,
    sizes: Sizes,
    unavailable: dict[str, str],
    say: Callable[[str], None],
) -> list[Contestant]:
    found = []
    for name in peers:
        peer = PEERS[name]
        joins = [w for w in peer.workloads if w in workloads]
        if not joins:
            continue
        try:
            python = python_of(peer, cache, say)
        except Unavailable as error:
            unavailable[name] = str(error)
            say(str(error))
            continue
        for workload in joins:
            folder = work[workload]
            model = folder / f"{name}.npz"
            command = [python, str(peer.script), "--work", str(folder), "--rounds"]
            command += [str(sizes.rounds_of(workload)), "--model", str(model)]
            found.append(Contestant(workload, name, peer.title, command, work=folder, model=model))
    return found


def _own(workloads: Sequence[str], work: dict[str, Path], sizes: Sizes) -> list[Contestant]:
    """This library in every workload."""
    found = []

    def training(workload: str, name: str, title: str, folder: Path, *extra: str, checked: bool = False) -> None:
        model = folder / f"{workload}-{name}.npz"
        command = [sys.executable, str(SCRIPTS / "run_fedalpha.py"), "--work", str(folder)]
        command += ["--rounds", str(sizes.rounds_of(workload)), "--model", str(model), *extra]
        kept = (folder, model) if checked else (None, None)
        found.append(Contestant(workload, name, title, command, ours=True, work=kept[0], model=kept[1]))

    for workload in ("A", "B"):
        if workload in workloads:
            training(workload, OURS, "fedalpha", work[workload], checked=True)
    if "C" in workloads:
        for count in sizes.registered:
            extra = ("--registered", str(count), "--cohort", str(min(sizes.cohort, count)))
            training("C", str(count), f"{count:,} registered clients", work["B"], *extra)
    if "D" in workloads:
        training("D", "everybody", "FedAvg: everybody trains", work["A"])
        skipping = "FedWorse(k=0.1, loss=before)"
        training("D", "skipping", f"{skipping}: a tenth trains", work["A"], "--strategy", skipping)
    if "E" in workloads:
        from fedalpha.combine import COMBINES

        for entry in COMBINES:
            if entry.name in ("feddist", "pfnm", "fedlaw", "fedaware", "fedlws"):  # they need layers, data or memory
                continue
            rule = entry.examples[0]
            once = not COMBINES.parse(rule).linear
            command = [sys.executable, str(SCRIPTS / "run_combine.py"), "--rule", rule]
            command += ["--rounds", str(1 if once else sizes.rounds)]
            command += ["--updates", str(sizes.updates), "--parameters", str(sizes.parameters)]
            found.append(Contestant("E", entry.name, rule, command, ours=True, once=once))
    if "start" in workloads:
        digits = ["run", "--dataset", "digits", "--clients", "10", "--rounds", "1", "--seed", str(SEED)]
        commands = {
            "python": ("the interpreter alone", ["pass"]),
            "import": ("import fedalpha", ["import fedalpha"]),
            "help": ("fedalpha --help", [MAIN, "--help"]),
            "first round": ("fedalpha run on digits, one round, start to end", [MAIN, *digits]),
        }
        for name, (title, code) in commands.items():
            found.append(Contestant("start", name, title, [sys.executable, "-c", *code], ours=True, whole=True))
    return found


def _run(contestant: Contestant, repetition: int, limit: float) -> dict[str, Any]:
    """Run one contestant once; returns the record."""
    found = measure(contestant, limit, watch=repetition == 0)
    if contestant.work is not None and contestant.model is not None and contestant.model.exists():
        found["loss"] = loss(contestant.work, np.load(contestant.model))
    names = {"workload": contestant.workload, "name": contestant.name, "title": contestant.title}
    return {**names, "repetition": repetition, "whole": contestant.whole or contestant.once, **found}


def _machine_rates(sizes: Sizes, limit: float) -> tuple[dict[str, float], str | None]:
    """The rates, and the reason if the peak of fused multiply-adds is not among them."""
    command = [sys.executable, "-m", "benchmarks.speed.measure_machine", "--size", str(sizes.matrix)]
    command += ["--bytes", str(sizes.copied), "--seconds", str(sizes.seconds)]
    found = measure(Contestant("", "machine", "the machine", command, ours=True, whole=True), limit, watch=False)
    return {name: found[name] for name in RATES if name in found}, found.get("error") or found["no_peak"]


def _line(run: dict[str, Any], repetitions: int) -> str:
    turn = f"repetition {run['repetition']} of {repetitions}" if run["repetition"] else "memory"
    times = ", ".join(f"{s:.3g}" for s in run["seconds"])
    return f"{turn}: {run['workload']}, {run['title']}: {run.get('error') or f'{times} s'}"


def _known(kind: str, given: Sequence[str], known: Any) -> None:
    for name in given:
        if name not in known:
            raise ValueError(f"unknown {kind} {name!r}; {nearest(name, known)}")
