"""``python -m benchmarks profile``: where the time of a local step goes, operation by operation, on one core."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.speed import peak
from benchmarks.speed.bench import machine
from benchmarks.speed.workloads import CLASSES, FULL, SEED, SHAPE, flops
from fedalpha.combine import Sum
from fedalpha.data.federations import Examples, Pooled
from fedalpha.engine.backends.pool import keep_freed_memory
from fedalpha.engine.backends.site import ClientSite
from fedalpha.fast.threads import single_thread
from fedalpha.models import initial
from fedalpha.rng import generator, integer
from fedalpha.round import Train
from fedalpha.task import Task
from fedalpha.update import Broadcast, sgd

GROUPS = {
    "convolution, forward": ("aten::mkldnn_convolution",),
    "convolution, gradients": ("aten::convolution_backward",),
    "first convolution with its pooling and ReLU, forward": ("_PooledConvolution",),
    "first convolution with its pooling and ReLU, gradients": ("_PooledConvolutionBackward",),
    "pooling and ReLU, forward": ("_Pooling", "aten::max_pool2d_with_indices", "aten::clamp_min"),
    "pooling and ReLU, gradients": ("_PoolingBackward", "aten::max_pool2d_with_indices_backward"),
    "matrix products": ("aten::bmm", "aten::mm", "aten::addmm"),
    "gathering batches": ("aten::index_select", "aten::index"),
    "softmax and loss": (
        "aten::_log_softmax",
        "aten::_log_softmax_backward_data",
        "aten::nll_loss_forward",
        "aten::nll_loss_backward",
        "aten::nll_loss2d_forward",
        "aten::nll_loss2d_backward",
    ),
    "steps (w − lr·g)": ("aten::add_", "aten::sub_"),
}
"""Operations of torch by purpose; all others are called *everything else*."""


def profile(out: Path, clients: int = 20) -> str:
    """Profile both kinds of local training and write ``profile.json`` and ``profile.md``. Returns the latter's text."""
    keep_freed_memory()
    with single_thread():
        found = {"machine": machine(), "torch": torch.__version__, "no_peak": peak.missing(), "rates": _rates()}
        found |= {"cnn": _cnn(clients), "softmax": _softmax()}
    out.mkdir(parents=True, exist_ok=True)
    (out / "profile.json").write_text(json.dumps(found, indent=1) + "\n")
    text = _text(found)
    (out / "profile.md").write_text(text)
    return text


def _cnn(clients: int) -> dict[str, Any]:
    """Workload A's client, one after the other."""
    _, samples = FULL.a
    seconds, steps, operations = _watched("cnn", clients, samples, sgd(lr=0.1, batch=64))
    arithmetic = flops(FULL) / FULL.a[0] * clients
    return {"unit": "step", "count": steps, "seconds": seconds, "operations": operations, "flop": arithmetic}


def _softmax() -> dict[str, Any]:
    """Workload B's clients, as many as one process trains at once."""
    count, samples = FULL.b
    seconds, _, operations = _watched("softmax", count, samples, sgd(lr=0.01, batch=20))
    return {"unit": "client", "count": count, "seconds": seconds, "operations": operations}


def _watched(model: str, clients: int, samples: int, update: sgd) -> tuple[float, int, dict[str, float]]:
    """Seconds without the profiler, steps, and seconds by operation from a second run with the profiler."""
    rng = generator(SEED, "images")
    x = torch.from_numpy(rng.random((clients * samples, *SHAPE), dtype=np.float32))
    y = torch.from_numpy(rng.integers(CLASSES, size=clients * samples))
    people = Pooled(Examples(x, y), np.arange(clients + 1) * samples, Examples(x[:1], y[:1]), classes=CLASSES)
    architecture, parameters = initial(model, SHAPE, CLASSES, integer(SEED, "model"))
    site = ClientSite(people, Task(), update, SEED)
    broadcast = Broadcast(architecture, parameters)
    job = Train(1, np.arange(clients), np.full(clients, 1 / clients))

    def work() -> None:
        total = Sum()
        for order in site.orders(broadcast, job):
            total.merge(*site.fulfil(broadcast, order, lambda place, model: model)[1])

    work()
    seconds = min(_timed(work) for _ in range(3))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        work()
    operations = {event.key: event.self_cpu_time_total / 1e6 for event in seen.key_averages()}
    return seconds, clients * update.count(samples), operations


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _rates(size: int = 2048, seconds: float = 2.0) -> dict[str, float]:
    """GFLOP/s of one core: the peak, where it can be measured, and torch's matrix product."""
    found = {} if peak.missing() else {"fused multiply-adds": peak.one_core(seconds)[1]}
    a = torch.rand(size, size)
    torch.mm(a, a)
    return found | {"torch's sgemm": 2.0 * size**3 / min(_timed(lambda: torch.mm(a, a)) for _ in range(5)) / 1e9}


def _text(found: dict[str, Any]) -> str:
    lines = [
        "# Where the time goes",
        "",
        f"{found['machine']['processor']}, one core; torch {found['torch']}. Seconds are the fastest of three; the "
        "shares are what torch's profiler saw in a run of its own. One core's rates: "
        f"{', '.join(f'{name} {rate:.0f} GFLOP/s' for name, rate in found['rates'].items())}.",
    ]
    if found["no_peak"]:
        lines += ["", f"**Fused multiply-adds were not measured**: {found['no_peak']}."]
    for title, part in (
        ("The paper's CNN, client by client", found["cnn"]),
        ("Small models at once", found["softmax"]),
    ):
        each = part["seconds"] / part["count"]
        name, scale = ("ms", 1e3) if part["unit"] == "step" else ("µs", 1e6)
        lines += ["", f"## {title}", "", f"{each * scale:.3g} {name} a {part['unit']}."]
        if "flop" in part:
            for rate, value in found["rates"].items():
                ideal = part["flop"] / value / 1e9 / part["count"]
                lines.append(
                    f"The arithmetic alone would take {ideal * scale:.3g} {name} at the rate of {rate}: "
                    f"{ideal / each:.0%} of the step."
                )
        total = sum(part["operations"].values())
        known = {group: sum(part["operations"].get(op, 0.0) for op in ops) for group, ops in GROUPS.items()}
        known["everything else"] = total - sum(known.values())
        lines += ["", f"| | {name} a {part['unit']} | share |", "|---|---|---|"]
        for group, seconds in sorted(known.items(), key=lambda pair: -pair[1]):
            if seconds / total >= 0.002:
                lines.append(f"| {group} | {each * seconds / total * scale:.3g} | {seconds / total:.1%} |")
    return "\n".join(lines) + "\n"
