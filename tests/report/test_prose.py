"""Numbers in the prose of docs/claims.md: each stands in a table of the page, or is computed here from stored rows."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from fedalpha.analysis.comparison import summarise
from fedalpha.analysis.measures import Curve, Measure
from fedalpha.analysis.stats import holm, paired
from fedalpha.report import gather

pytest.importorskip("pyarrow")
DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "claims.md").read_text()
TABLES = re.findall(r"<!-- fedalpha .*?<!-- end -->", PAGE, re.DOTALL)
PUBLISHED = {"5.48", "89.7"}
"""Of the paper; 5.7 is the mean of its two figures for FedAvg."""


@cache
def curves(study: str, case: str = "") -> dict[str, dict[int, Curve]]:
    return gather(DOCS / "results" / study).curves(case)


def values(study: str, strategy: str, measure: str, case: str = "") -> np.ndarray:
    """A measure of one strategy, seed by seed; a time that was never reached counts as the last round."""
    found = [Measure.parse(measure).of(curve) for _, curve in sorted(curves(study, case)[strategy].items())]
    return np.array([one.value for one in found])


def slower() -> list[str]:
    worse, average = (values("fmnist-r60", name, "R_60").mean() for name in ("FedWorse", "FedAvg"))
    return [f"{np.floor(10 * worse / average) / 10:.1f}"]  # at least


def spreads() -> list[str]:
    names = ("FedAvg", "FedSoftWorse(T=0.2)", "FedSoftBetter(T=0.2)")
    found = [values("fmnist-r60-soft", name, "R_60").std(ddof=1) for name in names]
    return [f"{min(found):.1f}", f"{max(found):.1f}"]


def by_mean_over_rounds() -> list[str]:
    """The claims about k as they were first tested, corrected together with those about softening."""
    soft = {"Worse": "FedSoftWorse(T=0.2)", "Better": "FedSoftBetter(T=0.2)"}
    pairs = [(soft[kind], f"Fed{kind}(k={k})") for kind in soft for k in (0.1, 0.2)]
    pairs += [(f"Fed{kind}(k=0.2)", f"Fed{kind}(k=0.1)") for kind in soft]
    found = [paired(*(values("fmnist-topk", name, "auc") for name in pair)) for pair in pairs]
    corrected = holm([difference.p for difference in found])
    texts = [word for d in found[-2:] for word in d.text(2, 100).split(" ± ")]
    return [*texts, *(f"{p:.3f}" for p in corrected[-2:]), f"{corrected[2]:.3f}"]


def of_the_worst_served() -> list[str]:
    hard = values("fmnist-100", "FedBetter", "worst_client_accuracy")
    case = next(case for case in gather(DOCS / "results" / "further").cases if "ynthetic" in case)
    names = ("FedSoftWorse(T=0.2)", "FedAvg")
    synthetic = [values("further", name, "worst_client_accuracy", case).mean() for name in names]
    return [f"{100 * hard.mean():.1f}", *(f"{100 * mean:.2f}" for mean in synthetic)]


def between_seeds() -> list[str]:
    found = [100 * np.ptp(values("mnist-100", name, "accuracy")) for name in curves("mnist-100")]
    return [f"{max(found):.1f}"]


def with_many_clients() -> list[str]:
    case = next(case for case in gather(DOCS / "results" / "further").cases if "1,000" in case or "1000" in case)
    found = summarise(curves("further", case), Measure.parse("auc"), "FedAvg")
    difference = next(s.difference for s in found if s.strategy == "FedSoftWorse(T=0.2)")
    assert difference is not None
    return [f"{-100 * difference.mean:.2f}"]


def rounded() -> list[str]:
    """Shorter forms of numbers in the tables."""
    soft = paired(*(values("fmnist-100", name, "accuracy") for name in ("FedAvg", "FedSoftBetter(T=0.2)")))
    better = paired(*(values("fmnist-topk", f"FedBetter(k={k})", "accuracy") for k in (0.2, 0.1)))
    return [f"{100 * soft.mean:.1f}", f"{100 * better.mean:.1f}", f"{(5.90 + 5.48) / 2:.1f}"]


def test_every_number_of_the_prose_is_in_a_table_or_computed() -> None:
    known = set(re.findall(r"\d+\.\d+", "".join(TABLES))) | PUBLISHED
    made = (slower, spreads, by_mean_over_rounds, of_the_worst_served, between_seeds, with_many_clients, rounded)
    known |= {text for make in made for text in make()}
    prose = PAGE
    for table in TABLES:
        prose = prose.replace(table, "")
    numbers = re.findall(r"\d+\.\d+", prose)
    assert len(numbers) > 50
    assert [number for number in numbers if number not in known] == []
