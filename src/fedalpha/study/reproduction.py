"""Experiments that come with the package: those of the paper, and one of each system that it cites.

``paper/NAME.toml`` holds the settings, the published figures and the calibrated learning rate of an experiment of the
paper, which is run under one of its protocols; ``cited/NAME.toml`` holds those of a system's own publication. A
calibrated rate is found by `calibrate`, which runs only FedAvg, on seeds that are not reported, over a grid of rates.
It chooses the rate whose mean is nearest to the published figure.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from fedalpha.analysis.comparison import summarise
from fedalpha.analysis.measures import Curve, Measure
from fedalpha.analysis.stats import Interval
from fedalpha.study.crew import Watch
from fedalpha.study.plan import Study, study
from fedalpha.study.protocols import protocol
from fedalpha.study.runner import run_study
from fedalpha.text import nearest

NAMES = ("mnist-iid", "mnist-hybrid", "fmnist-noniid", "fmnist-hybrid", "fmnist-topk", "further")
CITED = (
    "mcmahan-2017",
    "cho-2020",
    "yurochkin-2019",
    "fedpage-2021",
    "feddist-2021",
    "li-2020",
    "karimireddy-2020",
    "jhunjhunwala-2023",
)
"""The systems that the paper cites, and its baselines, compared with their own publications."""
TABLES = ("fmnist-noniid", "fmnist-hybrid")
"""The experiments with a table in the paper, which ``--table`` can run alone."""
Form = Literal["quick", "table"]


def experiment(
    name: str,
    protocol_name: str | None = None,
    *,
    form: Form | None = None,
    seeds: str | None = None,
    rounds: int | None = None,
) -> Study:
    """An experiment as a study; ``form`` is "quick" (minutes) or "table" (a table of the paper alone, many seeds).

    Protocols are readings of the paper's experiments; those of cited systems have none.

    >>> experiment("fmnist-noniid", "authors").cells()[1].settings.strategy
    'FedSoftWorse(T=0.2, prior=uniform, loss=train)'
    """
    if name not in NAMES + CITED:
        raise ValueError(f"unknown experiment {name!r}; {nearest(name, (*NAMES, *CITED, 'all', 'cited'))}")
    if name in CITED and protocol_name is not None:
        raise ValueError(f"{name} is not an experiment of the paper and has no protocols; leave --protocol out")
    place = resources.files("fedalpha.study").joinpath("cited" if name in CITED else "paper", f"{name}.toml")
    found = study(tomllib.loads(place.read_text(encoding="utf-8")))
    if protocol_name is not None:
        found = found.with_changes(protocol=protocol(protocol_name).name)
    if form is not None:
        changes = found.quick if form == "quick" else found.table
        if not changes:
            raise ValueError(f"{name} is not a table of the paper; {' and '.join(TABLES)} are, or leave --table out")
        found = found.with_changes(**_that_fit(found, changes), **changes)
    found = found.with_changes(seeds=seeds, rounds=rounds)
    parts = [name, *filter(None, (found.protocol, form))]
    title = f"{found.title} ({found.protocol})" if found.protocol else found.title
    return found.with_changes(name="-".join(parts), title=title)


def _that_fit(found: Study, changes: dict[str, Any]) -> dict[str, Any]:
    """The published figures and claims that are still measured after the changes. Windows are removed."""
    measures = set(changes.get("measures", found.measures))
    changed = found.with_changes(published=(), claims=(), zoom=(), **changes)
    names, cases = set(changed.names), list(changed.variations())
    figures = [
        p
        for p in found.published
        if p.measure in measures and p.strategy in names and any(p.of(case) for case in cases)
    ]
    claims = [c for c in found.claims if c.measure in measures and {c.better, *c.than} <= names]
    return {"published": [p.model_dump() for p in figures], "claims": [c.model_dump() for c in claims], "zoom": ()}


@dataclass(frozen=True)
class Rate:
    """FedAvg with one learning rate: its ``mean`` over the calibration seeds; ``unreached`` runs are censored."""

    lr: float
    mean: Interval
    unreached: int

    def miss(self, target: float) -> float:
        return abs(self.mean.mean - target)


def calibration(name: str) -> Study:
    """The study that finds an experiment's calibrated learning rate."""
    found = experiment(name, "calibrated")
    plan = found.calibration
    if plan is None:
        raise ValueError(f"{name} has no calibration of its own; it takes the rate of mnist-iid or fmnist-noniid")
    return study(
        {
            "name": f"calibrate-{name}",
            "title": f"Calibration of {name}: FedAvg on seeds that are not reported",
            "strategies": ["FedAvg"],
            "seeds": plan.seeds,
            "protocol": "calibrated",
            "measures": [plan.measure],
            "settings": found.settings,
            "grid": {"lr": [f"exponential({lr:g}, rate=0.99)" for lr in plan.lr]},
            **({"stop_at": plan.stop_at} if plan.stop_at else {}),
        }
    )


def calibrate(
    name: str, folder: str | Path, jobs: int | None = None, watch: Watch | None = None
) -> tuple[list[Rate], Rate]:
    """Run the calibration of an experiment: every rate, and the one nearest to the published figure."""
    found, plan = calibration(name), experiment(name, "calibrated").calibration
    assert plan is not None
    store = run_study(found, folder, jobs=jobs, watch=watch)
    measure = Measure.parse(plan.measure)
    by_case: dict[str, dict[int, Curve]] = {}
    for cell in found.cells():
        columns = store.get(cell.key).columns
        numbers = {k: v for k, v in columns.items() if k in ("accuracy", "loss")}
        by_case.setdefault(cell.case, {})[cell.seed] = Curve.of(numbers, cell.settings.rounds)
    rates = []
    for lr, curves in zip(plan.lr, by_case.values(), strict=True):
        (row,) = summarise({"FedAvg": curves}, measure)
        rates.append(Rate(lr, row.mean, row.unreached))
    return rates, min(rates, key=lambda rate: rate.miss(plan.target))
