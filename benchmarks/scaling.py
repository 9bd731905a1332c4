"""A model of what a round costs, on a cluster and in a live federation, for your own numbers.

``python -m benchmarks scaling --clients 10000 --parameters 25000000 --upload "quantised(bits=4)"`` prints the seconds
of a round and what limits it. ``--check --out docs/results/scaling --page docs/scaling.md`` measures the rates of one
core and compares the model with Ray on this machine, with one and two workers; then it writes the tables of the page.
What the model says, and where it is wrong, is on that page.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.pages import put
from fedalpha.combine import Sum
from fedalpha.fast.blocks import blocks
from fedalpha.rng import generator
from fedalpha.runs.callbacks import Callback
from fedalpha.runs.machine import versions
from fedalpha.store.files import write_atomically
from fedalpha.upload import UPLOADS, added

DAY = 86_400.0
MBIT = 1e6 / 8


@dataclass(frozen=True)
class Setting:
    """A round: ``seconds`` is the processor time that one client trains, ``link`` the server's bytes per second in each
    direction, ``client_link`` a client's, ``cores`` those of the server, ``workers`` those of the cluster."""

    clients: int
    parameters: int
    seconds: float
    upload: str | None = None
    link: float = 1000 * MBIT
    client_link: float = 20 * MBIT
    cores: int = 4
    workers: int = 1

    @property
    def model(self) -> int:
        """The bytes of the model, which every client is sent."""
        return 4 * self.parameters

    @property
    def sent(self) -> int:
        """The bytes that a client sends."""
        return self.model if self.upload is None else UPLOADS.parse(self.upload).nbytes(self.parameters)


@dataclass(frozen=True)
class Rates:
    """What one core does: seconds for a value that is added to the sum, seconds for a value of an upload that is read,
    and seconds that the driver of a cluster spends on a task."""

    add: float = 1e-9
    read: float = 0.0
    task: float = 2e-3


def cluster(s: Setting, rates: Rates) -> dict[str, float]:
    """The seconds of a round on a cluster, whose workers send one sum in float64 for each block of the cohort.

    They are added up, as if the server waited for all sums before it merged one: an upper bound within the model.

    >>> cluster(Setting(64, 1000, 1.0, workers=2), Rates(add=0, task=0))["compute"]
    32.0
    """
    cut = blocks(s.clients)
    found = {
        "compute": math.ceil(len(cut) / s.workers) * len(cut[0]) * s.seconds,
        "transfer": (s.workers * s.model + len(cut) * 8 * s.parameters) / s.link,
        "sum": len(cut) * s.parameters * rates.add,
        "tasks": len(cut) * rates.task,
    }
    return {**found, "total": math.fsum(found.values())}


def live(s: Setting, rates: Rates) -> dict[str, float]:
    """The seconds of a round whose clients are alike, and what each part would take alone.

    The server's link is shared in each direction; replies are read and added as they come, on all cores.
    """
    work = s.parameters * (rates.add + rates.read) / s.cores
    down, up = (max(each / s.client_link, s.clients * each / s.link) for each in (s.model, s.sent))
    return {
        "down": down,
        "compute": s.seconds,
        "up": up,
        "sum": s.clients * work,
        "total": down + s.seconds + max(up, s.clients * work),
    }


def simulated(s: Setting, rates: Rates, spread: float = 0.0, seed: int = 0) -> dict[str, float]:
    """A round of clients that differ, event by event; ``spread`` is σ of lognormal computing times and links.

    Both have the given mean (for links: of the seconds per byte). The link of the server sends one model after the
    other and receives in the order in which clients are ready; then the cores read and add in the same order.
    """
    rng = generator(seed, "scaling")
    slow, narrow = (np.exp(spread * rng.standard_normal(s.clients) - spread**2 / 2) for _ in range(2))
    sent = (np.arange(s.clients) + 1) * (s.model / s.link)
    there = np.maximum(sent, s.model / s.client_link * narrow) + s.seconds * slow
    ready = np.sort(there + s.sent / s.client_link * narrow)
    arrived = queue(ready - s.sent / s.link, s.sent / s.link)
    done = queue(arrived, s.parameters * (rates.add + rates.read) / s.cores)
    return {"total": float(done[-1]), "median": float(np.median(done)), "waiting": float(1 - np.mean(done) / done[-1])}


def queue(arrivals: Any, service: float) -> Any:
    """When each of the sorted arrivals is served, one after the other.

    >>> queue(np.array([0.0, 1.0, 1.5, 9.0]), 2.0).tolist()
    [2.0, 4.0, 6.0, 11.0]
    """
    place = np.arange(len(arrivals))
    return (place + 1) * service + np.maximum.accumulate(arrivals - place * service)


