"""Settings from TOML files and from ``config.json``."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedalpha.runs.settings import Settings, settings
from fedalpha.runs.shorthands import check_once, layered
from fedalpha.store.files import CONFIG_BYTES
from fedalpha.text import shown
from fedalpha.trust import reading

DEEPEST = 32
"""No key of a TOML file has more parts, such as ``a.b.c``."""

_KEY = r"(?:[\w-]++|\"[^\"\n]*+\"|'[^'\n]*+')"
_NESTED = re.compile(rf"(?<![\w-]){_KEY}(?:[ \t]*+\.[ \t]*+{_KEY}){{{DEEPEST}}}")


def from_toml(text: str) -> dict[str, Any]:
    """What a TOML file holds. Raises ValueError, or RecursionError where lists are nested too deeply."""
    if _NESTED.search(text):  # tomllib takes memory that grows with the square of the length of a key
        raise ValueError(f"a key has more than {DEEPEST} parts")
    return tomllib.loads(text)


def read_settings(path: Path | None, options: Mapping[str, Any], *, trust: bool = False) -> Settings:
    """Settings from a TOML or JSON file (or none), overridden by ``options``.

    A plugin or a cluster that the file names needs the user's consent: ``trust``, or the same in ``options``.
    """
    if path is None:
        check_once(options)
        return settings(options)
    if path.is_dir():
        config = path / "config.json"
        there = f": {config}; `fedalpha resume {path}` resumes its run" if config.exists() else ""
        raise ValueError(f"{path} is a folder; give a file of settings{there}")
    text = read_text(path, "settings file")
    form, quotes = ("JSON", "") if path.suffix == ".json" else ("TOML", "; texts stand in quotes")
    try:
        values = json.loads(text) if form == "JSON" else from_toml(text)
        if not isinstance(values, dict):
            raise ValueError("it is not a table of settings")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid {form}: {shown(error)}{quotes}") from None
    for recorded in ("versions", "resumed_with"):
        values.pop(recorded, None)
    _check_here(values, path)
    values = _of_python(values, path)
    values = layered(values, options)
    for name in ("plugin", "ray_address", "engine", "clock", "availability"):  # the user's own word comes first
        if name in options:
            settings({name: options[name]})
    with reading(path, trust):
        return settings(values)


def _check_here(values: Mapping[str, Any], path: Path) -> None:
    """Raise if the configuration is that of `fedalpha.flower.FedAlpha`."""
    if values.get("federation") == "flower":
        raise ValueError(
            f"{path} is of a run of a live Flower federation: its clients are not here. Submit the app again "
            "(flwr run …) with the same settings and the same out=; it continues after the last finished round"
        )


def _of_python(values: dict[str, Any], path: Path) -> dict[str, Any]:
    """The settings in a ``config.json``, also in that of a run that was started in Python."""
    if "initial_model" not in values:
        return values
    if not isinstance(found := values.get("settings"), dict):
        raise ValueError(
            f"{path} is of a run that was started in Python with objects that have no text, such as a model or data of "
            "your own, or another seed for the federation; repeat or resume it by the same call of fedalpha.run(…)"
        )
    return {name: value for name, value in found.items() if value is not None}


def read_text(path: Path, what: str) -> str:
    """The text of a file that the user named."""
    try:
        with path.open("rb") as file:
            content = file.read(CONFIG_BYTES + 1)
        if len(content) > CONFIG_BYTES:
            raise ValueError(f"the {what} {path} has more than {CONFIG_BYTES:,} bytes; give a smaller one")
        return content.decode()
    except OSError as error:
        raise ValueError(f"cannot read the {what} {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"cannot read the {what} {path}: it is not text in UTF-8") from None
