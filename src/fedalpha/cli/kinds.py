"""The kinds of registered objects, for lists and for the completion of options."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

KINDS = {
    "strategies": ("fedalpha.strategies", "STRATEGIES", "--strategy"),
    "selections": ("fedalpha.select", "SELECTIONS", "--select"),
    "updates": ("fedalpha.update", "UPDATES", "--update"),
    "combines": ("fedalpha.combine", "COMBINES", "--combine"),
    "applies": ("fedalpha.apply", "APPLIES", "--apply"),
    "partitions": ("fedalpha.data", "PARTITIONS", "--partition"),
    "datasets": ("fedalpha.data", "DATASETS", "--dataset"),
    "parts": ("fedalpha.data.parts", "PARTS", "--part"),
    "transforms": ("fedalpha.data.transforms", "TRANSFORMS", "--transform"),
    "schedules": ("fedalpha.update.schedules", "SCHEDULES", "--lr"),
    "models": ("fedalpha.models", "MODELS", "--model"),
    "engines": ("fedalpha.engine", "ENGINES", "--engine"),
    "measures": ("fedalpha.analysis.measures", "MEASURES", "measures ="),
    "columns": ("fedalpha.analysis.columns", "COLUMNS", "row"),
    "loggers": ("fedalpha.runs.loggers", "LOGGERS", "--log"),
    "secure sums": ("fedalpha.secure.forms", "SECURES", "--secure"),
    "uploads": ("fedalpha.upload", "UPLOADS", "--upload"),
    "clocks": ("fedalpha.clock", "CLOCKS", "--clock"),
    "availabilities": ("fedalpha.clock", "AVAILABILITIES", "--availability"),
    "servers": ("fedalpha.clock", "SERVERS", "--server"),
    "discounts": ("fedalpha.strategies.discounts", "DISCOUNTS", "stale(…)"),
    "faults": ("fedalpha.defence.faults", "FAULTS", "--fault"),
    "conditions": ("fedalpha.analysis.conditions", "CONDITIONS", "--stop"),
    "problems": ("fedalpha.theory.problems", "PROBLEMS", "--problem"),
}
"""Where the registry of a kind is, and where its texts are used."""


def completing(option: str) -> Callable[[str], list[str]] | None:
    """What completes the value of an option that takes the text of a registered object; None for other options.

    >>> completing("--strategy")("FedSoftB")
    ['FedSoftBetter', 'FedSoftBetterAvg', 'FedSoftBetterAvgSoftWorse']
    """
    found = next(((module, registry) for module, registry, use in KINDS.values() if use == option), None)
    if found is None:
        return None
    module, registry = found

    def names(incomplete: str) -> list[str]:
        known = [entry.name for entry in getattr(import_module(module), registry)]
        return [name for name in known if name.startswith(incomplete)]

    return names


def kinds(incomplete: str) -> list[str]:
    """The kinds that begin in this way.

    >>> kinds("mo")
    ['models']
    """
    return [kind for kind in KINDS if kind.startswith(incomplete)]
