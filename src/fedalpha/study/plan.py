"""A study: strategies × seeds × settings, read from a TOML file and laid out as cells.

A file in full::

    name = "lr-sensitivity"
    title = "How much does each strategy depend on the learning rate?"
    strategies = ["FedAvg", "FedSoftWorse(T=0.2)"]
    seeds = "0-9"                     # or a count, or a list
    reference = "FedAvg"              # what the others are compared with; the first one by default
    measures = ["R_60", "accuracy@30"]
    stop_at = "accuracy >= 0.8"       # a cell ends once this holds
    protocol = "calibrated"

    [settings]                        # anything that `fedalpha run` takes
    dataset = "digits"
    rounds = 30

    [grid]                            # every combination of these
    lr = [0.05, 0.1]
    epochs = [1, 5]

    [[cases]]                         # or named settings, one by one
    name = "many clients"
    clients = 100

    [[methods]]                       # what is more than a strategy, compared with the strategies
    name = "SCAFFOLD"
    update = "scaffold"

With a ``[tune]`` table the settings of every strategy are searched first (`fedalpha.study.tuning`).
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from fedalpha.analysis.columns import PerClient
from fedalpha.analysis.conditions import condition
from fedalpha.analysis.measures import Measure
from fedalpha.plugins import load_plugin
from fedalpha.runs.settings import Settings, settings
from fedalpha.runs.shorthands import layered
from fedalpha.strategies import STRATEGIES
from fedalpha.study.cells import Cell
from fedalpha.study.entries import Calibration, Claim, Published, Zoom
from fedalpha.study.expected import why_not
from fedalpha.study.mistakes import explained
from fedalpha.study.protocols import RULES, protocol, restyled
from fedalpha.study.seeds import MOST_CELLS, parse_seeds
from fedalpha.study.tuning.spaces import Space
from fedalpha.study.tuning.table import Tune, check_keys
from fedalpha.text import cleaned, nearest, quoted, shown
from fedalpha.trust import UntrustedError

_OWN = {"strategy": "strategies", "seed": "seeds"}
"""Settings of a run for which a study has its own keys, and these keys."""
_SINGLE = {
    "stop": "stop_at says when a cell's question is answered",
    "keep": "a study keeps no models",
    "shadow": "a study runs every strategy: add it to strategies",
    "log": "a study stores the rows of every cell; a logger watches a single run",
}
"""Settings of a single run that a study does not take, and why."""
_BESIDES = ("protocol", "stop_at")
"""The keys of a case besides the settings of a run."""
LINES = frozenset({"note", "title", "text"})
"""Texts of several lines. All other texts are names, from which control characters are removed."""
STORED = {"stored": True}
"""Context of a stored study: its strategies need not be registered, since their plugin may be missing."""


class Study(BaseModel):
    """A study. When strategies, seeds or cases are added later, only the missing cells are run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    title: str = ""
    note: str = ""
    strategies: tuple[str, ...] = Field(min_length=1)
    methods: tuple[dict[str, Any], ...] = ()
    seeds: tuple[int, ...] = Field(min_length=1)
    reference: str | None = None
    measures: tuple[str, ...] = Field(
        ("accuracy", "loss", "R_60", "auc", "worst_client_accuracy", "client_accuracy_spread"), min_length=1
    )
    stop_at: str | None = None
    protocol: str | None = None
    settings: dict[str, Any] = {}
    grid: dict[str, list[Any]] = {}
    cases: tuple[dict[str, Any], ...] = ()
    protocols: dict[str, dict[str, Any]] = {}
    quick: dict[str, Any] = {}
    table: dict[str, Any] = {}
    calibration: Calibration | None = None
    published: tuple[Published, ...] = ()
    claims: tuple[Claim, ...] = ()
    zoom: tuple[Zoom, ...] = ()
    per_client: PerClient = "drawn"
    tune: Tune | None = None

    @model_validator(mode="before")
    @classmethod
    def _plugin(cls, values: Any, info: ValidationInfo) -> Any:
        """Loaded first, because the texts of this file may name what it registers."""
        if info.context == STORED:
            return values
        given = values.get("settings") if isinstance(values, dict) else None
        if isinstance(given, dict) and isinstance(given.get("plugin"), str):
            load_plugin(given["plugin"])
        return values

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", value):
            raise ValueError(
                f"{quoted(value)} cannot be the name of a folder; use letters, digits, '.', '_' and '-', no sign first"
            )
        return value

    @field_validator("seeds", mode="before")
    @classmethod
    def _seeds(cls, value: Any) -> Any:
        return parse_seeds(str(value)) if isinstance(value, str | int | float) else value

    @field_validator("strategies")
    @classmethod
    def _strategies(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        _once(value)
        rules: dict[str, str] = {}
        for text in value if info.context != STORED else ():
            if Space.of({"strategy": text}, accepts).dimensions:
                continue  # checked with the table that says how it is searched
            twin = rules.setdefault(str(STRATEGIES.parse(text)), text)
            if twin != text:
                raise ValueError(f"{text} and {twin} are the same strategy; keep one of them")
        return value

    @field_validator("methods")
    @classmethod
    def _methods(cls, value: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
        for one in value:
            if not isinstance(one.get("name"), str) or not one["name"]:
                raise ValueError('a method has no name; write name = "…"')
            check_keys({k: v for k, v in one.items() if k != "name"}, f"method {one['name']}")
        return value

    @field_validator("measures")
    @classmethod
    def _measures(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            Measure.parse(text)
        return value

    @model_validator(mode="after")
    def _coherent(self, info: ValidationInfo) -> Study:
        _once(self.seeds, "seeds: ")
        _once(self.names, "methods: ")
        if self.tune is None and (info.context or {}) != STORED:
            for name, own in self.entries.items():
                if Space.of(own, accepts).dimensions:
                    raise ValueError(f"{name} is searched; add a [tune] table with budget = …, or give a value")
        if self.reference is not None and self.reference not in self.names:
            raise ValueError(
                f"reference = {self.reference!r} is not one of the strategies; write it exactly as in the list"
            )
        self._check_names()
        for name, given in self.protocols.items():
            _check_settings(f"protocols.{protocol(name).name}", _without(given, *RULES), besides=())
        for where, given in (("settings", self.settings), ("grid", self.grid), *(("cases", c) for c in self.cases)):
            _check_settings(where, given)
        for key, values in self.grid.items():
            if not values:
                raise ValueError(f"grid: {key} has no values; give at least one")
        return self

    def _check_names(self) -> None:
        """Raise if a claim or a published figure names a strategy or a case that the study does not have."""
        named = [("claims", claim.measure, (claim.better, *claim.than)) for claim in self.claims]
        for where, measure, strategies in named + [("published", p.measure, (p.strategy,)) for p in self.published]:
            Measure.parse(measure)
            for strategy in strategies:
                if strategy not in self.names:
                    raise ValueError(
                        f"{where}: {strategy!r} is not one of the strategies; write it exactly as in the list"
                    )
        cases = self.variations() if any(p.case is not None for p in self.published) else {}
        for figure in self.published:
            if figure.case is not None and not any(figure.of(case) for case in cases):
                raise ValueError(f"published: unknown case {quoted(figure.case)}; {nearest(figure.case, cases)}")
        for claim in self.claims:
            if claim.better in claim.than:
                raise ValueError(f"claims: {claim.better!r} is compared with itself; leave it out of 'than'")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of what is compared: the strategies, then the methods."""
        return (*self.strategies, *(str(method["name"]) for method in self.methods))

    @property
    def entries(self) -> dict[str, dict[str, Any]]:
        """By name, the settings of a strategy or a method.

        >>> Study(name="x", strategies=["FedAvg"], seeds=1, methods=[{"name": "mine", "lr": 0.1}]).entries
        {'FedAvg': {'strategy': 'FedAvg'}, 'mine': {'strategy': 'FedAvg', 'lr': 0.1}}
        """
        own = {
            str(m["name"]): {"strategy": "FedAvg", **{k: v for k, v in m.items() if k != "name"}} for m in self.methods
        }
        return {text: {"strategy": text} for text in self.strategies} | own

    @property
    def against(self) -> str:
        """The strategy with which the others are compared."""
        return self.reference or self.strategies[0]

    def variations(self) -> dict[str, dict[str, Any]]:
        """The cases by label: every combination of the grid, within each named case.

        >>> study = Study(name="x", strategies=["FedAvg"], seeds=1, grid={"lr": [0.1, 0.2]})
        >>> list(study.variations())
        ['lr=0.1', 'lr=0.2']
        """
        self._check_size(1)
        named = [(str(c.get("name", "")), {k: v for k, v in c.items() if k != "name"}) for c in self.cases] or [
            ("", {})
        ]
        found: dict[str, dict[str, Any]] = {}
        for (name, given), values in itertools.product(named, itertools.product(*self.grid.values())):
            point = dict(zip(self.grid, values, strict=True))
            label = ", ".join(filter(None, (name or _label(given), _label(point))))
            if label in found:
                raise ValueError(f"cases: two have the name {quoted(label)}; give each its own name")
            found[label] = {**given, **point}
        return found

    def _check_size(self, cells: int) -> None:
        """Raise if all cases, of this number of cells each, are too many for a study, before they are created."""
        count = math.prod(len(values) for values in self.grid.values()) * max(1, len(self.cases)) * cells
        if count > MOST_CELLS:
            raise ValueError(f"the study has {shown(f'{count:,}')} cells; give at most {MOST_CELLS:,}")

    def cells(self) -> list[Cell]:
        """Every cell, in order: case, seed, strategy."""
        if self.tune is not None:
            raise ValueError("a study with a [tune] table has no cells before it has run; use `fedalpha tune`")
        self._check_size(len(self.seeds) * len(self.names))
        found = []
        for case, variation in self.variations().items():
            try:
                found += self.layout(case, variation)
            except UntrustedError:
                raise
            except ValueError as error:
                raise ValueError(f"case {quoted(case)}: {error}" if case else str(error)) from None
        return found

    def untuned(self) -> Study:
        """The same settings without the ``[tune]`` table, with one strategy; the study itself if it has none."""
        if self.tune is None:
            return self
        return self.model_copy(update={"tune": None, "strategies": ("FedAvg",), "methods": (), "seeds": self.seeds[:1]})

    def ask(self) -> None:
        """Parse all values that a search may use, so that the user is asked before the search begins.

        During the search it is no longer known that the texts of points came with a file.
        """
        if self.tune is None:
            return
        for own in self.entries.values():
            try:
                space = Space.of({**self.tune.space, **own}, accepts)
            except UntrustedError:
                raise
            except ValueError:
                continue  # the search says what is wrong, and does not begin
            for point in space.corners():
                for key, text in space.at(point).items():
                    accepts(key, text)

    def layout(self, case: str, variation: Mapping[str, Any]) -> list[Cell]:
        """The cells of one case."""
        given = {"protocol": self.protocol, "stop_at": self.stop_at, **self.settings, **variation}
        name, stop = given["protocol"], given["stop_at"]
        chosen = protocol(name) if name else None
        rules: dict[str, Any] = {}
        layers: list[Mapping[str, Any]] = [self.settings, variation]
        if chosen is not None:
            own = dict(self.protocols.get(chosen.name, {}))
            rules = {**chosen.rules, **{k: own.pop(k) for k in RULES if k in own}}
            layers = [chosen.settings, own, *layers]
        own = {name: {**one, "strategy": str(restyled(one["strategy"], rules))} for name, one in self.entries.items()}
        texts = [one["strategy"] for one in own.values()]
        full = {name: _without(layered(*layers, one), "protocol", "stop_at") for name, one in own.items()}
        # The same share for all, so that they are paired.
        share = max(settings(one).validation_for(texts) for one in full.values())
        ends = None if stop is None else condition(stop, "stop_at")
        return [
            Cell(case, name, seed, settings({**one, "validation": share, "seed": seed}).resolved(), ends)
            for seed, (name, one) in itertools.product(self.seeds, full.items())
        ]

    def unanswered(self) -> list[str]:
        """The measures for which no value is expected, with the reasons; shown before the study is run."""
        measures = [Measure.parse(text) for text in dict.fromkeys([*self.measures, *(c.measure for c in self.claims)])]
        found = []
        for cell in {cell.case: cell for cell in self.cells()}.values():
            where = f" ({cell.case})" if cell.case else ""
            found += [f"{m}{where}: {why}" for m in measures if (why := why_not(m, cell))]
        return found

    def with_changes(self, **changes: Any) -> Study:
        """A copy with other values, checked again. ``rounds`` applies to every case; None changes nothing."""
        values = self.model_dump(exclude_unset=True)
        for key, value in changes.items():
            if key == "rounds" and value is not None:
                values["settings"] = {**self.settings, "rounds": value}
                values["cases"] = [{k: v for k, v in case.items() if k != "rounds"} for case in self.cases]
                values["grid"] = {k: v for k, v in self.grid.items() if k != "rounds"}
            elif value is not None:
                values[key] = value
        return study(values)


def study(values: Mapping[str, Any], context: Mapping[str, bool] | None = None) -> Study:
    """A checked study; an error names the mistake and the nearest valid word. ``context`` is `STORED`, or nothing."""
    for key in values:
        if key not in Study.model_fields:
            other = key in Settings.model_fields and key not in _OWN
            hint = "put it under [settings]" if other else nearest(str(key), Study.model_fields)
            raise ValueError(f"unknown key {quoted(key)} in a study; {hint}")
    try:
        return Study.model_validate(cleaned(dict(values), LINES), context=context)
    except ValidationError as error:
        for problem in error.errors():
            if isinstance(cause := problem.get("ctx", {}).get("error"), UntrustedError):
                raise cause from None
        raise ValueError(explained(error)) from None


def _without(values: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in keys}


def _label(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items())


def accepts(key: str, text: str) -> bool:
    """Whether a setting's text is valid as it stands."""
    try:
        settings({key: text}).resolved()
    except UntrustedError:
        raise
    except ValueError:
        return False
    return True


def _once(values: tuple[Any, ...], what: str = "") -> None:
    again = sorted(str(value) for value, count in Counter(values).items() if count > 1)
    if again:
        raise ValueError(f"{what}{shown(', '.join(again))} is given twice; keep one of them")


def _check_settings(where: str, given: Mapping[str, Any], besides: tuple[str, ...] = _BESIDES) -> None:
    """Raise if a table of the file has a setting that a study does not take."""
    known = {*Settings.model_fields, *besides} - {*_OWN, *_SINGLE} | ({"name"} if where == "cases" else set())
    for key in given:
        if key in _SINGLE:
            raise ValueError(f"{where}: {key} belongs to a single run; {_SINGLE[key]}")
        if key not in known:
            hint = f"list {_OWN[key]} at the top of the file" if key in _OWN else nearest(key, sorted(known))
            raise ValueError(f"{where}: unknown setting {quoted(key)}; {hint}")
