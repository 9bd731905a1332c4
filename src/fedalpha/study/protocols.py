"""The three readings of the paper's experiment: printed, authors, calibrated.

A protocol is a set of settings and, for ``authors``, another form of the loss-aware rules.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedalpha.strategies import STRATEGIES, Strategy
from fedalpha.text import nearest

RULES = ("T", "loss", "prior")
"""Arguments of loss-aware rules that a study's file may set for a protocol, besides settings."""
PAPER_LR = "exponential(0.001, rate=0.99)"


@dataclass(frozen=True)
class Protocol:
    """``settings`` of the run, and ``rules``: arguments that are set in every loss-aware rule that has them."""

    name: str
    summary: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    rules: Mapping[str, Any] = field(default_factory=dict)


PROTOCOLS = {
    p.name: p
    for p in (
        Protocol(
            "printed",
            "the text as written: 0–1 pixels, mean cross-entropy, lr 0.001·0.99^r",
            {"pixels": "unit", "task": "cross_entropy", "lr": PAPER_LR},
        ),
        Protocol(
            "authors",
            "what the authors' code does: 0–255 pixels, softmax over the batch axis, summed loss; the rules look at "
            "the training loss and leave the sizes out",
            {"pixels": "raw", "task": "batch_softmax", "lr": PAPER_LR},
            {"loss": "train", "prior": "uniform"},
        ),
        Protocol(
            "calibrated",
            "a sound classifier: 0–1 pixels, mean cross-entropy, one learning rate per experiment, found on FedAvg "
            "alone and on seeds that are not reported",
            {"pixels": "unit", "task": "cross_entropy"},
        ),
    )
}


def protocol(name: str) -> Protocol:
    """The protocol of that name."""
    if name not in PROTOCOLS:
        raise ValueError(f"unknown protocol {name!r}; {nearest(name, PROTOCOLS)}")
    return PROTOCOLS[name]


def restyled(strategy: str | Strategy, rules: Mapping[str, Any]) -> Strategy:
    """The strategy with ``rules`` (loss, prior, T) set in each of its loss-aware rules; FedAvg does not change.

    >>> print(restyled("FedSoftBetterAvg", {"loss": "train", "prior": "uniform"}))
    switch(FedSoftBetter(T=0.2, prior=uniform, loss=train), FedAvg, at=20)
    """
    rule: Any = STRATEGIES.parse(strategy)
    changes: dict[str, Any] = {}
    names = {f.name for f in dataclasses.fields(rule)}
    if "members" in names:
        changes["members"] = tuple(restyled(member, rules) for member in rule.members)
    elif "loss" in names:
        changes = {name: value for name, value in rules.items() if name in names}
    changed: Strategy = dataclasses.replace(rule, **changes) if changes else rule
    return changed
