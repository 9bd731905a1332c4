"""The next points of a search, from Optuna's samplers, several at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedalpha.rng import integer
from fedalpha.study.tuning.spaces import Choice, Point, Range, Space
from fedalpha.text import nearest

SAMPLERS = ("tpe", "random")
"""tpe: tree-structured Parzen estimators, which learn from earlier values; random: they do not matter."""


def check_sampler(name: str) -> str:
    if name not in SAMPLERS:
        raise ValueError(f"unknown sampler {name!r}; {nearest(name, SAMPLERS)}")
    return name


def propose(
    space: Space, count: int, told: Sequence[tuple[Point, float]], sampler: str, seed: int, generation: int
) -> list[Point]:
    """``count`` new points. ``told`` are the earlier points with their values (higher is better).

    The points depend only on the arguments, so a resumed study proposes the same points.
    """
    optuna = _optuna()
    search = optuna.create_study(direction="maximize", sampler=_sampler(optuna, sampler, seed, generation))
    kinds = {name: _distribution(optuna, d) for name, d in space.dimensions.items()}
    for point, value in told:
        search.add_trial(optuna.trial.create_trial(params=dict(point), distributions=kinds, value=value))
    seen = [point for point, _ in told]
    found: list[Point] = []
    for _ in range(50 * count):  # in a space with few points, the same one is proposed again
        if len(found) == count:
            break
        trial = search.ask(fixed_distributions=kinds)
        point = {name: _rounded(d, trial.params[name]) for name, d in space.dimensions.items()}
        if point not in seen and point not in found:
            found.append(point)
    return found


def _rounded(dimension: Range | Choice, value: Any) -> Any:
    return dimension.rounded(value) if isinstance(dimension, Range) else value


def _distribution(optuna: Any, dimension: Range | Choice) -> Any:
    kinds = optuna.distributions
    if isinstance(dimension, Choice):
        return kinds.CategoricalDistribution(dimension.values)
    if dimension.whole:
        return kinds.IntDistribution(int(dimension.low), int(dimension.high))
    return kinds.FloatDistribution(dimension.low, dimension.high, log=dimension.log)


def _sampler(optuna: Any, name: str, seed: int, generation: int) -> Any:
    number = integer(seed, "tune", generation) % 2**32
    if name == "tpe":
        # constant_liar: the points of one generation keep away from each other, though none has a value yet.
        return optuna.samplers.TPESampler(seed=number, n_startup_trials=8, constant_liar=True)
    return optuna.samplers.RandomSampler(seed=number)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise RuntimeError(
            'a search in a range (log, linear, whole) needs Optuna; install it with: pip install "fedalpha[tune]", '
            "or list the values: choice(0.1, 0.2, 0.5)"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
