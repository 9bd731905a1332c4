"""The Byzantine table: attack × strategy × defence."""

from __future__ import annotations

import itertools
import json
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedalpha.analysis.stats import interval
from fedalpha.data import federation
from fedalpha.defence.faults import FAULTS
from fedalpha.models import initial
from fedalpha.runs.evaluate import Evaluate
from fedalpha.runs.experiment import run

CLIENTS, ATTACKERS = 20, 4
ROUNDS = 20
ATTACKS = {
    "none": None,
    "sign flip ×3": f"sign_flip(factor=3.0, clients={ATTACKERS})",
    "label flip": f"label_flip(clients={ATTACKERS})",
    "ALIE": f"alie(clients={ATTACKERS})",
    "IPM": f"ipm(epsilon=3.0, clients={ATTACKERS})",
    "Mimic": f"mimic(clients={ATTACKERS})",
    "huge (×100)": f"scale(factor=-100.0, clients={ATTACKERS})",
    "lie 10⁹ + flip": f"together(lie(loss=1e9, clients={ATTACKERS}), sign_flip(factor=3.0, clients={ATTACKERS}))",
    "lie 0 + flip": f"together(lie(loss=0.0, clients={ATTACKERS}), sign_flip(factor=3.0, clients={ATTACKERS}))",
}
STRATEGIES = ("FedAvg(prior=uniform)", "FedSoftWorse(T=0.2, prior=uniform)", "FedSoftBetter(T=0.2, prior=uniform)")


@dataclass(frozen=True)
class Defence:
    """How a strategy is wrapped, and the combine rule."""

    weigh: Callable[[str], str]
    combine: str


CAP = 0.08  # four attackers have at most the weight 0.32
DEFENCES = {
    "none": Defence(lambda s: s, "mean"),
    "cap + clip": Defence(lambda s: f"cap(clipped({s}, k=3), {CAP})", "clip(mean, C=1.0)"),
    "cap + NNM + trimmed": Defence(lambda s: f"cap(clipped({s}, k=3), {CAP})", "nnm(trimmed(beta=0.35), f=4)"),
}


def byzantine_cells(seeds: Sequence[int], cache: Path, rounds: int = ROUNDS) -> Iterator[dict[str, Any]]:
    """One row per cell and seed; finished cells are read from ``cache`` (JSON lines), so it can be resumed."""
    done: dict[tuple[Any, ...], dict[str, Any]] = {}
    if cache.exists():
        for line in cache.read_text().splitlines():
            row = json.loads(line)
            done[row["seed"], row["attack"], row["strategy"], row["defence"], row["rounds"]] = row
    for seed, strategy, defence, attack in itertools.product(seeds, STRATEGIES, DEFENCES, ATTACKS):
        key = (seed, attack, strategy, defence, rounds)
        if key not in done:
            done[key] = _cell(seed, attack, strategy, defence, rounds)
            with cache.open("a") as lines:
                lines.write(json.dumps(done[key], ensure_ascii=False) + "\n")
        yield done[key]


def _cell(seed: int, attack: str, strategy: str, defence: str, rounds: int) -> dict[str, Any]:
    logging.getLogger("fedalpha.round.driver").setLevel(logging.ERROR)  # the history has every refusal
    data = federation("digits", partition="dirichlet(a=5)", clients=CLIENTS, seed=seed)
    how, text = DEFENCES[defence], ATTACKS[attack]
    weigh = how.weigh(strategy)
    history = run(
        data, "mlp(hidden=32)", weigh, rounds=rounds, seed=seed, combine=how.combine, fault=text,
        update="sgd(lr=0.3, batch=32)", evaluate=Evaluate(rounds, liars=ATTACKERS), engine="embedded(workers=1)",
    )  # fmt: skip
    liars = set() if text is None else FAULTS.parse(text).members(seed, CLIENTS)
    masses = [
        math.fsum(a for i, a in zip(row["cohort"], row["alpha"], strict=True) if i in liars) for row in history.rows[1:]
    ]
    architecture, _ = initial("mlp(hidden=32)", data.shape, data.classes, 0)
    module = architecture.build()
    module.load_state_dict(history.model)
    module.eval()
    with torch.no_grad():
        each = [
            float((module(data.client(i).x).argmax(1) == data.client(i).y).double().mean())
            for i in range(CLIENTS)
            if i not in liars
        ]
    return {
        "seed": seed,
        "attack": attack,
        "strategy": strategy,
        "defence": defence,
        "rounds": rounds,
        "accuracy": history.rows[-1]["accuracy"],
        "worst_client": min(each),
        "attackers_mass": float(np.mean(masses)),
        "possible_mass": max(row["influence"]["possible"] for row in history.rows[1:] if row["influence"]),
        "bound": history.rows[-1]["influence"] and history.rows[-1]["influence"]["bound"],
        "non_finite": sum(not bool(torch.isfinite(v).all()) for v in history.model.values()),
    }


def byzantine_table(cells: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Cells over seeds: means with 95 % intervals, and the share of the attack-free, undefended accuracy."""
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for cell in cells:
        groups.setdefault((cell["strategy"], cell["defence"], cell["attack"]), []).append(cell)
    rows = []
    for (strategy, defence, attack), group in groups.items():
        seeds = {c["seed"] for c in group}  # paired: only the seeds that both have
        free = [c for c in groups.get((strategy, "none", "none"), group) if c["seed"] in seeds] or group
        accuracy = interval([c["accuracy"] for c in group])
        rows.append(
            {
                "strategy": strategy,
                "defence": defence,
                "attack": attack,
                "seeds": len(group),
                "accuracy": accuracy.text(1, 100),
                "share": accuracy.mean / float(np.mean([c["accuracy"] for c in free])),
                "worst_client": interval([c["worst_client"] for c in group]).text(1, 100),
                "mass": float(np.mean([c["attackers_mass"] for c in group])),
                "possible": max(c["possible_mass"] for c in group),
                "bound": group[0]["bound"],
                "non_finite": sum(c["non_finite"] for c in group),
            }
        )
    return rows
