"""Mistakes in a study file, in the words of TOML."""

from __future__ import annotations

from pydantic import BaseModel, ValidationError

from fedalpha.study.entries import Calibration, Claim, Published, Zoom
from fedalpha.study.tuning.table import Tune
from fedalpha.text import nearest, quoted

_TABLES: dict[str, type[BaseModel]] = {
    "published": Published,
    "claims": Claim,
    "zoom": Zoom,
    "calibration": Calibration,
    "tune": Tune,
}


def explained(error: ValidationError) -> str:
    """The first error, with the names that the TOML file uses.

    An unknown key is reported before a missing one, because it is often the missing key, misspelt.
    """
    problem = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
    *inside, last = problem["loc"] or ("",)
    where = ".".join(str(part) for part in problem["loc"])
    match problem["type"]:
        case "extra_forbidden":
            return (
                f"{inside[0]}: unknown key {quoted(last)}; {nearest(str(last), _TABLES[str(inside[0])].model_fields)}"
            )
        case "missing" if isinstance(last, int):
            return f"{'.'.join(map(str, inside))}: {quoted(problem['input'])} is too short; give {last + 1} values"
        case "missing":
            return f"{where} is missing; give it"
        case "tuple_type" | "list_type":
            return f"{where}: {quoted(problem['input'])} is not a list; put it in [ ]"
        case "too_short":
            return f"{where} is empty; give at least one"
        case "too_long":
            return f"{where}: {quoted(problem['input'])} is too long; give {problem['ctx']['max_length']} values"
        case "dict_type" | "model_type":
            return f"{where}: {quoted(problem['input'])} is not a table; write {{ key = value }}"
    reason = problem["msg"].removeprefix("Value error, ").replace("Input should be", "it should be")
    return f"{where}: {reason}" if where else reason
