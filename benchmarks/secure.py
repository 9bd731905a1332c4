"""What a secure sum costs beside the plain sum of a round: bytes and seconds, and how they grow.

Clients are simulated one after the other in one process and one thread, so a client's seconds are the sum over all of
them divided by their number. A plain round sends one float32 model per client and sums them in float64.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fedalpha.fast.threads import single_thread
from fedalpha.round import Algorithm
from fedalpha.runs.machine import versions
from fedalpha.secure.client import Policy
from fedalpha.secure.forms import SECURES
from fedalpha.secure.rounds import Rehearsal, session_of, summed
from fedalpha.secure.server import Server, Unusable
from fedalpha.store.files import write_atomically

ALL, LOG = "masked(threshold=1/2)", "masked(threshold=1/2, neighbours=log)"


def cases(quick: bool) -> Iterator[tuple[str, int, int, int]]:
    """(form, clients, parameters, clients that are lost before they send their vector)."""
    if quick:
        yield from [(ALL, 6, 1000, 0), (ALL, 6, 1000, 2)]
        return
    for lost in (0, 3, 6):
        yield ALL, 20, 1_000_000, lost
    for clients in (10, 20, 40, 80, 160):
        yield ALL, clients, 10_000, 0
    for clients in (80, 160):
        yield LOG, clients, 10_000, 0


def measure(form: str, clients: int, parameters: int, lost: int) -> dict[str, Any]:
    """One session and the plain sum of the same vectors."""
    rng, secure = np.random.default_rng(0), SECURES.parse(form)
    base = rng.uniform(-0.1, 0.1, parameters).astype(np.float32)
    weights = dict.fromkeys(range(clients), 1 / clients)
    start, plain = time.perf_counter(), np.zeros(parameters)
    for weight in weights.values():
        plain += weight * base.astype(np.float64)
    seconds = time.perf_counter() - start
    session = session_of(secure, Algorithm(), weights, parameters, "benchmark", 0)

    def vector(id: int) -> tuple[Any, None]:
        if id < lost:
            raise Unusable("lost")
        return base.astype(np.float64), None

    rehearsal = Rehearsal(lambda id: Policy(), vector)
    server = Server(session, weights)
    total = summed(server, rehearsal.ask, rehearsal.costs)
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


def run(out: Path, quick: bool) -> list[dict[str, Any]]:
    """Measure every case; writes results.json and table.md."""
    out.mkdir(parents=True, exist_ok=True)
    with single_thread():
        measure(ALL, 4, 100, 0)  # imports
        rows = [measure(*case) for case in cases(quick)]
    text = json.dumps({"versions": versions(), "quick": quick, "rows": rows}, indent=1)
    write_atomically(out / "results.json", (text + "\n").encode())
    write_atomically(out / "table.md", table(rows).encode())
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """The results as Markdown."""
    head = "| clients | parameters | lost | neighbours | upload per client (× plain) | more to download (kB) | "
    head += "seconds per client | seconds of the server | plain sum (s) | error (bound) |\n|" + "---|" * 10 + "\n"
    lines = [
        f"| {r['clients']} | {r['parameters']:,} | {r['lost']} | {r['neighbours']} | "
        f"{r['client_up'] / r['plain_up']:.3f} | {r['client_down'] / 1000:.1f} | {r['client_seconds']:.3f} | "
        f"{r['server_seconds']:.3f} | {r['plain_seconds']:.3f} | {r['error']:.1e} ({r['bound']:.1e}) |"
        for r in rows
    ]
    return head + "\n".join(lines) + "\n"
