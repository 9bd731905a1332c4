"""Times combine rules and what others offer in their place, on the same vectors, in turns; run by `benchmarks.combine`.

``python -m benchmarks.combine_side CLIENTS VALUES TURNS PATIENCE WHAT …`` prints a line of JSON. WHAT is ``ours``,
``torch``, ``numpy``, ``flower``, ``byzfl`` or ``memory``. It runs in ByzFL's environment too, and with the package of
another commit.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import re
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedalpha.combine import COMBINES, Reports
from fedalpha.models import Template
from fedalpha.update import Broadcast, Report

Call = Callable[[], Any]
OURS = {
    "mean": "mean",
    "median": "median",
    "trimmed": "trimmed(beta=0.1)",
    "krum": "krum(f={f})",
    "geomed": "geomed",
    "centred": "centred(tau=100)",
    "nnm + trimmed": "nnm(trimmed(beta=0.1), f={f})",
    "clip + mean": "clip(mean, C=100)",
    "noise": "noise(clip(mean, C=100), z=1, c=1)",
}
FLOWER_PAIRS = 100
"""Flower's Krum loops over pairs of clients: not for more clients."""
LARGEST = 8 << 30
"""ByzFL's neighbour mixing gathers a copy of the cohort for every client: not above this many bytes."""


def ours(vectors: torch.Tensor) -> dict[str, Call]:
    n = len(vectors)
    reports = Reports([Report(i, {"w": row}, {"train": 1.0}, 1, 1) for i, row in enumerate(vectors)])
    broadcast = Broadcast(Template(torch.nn.Identity()), {"w": torch.zeros(vectors.shape[1])})
    found: dict[str, Call] = {}
    for kind, alpha in (("", np.full(n, 1 / n)), (", unequal", np.random.default_rng(1).dirichlet(np.ones(n)))):
        for name, text in OURS.items():
            if kind and name not in ("median", "trimmed"):
                continue
            rule = COMBINES.parse(text.format(f=n // 10))

            def call(rule: Any = rule, alpha: Any = alpha) -> Any:
                fresh = Reports(reports.items)  # nothing is remembered from the last turn
                return rule.combine(rule.init(), broadcast, fresh, alpha, True)

            found[f"fedalpha {name}{kind}"] = call
    return found


def others(what: str, vectors: torch.Tensor) -> dict[str, Call]:
    n, f = len(vectors), len(vectors) // 10
    arrays = vectors.numpy()
    if what == "torch":
        return {
            "torch mean": lambda: torch.mean(vectors, 0),
            "torch median": lambda: torch.median(vectors, 0),
            "torch sort": lambda: torch.sort(vectors, 0),
        }
    if what == "numpy":
        return {"numpy median": lambda: np.median(arrays, axis=0)}
    if what == "flower":
        from flwr.server.strategy import aggregate

        results = [([row], 1) for row in arrays]
        calls: dict[str, Call] = {
            "flower median": lambda: aggregate.aggregate_median(results),
            "flower trimmed": lambda: aggregate.aggregate_trimmed_avg(results, 0.1),
        }
        if n <= FLOWER_PAIRS:
            calls["flower krum"] = lambda: aggregate.aggregate_krum(results, f, 0)
        return calls
    from benchmarks.reliability import byzfl_side as side  # stubs what ByzFL imports for its data sets

    byzfl: Any = vars(side)["byzfl"]
    calls = {
        "byzfl mean": lambda: byzfl.Average()(vectors),
        "byzfl median": lambda: byzfl.Median()(vectors),
        "byzfl trimmed": lambda: byzfl.TrMean(f)(vectors),
        "byzfl krum": lambda: byzfl.Krum(f)(vectors),
        "byzfl geomed": lambda: byzfl.GeometricMedian()(vectors),
        "byzfl centred": lambda: byzfl.CenteredClipping()(vectors),
    }
    if (n - f) * vectors.nbytes <= LARGEST:
        calls["byzfl nnm + trimmed"] = lambda: byzfl.TrMean(f)(byzfl.NNM(f)(vectors))
    return calls


def timed(calls: dict[str, Call], turns: int, patience: float) -> dict[str, list[float]]:
    """The seconds of each call, in turns. A call that takes longer than ``patience`` is measured once."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(turns + 1):  # the first turn warms up
        for name, call in calls.items():
            if seconds[name] and seconds[name][0] > patience:
                continue
            begun = time.perf_counter()
            call()
            took = time.perf_counter() - begun
            if turn == 1:
                seconds[name].clear()
            seconds[name].append(took)
    return seconds


def memory(vectors: torch.Tensor) -> dict[str, float]:
    """The peak above the resident memory before, in models. Shorter vectors load the libraries and warm up."""
    found, model = {}, vectors[0].nbytes
    short, calls = ours(vectors[:, : 1 << 15].contiguous()), ours(vectors)
    calls["fedalpha mean"]()  # compiles what only large sums use
    for name, call in calls.items():
        short[name]()
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # memory that malloc kept would hide what the call needs
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        before = _resident("VmRSS")
        call()
        found[name] = round((_resident("VmHWM") - before) / model, 2)
    return found


def _resident(field: str) -> int:
    line = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert line is not None
    return int(line[1]) * 1024


def main() -> None:
    n, d, turns, patience = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    drawn = np.random.default_rng(0)
    vectors = torch.empty(n, d)
    for row in vectors:
        row.copy_(torch.from_numpy(drawn.standard_normal(d, dtype=np.float32)))
    if sys.argv[5] == "memory":
        print(json.dumps(memory(vectors)))
        return
    calls: dict[str, Call] = {}
    for what in sys.argv[5:]:
        calls |= ours(vectors) if what == "ours" else others(what, vectors)
    with contextlib.redirect_stdout(sys.stderr):
        seconds = timed(calls, turns, patience)
    print(json.dumps({name: [statistics.median(s), min(s), max(s), len(s)] for name, s in seconds.items()}))


if __name__ == "__main__":
    main()