def bottleneck(found: dict[str, float]) -> str:
    """The part that takes longest."""
    return max((name for name in found if name != "total"), key=found.__getitem__)


# Rates of this machine


def rates(upload: str | None = None, parameters: int = 1_000_000, turns: int = 7) -> Rates:
    """The processor seconds per value of one core, the median of several turns."""
    x = generator(0, "scaling").standard_normal(parameters).astype(np.float32)
    model, total = {"w": torch.from_numpy(x)}, Sum()
    add = _median(lambda: total.add(0.5, model), turns) / parameters
    if upload is None:
        return Rates(add)
    rule = UPLOADS.parse(upload)
    packed, sent = rule.encode(x, generator(0, "upload")), {"w": np.zeros_like(x)}
    return Rates(add, _median(lambda: added(rule.decode(packed, parameters), sent), turns) / parameters)


def _median(work: Any, turns: int) -> float:
    work()
    found = []
    for _ in range(turns):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return float(np.median(found))


# The check: Ray on this machine


class _Watch(Callback):
    """Processor and wall seconds of the rounds after the first, of the driver and of Ray's workers."""

    def __init__(self) -> None:
        self.at: list[tuple[float, float, float]] = []

    def on_round(self, row: Any, state: Any) -> None:
        self.at.append((time.perf_counter(), time.process_time(), workers_seconds()))

    def each(self) -> tuple[float, float, float]:
        """Per round: wall seconds, processor seconds of the driver, and of the workers."""
        first, last = self.at[1], self.at[-1]
        wall, driver, workers = ((b - a) / (len(self.at) - 2) for a, b in zip(first, last, strict=True))
        return wall, driver, workers


