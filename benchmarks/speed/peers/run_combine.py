"""This library's combine rules alone: one rule over many updates in memory, as after a round."""

from __future__ import annotations

import argparse
import contextlib
import re
import time
from pathlib import Path

import contestant
import numpy as np
import torch

from fedalpha.combine import COMBINES, Reports
from fedalpha.fast.threads import single_thread
from fedalpha.models import Template
from fedalpha.rng import generator
from fedalpha.update import Broadcast, Report


def resident(field: str) -> int | None:
    """VmRSS or VmHWM of this process, in bytes."""
    with contextlib.suppress(OSError):
        found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
        return int(found[1]) * 1024 if found else None
    return None


parser = argparse.ArgumentParser()
parser.add_argument("--rule", required=True)
parser.add_argument("--updates", type=int, required=True)
parser.add_argument("--parameters", type=int, required=True)
parser.add_argument("--rounds", type=int, required=True)
options = parser.parse_args()
rng = generator(0, "updates")
models = torch.empty(options.updates, options.parameters)
for row in models:
    row.copy_(torch.from_numpy(rng.standard_normal(options.parameters, dtype=np.float32)))
reports = Reports([Report(i, {"w": row}, {"train": 1.0}, 1, 1) for i, row in enumerate(models)])
broadcast = Broadcast(Template(torch.nn.Identity()), {"w": torch.zeros(options.parameters)})
alpha = np.full(options.updates, 1 / options.updates)
rule = COMBINES.parse(options.rule)
contestant.versions("torch", "numpy")
contestant.say("rule", linear=rule.linear, bytes=models.nbytes, model_bytes=4 * options.parameters)
with single_thread(), torch.no_grad():
    state = rule.init()
    for turn in range(1, options.rounds + 1):
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        before = resident("VmRSS")
        started = time.perf_counter()
        rule.combine(state, broadcast, reports, alpha, True)
        seconds = time.perf_counter() - started
        peak = resident("VmHWM")
        extra = None if before is None or peak is None else max(peak - before, 0)
        contestant.say("round", round=turn, seconds=seconds, extra_bytes=extra)
