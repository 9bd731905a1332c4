"""``tune.json``: the stored races of a study that tunes, which are checked when they are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, model_validator

from fedalpha.analysis.measures import Measure
from fedalpha.store.files import read_bytes
from fedalpha.text import cleaned, shown

FORMAT = 1
"""The version of ``tune.json``."""
_MOST = 2**28
"""The largest ``tune.json`` that is read."""
Count = Annotated[int, Field(ge=0, le=2**53)]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True)


class _Dropped(_Part):
    seeds: Count
    behind: str


class _Raced(_Part):
    """The scores of candidates on seeds, and which of them were dropped."""

    seeds: list[Count]
    scores: dict[str, list[FiniteFloat]] = Field(min_length=1)
    dropped: dict[str, _Dropped]

    @model_validator(mode="after")
    def _whole(self) -> _Raced:
        named = {*self.dropped, *(drop.behind for drop in self.dropped.values())}
        if not named <= self.scores.keys() or len(self.dropped) >= max(2, len(self.scores)):
            raise ValueError("a candidate that was dropped did not take part")
        for name, scores in self.scores.items():
            length = self.dropped[name].seeds if name in self.dropped else len(self.seeds)
            if not length <= len(scores) <= len(self.seeds) or (self.seeds and not scores):
                raise ValueError("a candidate has too few scores, or too many")
        return self


class _Generation(_Raced):
    new: list[dict[str, Any]]


class _Tuned(_Part):
    text: str
    settings: dict[str, Any]
    rounds: Count
    generations: list[_Generation] = Field(min_length=1)


class _Case(_Part):
    rounds: Count
    methods: dict[str, _Tuned] = Field(min_length=1)
    reported: _Raced | None


class _Journal(_Part):
    format: int
    study: dict[str, Any]
    name: str
    complete: bool
    reference: str
    measure: str
    error: Annotated[float, Field(gt=0, lt=1)]
    budget: Count
    cases: dict[str, _Case] = Field(min_length=1)

    @model_validator(mode="after")
    def _whole(self) -> _Journal:
        Measure.parse(self.measure)
        for case in self.cases.values():
            race = case.reported
            if self.reference not in case.methods:
                raise ValueError("the reference is not one of the methods")
            if race is not None and race.scores.keys() != case.methods.keys():
                raise ValueError("the reported race is not one of the methods")
            if race is not None and len(race.scores[self.reference]) != len(race.seeds):
                raise ValueError("the reference has too few scores")
        return self


def read_tuning(folder: str | Path) -> dict[str, Any]:
    """The content of ``tune.json`` of a folder; control characters are removed from names."""
    file = Path(folder) / "tune.json"
    remedy = f"delete it and run `fedalpha tune {folder}` again"
    try:
        found = json.loads(read_bytes(file, most=_MOST))
        if not isinstance(found, dict):
            raise ValueError("it is not a table")
    except FileNotFoundError:
        raise ValueError(f"{folder} has no tune.json; `fedalpha tune FILE` makes one") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"cannot read {file}: {shown(error)}; {remedy}") from None
    if found.get("format") != FORMAT:
        raise ValueError(f"{file} has format {shown(found.get('format'))}, and this version of fedalpha reads {FORMAT}")
    try:
        found = cleaned(found)
        _Journal.model_validate(found)
    except ValidationError as error:
        problem = error.errors()[0]
        where = shown(".".join(str(part) for part in problem["loc"]))
        raise ValueError(f"{file} is damaged: {where}: {shown(problem['msg'])}; {remedy}") from None
    except RecursionError:
        raise ValueError(f"{file} is damaged: it is nested too deeply; {remedy}") from None
    return dict(found)
