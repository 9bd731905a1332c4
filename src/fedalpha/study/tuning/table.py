"""The ``[tune]`` table of a study file: the searched settings, the budget, and the error of the result.

In full::

    [tune]
    budget = 4000            # rounds per method and case for the search
    measure = "accuracy"     # what is optimised and compared
    seeds = 1000             # the first tuning seed; the seeds of the study are those that are reported
    clients = 0.5            # the share of clients and samples for tuning; the others are reported
    error = 0.05             # the probability of a false winner, and of a false interval, in each case
    drop = 0.2               # the probability with which a tuning race may drop its best candidate
    at_least = 1             # reported seeds before a method may be dropped
    candidates = 8           # points that race at a time
    sampler = "tpe"          # Optuna's sampler: tpe or random

    [tune.space]             # settings that are searched for every method
    lr = "log(0.01, 1)"
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from fedalpha.analysis.measures import Measure
from fedalpha.runs.settings import Settings
from fedalpha.study.tuning.samplers import check_sampler
from fedalpha.text import nearest

_FIXED = {"seed", "part", "plugin", "rounds", "engine", "device", "ray_address", "log"}
"""Settings that a method cannot change, because they decide the budget, the pairing or the place."""


class Tune(BaseModel):
    """How methods are tuned and compared."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    budget: int = Field(ge=1)
    measure: str = "accuracy"
    seeds: int = Field(1000, ge=0)
    clients: float = Field(0.5, ge=0, lt=1)
    error: float = Field(0.05, gt=0, lt=1)
    drop: float = Field(0.2, gt=0, lt=1)
    at_least: int = Field(1, ge=1)
    candidates: int = Field(8, ge=2)
    sampler: str = "tpe"
    space: dict[str, Any] = {}

    @field_validator("sampler")
    @classmethod
    def _sampler(cls, value: str) -> str:
        return check_sampler(value)

    @field_validator("measure")
    @classmethod
    def _measure(cls, value: str) -> str:
        found = Measure.parse(value)
        if found.time_like:
            raise ValueError(
                f"{value} has no value for a run that never reaches the accuracy; use accuracy, auc or loss"
            )
        return value

    @field_validator("space")
    @classmethod
    def _space(cls, value: dict[str, Any]) -> dict[str, Any]:
        check_keys(value, "space")
        return value


def check_keys(given: Mapping[str, Any], where: str) -> None:
    """Raise if a method, or the space of all methods, has a setting that it cannot have."""
    known = sorted(set(Settings.model_fields) - _FIXED)
    for key in given:
        if key in _FIXED:
            raise ValueError(f"{where}: {key} is the same for all methods; set it under [settings]")
        if key not in known:
            raise ValueError(f"{where}: unknown setting {key!r}; {nearest(key, known)}")
