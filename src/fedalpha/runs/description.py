"""The arguments of a run as JSON: what ``config.json`` holds of a run that was started in Python."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from fedalpha.apply import APPLIES
from fedalpha.combine import COMBINES
from fedalpha.defence.faults import FAULTS
from fedalpha.engine import ENGINES, Place
from fedalpha.models import Model, fingerprint
from fedalpha.runs.setup import Setup
from fedalpha.select import SELECTIONS
from fedalpha.strategies import STRATEGIES
from fedalpha.task import TASKS
from fedalpha.text import Registry
from fedalpha.update import UPDATES
from fedalpha.upload import UPLOADS


def describe(setup: Setup, place: Place | None = None) -> dict[str, Any]:
    """The arguments as JSON, to tell whether a folder holds the same run.

    With the engine they also say how the run is repeated from the command line, if all of it has a text.
    """
    plugs = {f.name: str(getattr(setup.algorithm, f.name)) for f in dataclasses.fields(setup.algorithm)}
    for name in ("secure", "upload"):
        if getattr(setup.algorithm, name) is None:
            del plugs[name]
    plugs |= {"liars": str(setup.evaluate.liars), "fault": str(setup.fault)}
    broadcast = setup.start().broadcast
    settings = None if place is None else _settings(setup, place)
    with torch.random.fork_rng(devices=[]):
        module = broadcast.architecture.build()
    return {
        "federation": {"clients": setup.federation.clients, **setup.federation.description},
        "data": setup.federation.digest(),
        "task": setup.federation.task.describe(),
        "model": str(module),
        "initial_model": fingerprint(broadcast.parameters),
        "strategy": plugs.pop("weigh"),
        **plugs,
        "rounds": setup.rounds,
        "seed": setup.seed,
        "signal": setup.evaluate.signal,
        "evaluate_every": setup.evaluate.every,
        **setup.pace.settings,
        **setup.watch.settings,
        **({} if place is None else {"vectorise": getattr(place, "vectorise", None)}),
        **({} if settings is None else {"settings": settings}),
    }


def _settings(setup: Setup, place: Place) -> dict[str, Any] | None:
    """The settings of the command line that describe the same run; None if something in it has no text."""
    data, algorithm = setup.federation, setup.algorithm
    task = next((name for name, known in TASKS.items() if known == data.task), None)
    rules: dict[str, tuple[Any, Registry[Any]]] = {
        "select": (algorithm.select, SELECTIONS),
        "update": (algorithm.update, UPDATES),
        "strategy": (algorithm.weigh, STRATEGIES),
        "combine": (algorithm.combine, COMBINES),
        "apply": (algorithm.apply, APPLIES),
        "fault": (setup.fault, FAULTS),
        "engine": (dataclasses.replace(place, workers=None), ENGINES),
        **({} if algorithm.upload is None else {"upload": (algorithm.upload, UPLOADS)}),
    }
    named = isinstance(setup.model, str | Model) and all(
        _has_text(*rule) for rule in [*rules.values(), *setup.pace.rules.values()]
    )
    if data.settings is None or data.settings["seed"] != setup.seed or task is None or not named:
        return None
    return {
        **data.settings,
        "model": str(setup.model),
        **{name: None if rule is None else str(rule) for name, (rule, _) in rules.items()},
        **setup.pace.settings,
        "rounds": setup.rounds,
        "task": task,
        "quorum": algorithm.admission.quorum,
        "deadline": algorithm.admission.deadline,
        "reevaluate": algorithm.reevaluate,
        **({} if algorithm.secure is None else {"secure": str(algorithm.secure)}),
        "liars": setup.evaluate.liars,
        "signal": setup.evaluate.signal,
        "evaluate_every": setup.evaluate.every,
        **dict.fromkeys(("stop", "keep", "shadow")),
        **setup.watch.settings,
    }


def _has_text(rule: Any, registry: Registry[Any]) -> bool:
    """Whether a rule can be made from its text: not if it is of a class that is not registered."""
    try:
        return rule is None or registry.parse(str(rule)) == rule
    except ValueError:
        return False
