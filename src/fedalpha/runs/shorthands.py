"""Settings that stand for one argument of a rule: ``lr = 0.1`` is short for ``update = "sgd(lr=0.1)"``.

`SHORTHANDS` is the one list of them. They are replaced by the argument before anything is built, so ``config.json`` of
a run holds the rules in full.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from fedalpha.text import Registry, Spelled

Rule = TypeVar("Rule", bound=Spelled)

SHORTHANDS: Mapping[str, Mapping[str, str]] = {
    "select": {"ratio": "C"},
    "update": {name: name for name in ("lr", "batch", "epochs", "steps", "momentum", "weight_decay")},
    "engine": {"device": "device", "ray_address": "address"},
}
"""For each setting that is a rule: the settings that stand for an argument of it, and that argument."""
_EXCLUDE = {"C": "count", "epochs": "steps"}
"""Arguments that cannot be given beside another one."""


def completed(setting: str, rule: Rule, values: Mapping[str, Any]) -> Rule:
    """The rule of a setting with the arguments that the shorthands among ``values`` give; None gives nothing.

    >>> from fedalpha.select import uniform
    >>> completed("select", uniform(), {"ratio": 0.1})
    uniform(C=0.1)
    """
    known = {field.name for field in dataclasses.fields(rule)}  # type: ignore[arg-type]
    given: dict[str, Any] = {}
    for name, argument in SHORTHANDS[setting].items():
        if (value := values.get(name)) is None:
            continue
        if argument not in known:
            raise ValueError(f"{rule} has no {argument}; leave {name} = {value} out")
        if (other := _EXCLUDE.get(argument)) in known and getattr(rule, str(other)) is not None:
            raise ValueError(f"{name} = {value} and {rule} exclude each other; give {argument} or {other}")
        given[argument] = value
    return dataclasses.replace(rule, **given)  # type: ignore[type-var]


def check_once(values: Mapping[str, Any]) -> None:
    """Raise ValueError if an argument of a rule is given twice: in the rule's text and by a shorthand."""
    for rule, short in SHORTHANDS.items():
        given = _arguments(rule, values.get(rule))
        if again := [name for name, argument in short.items() if values.get(name) is not None and argument in given]:
            raise ValueError(
                f"{again[0]} is given twice: {values[again[0]]!r}, and in {rule} = {values[rule]!r}; keep one"
            )


def layered(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """One table of settings from several; later ones win. A rule with an argument replaces the shorthand for it.

    Raises ValueError if one table gives an argument twice.
    """
    found: dict[str, Any] = {}
    for layer in layers:
        check_once(layer)
        found = {name: value for name, value in found.items() if not _replaced(name, layer)} | dict(layer)
    return found


def _replaced(name: str, options: Mapping[str, Any]) -> bool:
    """Whether an option names a rule with the argument that this shorthand stands for."""
    return any(name in s and s[name] in _arguments(rule, options.get(rule)) for rule, s in SHORTHANDS.items())


def _arguments(rule: str, text: Any) -> frozenset[str]:
    """The arguments that are given in the text of a rule."""
    from fedalpha.engine import ENGINES
    from fedalpha.select import SELECTIONS
    from fedalpha.update import UPDATES

    registries: dict[str, Registry[Any]] = {"update": UPDATES, "select": SELECTIONS, "engine": ENGINES}
    return registries[rule].given(text) if isinstance(text, str) else frozenset()
