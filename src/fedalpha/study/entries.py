"""The small tables of a study file: published figures, claims, windows of curves, the calibration."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator


class Published(BaseModel):
    """A published figure, shown beside the measured one; accuracies are fractions.

    ``case`` is a case of the study, or a named case that the grid varies; without it, the figure is for all cases.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    strategy: str
    measure: str
    mean: float
    half: float | None = None
    case: str | None = None

    def of(self, case: str) -> bool:
        """Whether it is a figure of this case."""
        return self.case is None or case == self.case or case.startswith(f"{self.case}, ")


class Claim(BaseModel):
    """A claim that ``better`` beats each of ``than`` in ``measure``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str
    measure: str
    better: str
    than: tuple[str, ...] = Field(min_length=1)

    @field_validator("than", mode="before")
    @classmethod
    def _one(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value


class Zoom(BaseModel):
    """A window of the accuracy curves that is drawn again, larger."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rounds: tuple[float, float]
    accuracy: tuple[float, float] | None = None


class Calibration(BaseModel):
    """The choice of the learning rate: the value of ``lr`` with which FedAvg's ``measure`` is nearest to ``target``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    measure: str
    target: float
    lr: tuple[float, ...] = Field(min_length=1)
    seeds: str
    stop_at: str | None = None
