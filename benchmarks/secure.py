"""What a secure sum costs beside the plain sum of a round: bytes and seconds, and how they grow.

``python -m benchmarks secure --out docs/results/secure --page docs/privacy.md`` repeats what the page shows.
Clients are simulated one after the other in one process and one thread, so the seconds per client are those of all
clients divided by their number. A plain round sends one float32 model per client and sums them in float64. Each case is
measured up to three times, as long as that takes less than `BUDGET` seconds; seconds are medians, bytes are the same
each time.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pages import put
from fedalpha.fast.threads import single_thread
from fedalpha.round import Algorithm
from fedalpha.runs.machine import versions
from fedalpha.secure.forms import SECURES
from fedalpha.secure.rounds import Rehearsal, rehearsing, session_of, summed
from fedalpha.secure.server import Server, Unusable
from fedalpha.store.files import write_atomically
from fedalpha.strategies import STRATEGIES

ALL, LOG = "masked(threshold=1/2)", "masked(threshold=1/2, neighbours=log)"
BLIND = "blind(reference=1.0)"
BUDGET = 15.0
_TIMES = ("client_seconds", "server_seconds", "plain_seconds")


def cases(quick: bool) -> Iterator[tuple[str, int, int, int]]:
    """(form, clients, parameters, clients that are lost before they send their vector)."""
    if quick:
        yield from [("masked", 6, 1000, 0), (ALL, 6, 1000, 2), (BLIND, 6, 1000, 0), ("masked(signed=true)", 6, 1000, 1)]
        return
    for lost in (0, 3, 6):
        yield "masked", 20, 1_000_000, lost
    yield "masked(signed=true)", 20, 1_000_000, 0
    yield BLIND, 20, 1_000_000, 0
    for clients in (20, 40, 80, 160, 320):
        yield ALL, clients, 10_000, 0
    yield ALL, 320, 10_000, 32
    for clients in (80, 160, 320):
        yield LOG, clients, 10_000, 0
    yield LOG, 320, 10_000, 32


def measure(form: str, clients: int, parameters: int, lost: int) -> dict[str, Any]:
    """One session and the plain sum of the same vectors."""
    rng, secure = np.random.default_rng(0), SECURES.parse(form)
    base = rng.uniform(-0.1, 0.1, parameters).astype(np.float32)
    weights = dict.fromkeys(range(clients), 1 / clients)
    start, plain = time.perf_counter(), np.zeros(parameters)
    for weight in weights.values():
        plain += weight * base.astype(np.float64)
    seconds = time.perf_counter() - start
    algorithm = Algorithm(weigh=STRATEGIES.parse("FedSoftWorse(T=1)"))
    session = session_of(secure, algorithm, weights, parameters, "benchmark", 0)

    def vector(id: int) -> tuple[Any, float | None]:
        if id < lost:
            raise Unusable("lost")
        return base.astype(np.float64), 1.0 if secure.blind else None

    rehearsal = Rehearsal(rehearsing(session, weights), vector)
    total = summed(Server(session, weights), rehearsal.ask, rehearsal.costs)
    error = float(np.abs(total.sum.values - plain * len(total.ids) / clients).max())
    assert error <= total.sum.error
    costs = rehearsal.costs
    return {
        "form": form,
        "clients": clients,
        "parameters": parameters,
        "lost": lost,
        "neighbours": session.degree or clients - 1,
        "client_up": costs.up / clients,
        "client_down": costs.down / clients,
        "plain_up": 4 * parameters,
        "client_seconds": costs.clients / clients,
        "server_seconds": costs.server,
        "plain_seconds": seconds,
        "error": error,
        "bound": total.sum.error,
    }


def repeated(form: str, clients: int, parameters: int, lost: int) -> dict[str, Any]:
    """The row of a case, with the medians of its seconds."""
    began, rows = time.perf_counter(), [measure(form, clients, parameters, lost)]
    while len(rows) < 3 and time.perf_counter() - began < BUDGET:
        rows.append(measure(form, clients, parameters, lost))
    return {**rows[0], **{name: statistics.median(row[name] for row in rows) for name in _TIMES}, "turns": len(rows)}


def run(out: Path, quick: bool, page: Path | None = None) -> list[dict[str, Any]]:
    """Measure every case; writes results.json and table.md, and the table into ``page``."""
    out.mkdir(parents=True, exist_ok=True)
    with single_thread():
        measure(ALL, 4, 100, 0)  # imports
        rows = [repeated(*case) for case in cases(quick)]
    text = json.dumps({"versions": versions(), "quick": quick, "rows": rows}, indent=1)
    write_atomically(out / "results.json", (text + "\n").encode())
    write_atomically(out / "table.md", table(rows).encode())
    if page is not None:
        put(page, "costs", table(rows))
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """The results as Markdown."""
    head = "| secure sum | clients | parameters | lost | neighbours | upload per client (× plain) | "
    head += "additional download per client (kB) | seconds per client | seconds on the server | plain sum (s) | "
    head += "error (bound) |\n|" + "---|" * 11 + "\n"
    lines = [
        f"| `{r['form']}` | {r['clients']} | {r['parameters']:,} | {r['lost']} | {r['neighbours']} | "
        f"{r['client_up'] / r['plain_up']:.3f} | {r['client_down'] / 1000:.1f} | {r['client_seconds']:.3f} | "
        f"{r['server_seconds']:.3f} | {r['plain_seconds']:.3f} | {r['error']:.1e} ({r['bound']:.1e}) |"
        for r in rows
    ]
    return head + "\n".join(lines) + "\n"
