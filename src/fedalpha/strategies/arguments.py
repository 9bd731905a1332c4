"""Checks of arguments, with errors that say what to give instead."""

from __future__ import annotations

import math
from collections.abc import Sequence

PRIORS = ("size", "uniform")


def choice(owner: str, argument: str, value: object, options: tuple[str, ...]) -> None:
    """Raise ValueError if ``value`` is not one of ``options``."""
    if value not in options:
        raise ValueError(f"{owner}: {argument} = {value!r} is not one of {', '.join(options)}")


def positive(owner: str, argument: str, value: object, zero: bool = False) -> float:
    """``value`` as a float; raises ValueError unless it is a finite number > 0 (≥ 0 with ``zero``)."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not (0 if zero else 1e-300) <= value < math.inf:
        raise ValueError(f"{owner}: {argument} = {value!r}; give a number {'≥' if zero else '>'} 0")
    return float(value)


def number(owner: str, name: str, value: object, *, most: float = math.inf, below: float = math.inf) -> float:
    """``value`` as a float; raises ValueError unless it is a finite number in (0, most] and (0, below)."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not (0 < value <= most and value < below):
        span = f" and at most {most:g}" if most < math.inf else f" and below {below:g}" if below < math.inf else ""
        raise ValueError(f"{owner}: {name} = {value!r}; give a number above 0{span}")
    return float(value)


def in_mixture(owner: str, **values: object) -> None:
    """Raise ValueError unless all shares of a mixture are numbers in [0, 1]."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise ValueError(f"{owner}: {name} = {value!r}; give a share in [0, 1]")


def are_numbers(values: Sequence[object]) -> bool:
    """Whether all values are numbers; booleans do not count as numbers."""
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