def workers_seconds() -> float:
    """The processor seconds of the Ray workers below this process (Linux)."""
    ticks, parents, mine = os.sysconf("SC_CLK_TCK"), {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        fields = rest.split()
        parents[int(folder.name)] = int(fields[1])
        if name.startswith("ray::"):
            mine[int(folder.name)] = (int(fields[11]) + int(fields[12])) / ticks
    return sum(seconds for pid, seconds in mine.items() if os.getpid() in _above(pid, parents))


def _above(pid: int, parents: dict[int, int]) -> set[int]:
    found = set()
    while pid in parents and pid not in found:
        found.add(pid)
        pid = parents[pid]
    return found


def check(quick: bool) -> list[dict[str, Any]]:
    """The model beside Ray with one and two workers: client seconds from one process, the rest from `rates`."""
    import fedalpha

    data = fedalpha.federation("digits", partition="iid", clients=8 if quick else 64, seed=0)
    rounds, found = (3, []) if quick else (6, [])
    for hidden in (100,) if quick else (100, 4000):
        for workers in (1, 2):
            measured = {}
            for engine in ("embedded(workers=1, vectorise=false)", f"ray(workers={workers}, vectorise=false)"):
                watch = _Watch()
                history = fedalpha.run(
                    data, f"mlp(hidden=[{hidden}])", rounds=rounds, update="sgd(lr=0.05, batch=5, epochs=5)",
                    engine=engine, evaluate=rounds, callbacks=[watch],
                )  # fmt: skip
                measured[engine.partition("(")[0]] = watch.each()
            parameters = sum(value.numel() for value in history.model.values())
            alone, ray = measured["embedded"], measured["ray"]
            setting = Setting(data.clients, parameters, alone[1] / data.clients, link=1e9, workers=workers)
            found.append(
                {
                    "clients": data.clients,
                    "parameters": parameters,
                    "workers": workers,
                    "predicted": cluster(setting, rates()),
                    "one process": dict(zip(("wall", "processor"), alone[:2], strict=True)),
                    "ray": dict(zip(("wall", "driver", "workers"), ray, strict=True)),
                    "load": os.getloadavg()[0],
                }
            )
    return found


# Tables


def check_table(rows: Sequence[dict[str, Any]]) -> str:
    head = "| clients | parameters | workers | model: training / total (s) | Ray: processor time of the workers (s) | "
    head += "workers ÷ model | of the driver (s) | wall (s) | load of the machine |\n|" + "---|" * 9 + "\n"
    return head + "".join(
        f"| {r['clients']} | {r['parameters']:,} | {r['workers']} | "
        f"{r['predicted']['compute'] * r['workers']:.2f} / {r['predicted']['total']:.2f} | {r['ray']['workers']:.2f} | "
        f"{r['ray']['workers'] / (r['predicted']['compute'] * r['workers']):.2f} | {r['ray']['driver']:.2f} | "
        f"{r['ray']['wall']:.2f} | {r['load']:.0f} |\n"
        for r in rows
    )


SWEEP = tuple(
    Setting(clients, parameters, 30.0, upload)
    for parameters in (1_000_000, 25_000_000)
    for clients in (100, 1000, 10_000)
    for upload in (None, "quantised(bits=8)", "quantised(bits=4)", "sparse(share=0.01)")
)
"""Phones: 30 s of training, 20 Mbit/s; a server with 1 Gbit/s and 4 cores."""


def sweep(given: dict[str | None, Rates]) -> list[dict[str, Any]]:
    """The model beside the simulation, for clients that are alike and for clients that differ."""
    rows = []
    for s in SWEEP:
        model, spread = live(s, given[s.upload]), simulated(s, given[s.upload], 1.0)
        alike = simulated(s, given[s.upload])["total"]
        rows.append({**asdict(s), "model": model, "alike": alike, "differ": spread, "limit": bottleneck(model)})
    return rows


def sweep_table(rows: Sequence[dict[str, Any]]) -> str:
    head = "| parameters | clients in a round | upload | MB per client up | model (s) | limited by | "
    head += "simulated, equal clients (s) | simulated, σ = 1 (s) | clients per day |\n|" + "---|" * 9 + "\n"
    return head + "".join(
        f"| {r['parameters']:,} | {r['clients']:,} | {_named(r['upload'])} | "
        f"{replace(Setting(1, r['parameters'], 0), upload=r['upload']).sent / 1e6:.2f} | {r['model']['total']:.0f} | "
        f"{r['limit']} | {r['alike']:.0f} | {r['differ']['total']:.0f} | "
        f"{r['clients'] * math.floor(DAY / r['differ']['total']):,} |\n"
        for r in rows
    )


def _named(upload: str | None) -> str:
    return "whole models" if upload is None else f"`{upload}`"


def rates_table(given: dict[str | None, Rates]) -> str:
    head = (
        "| upload | ns to add a value | ns to decode a value | seconds of one core for 10⁶ clients × 10⁶ parameters |\n"
    )
    return (
        head
        + "|---|---|---|---|\n"
        + "".join(
            f"| {_named(upload)} | {1e9 * r.add:.2f} | {1e9 * r.read:.2f} | {1e12 * (r.add + r.read):,.0f} |\n"
            for upload, r in given.items()
        )
    )


def run(out: Path, quick: bool, page: Path | None = None, redraw: bool = False) -> str:
    """Measure, write results.json, and put the tables into ``page``; ``redraw`` takes the stored measurements."""
    uploads = dict.fromkeys(s.upload for s in SWEEP)
    file = out / "results.json"
    if redraw:
        stored = json.loads(file.read_text())
    else:
        out.mkdir(parents=True, exist_ok=True)
        found = {str(u): asdict(rates(u, 10_000 if quick else 1_000_000)) for u in uploads}
        stored = {"versions": versions(), "quick": quick, "rates": found, "check": check(quick)}
        write_atomically(file, (json.dumps(stored, indent=1) + "\n").encode())
    given = {u: Rates(**stored["rates"][str(u)]) for u in uploads}
    tables = {
        "rates": rates_table(given), "check": check_table(stored["check"]), "sweep": sweep_table(sweep(given)),
    }  # fmt: skip
    if page is not None:
        for name, text in tables.items():
            put(page, name, text)
    return "\n".join(tables.values())


def answer(s: Setting) -> str:
    """The model for one setting in a few lines, with the rates of this machine."""
    own = rates(s.upload)
    here, there, differ = live(s, own), cluster(s, own), simulated(s, own, 1.0)
    parts = [f"{name} {seconds:.3g} s" for name, seconds in here.items() if name != "total"]
    return (
        f"live: {here['total']:.3g} s a round, limited by {bottleneck(here)} ({', '.join(parts)})\n"
        f"  with clients that differ (σ = 1): {differ['total']:.3g} s, of which the mean client waits "
        f"{100 * differ['waiting']:.0f} %; {s.clients * math.floor(DAY / differ['total']):,} clients a day\n"
        f"  {s.sent / 1e6:.3g} MB up per client, {s.clients * (s.model + s.sent) / 1e9:.3g} GB a round\n"
        f"cluster of {s.workers} workers: {there['total']:.3g} s a round, limited by {bottleneck(there)}"
    )
