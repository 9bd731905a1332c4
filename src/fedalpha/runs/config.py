"""``config.json`` of a run folder: how it is read, and whether two of them describe the same run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedalpha.store import LinkError
from fedalpha.store.files import CONFIG_BYTES, read_bytes
from fedalpha.text import shown

RESUMED = "resumed_with"
"""In ``config.json``: the versions and processors on which the run was resumed, where they differ from the last."""
_MOST = 50
"""How many differences are listed."""


def read_config(path: Path) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    """The configuration, the versions with which the run began, and those with which it was resumed."""
    try:
        stored = json.loads(read_bytes(path, most=CONFIG_BYTES))
        versions, resumed = stored.pop("versions", {}), stored.pop(RESUMED, [])
        if not isinstance(versions, dict) or not all(isinstance(m, dict) for m in resumed):
            raise ValueError
    except LinkError:
        raise
    except (ValueError, AttributeError, TypeError, RecursionError):
        raise ValueError(f"{path} is not a configuration; choose another folder or remove this one") from None
    return stored, versions, [*resumed]


def comparable(stored: dict[str, Any], ours: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two configurations in the same form.

    A run that was started in Python describes itself in more detail; if it can be written as settings, these stand
    under ``settings``. A plugin is compared by the hash of its content, not by its path.
    """
    detailed = all("initial_model" in config for config in (stored, ours))
    texts = [config.get("settings") for config in (stored, ours)]
    both = [{name: value for name, value in config.items() if name != "settings"} for config in (stored, ours)]
    if detailed:
        if _same(both[0]["initial_model"], both[1]["initial_model"]):
            both[0]["initial_model"] = both[1]["initial_model"]
        return both[0], both[1]
    for place, found in enumerate(texts):
        if isinstance(found, dict) and "initial_model" in both[place]:  # the other one is of the command line
            both[place], both[1 - place] = found, {name: both[1 - place].get(name) for name in found}
    plugins = [{"plugin": str(one["plugin"]).rpartition("@")[2]} if one.get("plugin") else {} for one in both]
    return {**both[0], **plugins[0]}, {**both[1], **plugins[1]}


def is_longer(stored: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    """Whether ours is the stored run with more rounds."""
    before, now = (config.get("rounds") for config in (stored, ours))
    if not isinstance(before, int) or not isinstance(now, int):
        return False
    return before < now and not differences({**stored, "rounds": now}, ours)


_OTHER_START = (
    "the initial parameters of the model differ (those of an nn.Module are its own: pass a function that returns it, "
    "and the run's seed draws them, or call torch.manual_seed before you make it)"
)


def differences(stored: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    """What differs, key by key.

    >>> differences({"seed": 0, "lr": 0.1}, {"seed": 1, "lr": 0.1})
    ['seed is 0 there and 1 here']
    """
    keys = [key for key in dict.fromkeys([*stored, *ours]) if stored.get(key) != ours.get(key)]
    found = [
        _OTHER_START
        if key == "initial_model" and key in stored and key in ours
        else f"{shown(key)} is {shown(stored.get(key, 'not set'))} there and {shown(ours.get(key, 'not set'))} here"
        for key in keys[:_MOST]
    ]
    return found + [f"and {len(keys) - _MOST} more"] * (len(keys) > _MOST)


def _same(stored: object, ours: object) -> bool:
    from fedalpha.models import same_fingerprint

    return same_fingerprint(stored, ours)
