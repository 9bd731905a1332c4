"""Several strategies on the same seeds: the loop behind `fedalpha.compare` and ``fedalpha compare``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from fedalpha.analysis.compared import Comparison, run_name
from fedalpha.analysis.history import History
from fedalpha.data.federations import Federation
from fedalpha.runs.callbacks import Callback
from fedalpha.runs.experiment import Experiment, plan, run
from fedalpha.runs.loggers import LOGGERS
from fedalpha.runs.loggers.progress import ShowProgress
from fedalpha.store import inside
from fedalpha.store.kinds import RUN, STUDY, check_kind
from fedalpha.strategies import STRATEGIES, Strategy
from fedalpha.text import nearest

Watchers = Sequence[str | Callback]


def compare(
    federation: Federation | Callable[[int], Federation],
    strategies: Iterable[str | Strategy],
    *,
    seeds: int | Iterable[int] = 3,
    target: float = 0.6,
    callbacks: Watchers = (),
    progress: bool = False,
    out: str | Path | None = None,
    **options: Any,
) -> Comparison:
    """Run every strategy on every seed, paired, and return the comparison.

    ``federation`` is one federation for all seeds, or a function of the seed that returns one, so that the partition
    changes with the seed as it does on the command line. The first strategy is the reference. ``seeds`` is how many, or
    which. ``options`` are the other arguments of `fedalpha.run`: model, rounds, update, engine … ``callbacks`` watch
    every run; a logger that writes to a file needs {run} in its text, as in "csv('logs/{run}.csv')".
    ``progress=True`` shows how far all runs are. ``out`` is a folder with a folder per run, the tables and the curves:
    the same call again resumes there.

    Ctrl-C ends the comparison early; it then holds the runs that are finished, and says so.

    >>> from fedalpha import federation
    >>> digits = federation("digits", clients=4)
    >>> compare(digits, ["FedAvg", "FedWorse"], seeds=2, rounds=1, model="softmax", engine="embedded(workers=1)")
    Comparison(2 strategies, 2 seeds: FedAvg, FedWorse)
    """
    names, numbers = _named(strategies), _numbers(seeds)
    callbacks = [callbacks] if isinstance(callbacks, str | Callback) else callbacks
    if not 0 <= target <= 1:
        raise ValueError(f"target = {target!r}; give an accuracy between 0 and 1 (0.6, not 60)")
    engine = options.pop("engine", "embedded")
    given = _arguments(options)

    def planned(strategy: str, seed: int, data: Federation) -> Experiment:
        return plan(data, **{**given, "strategy": names[strategy], "seed": seed})

    of_seed = _by_seed(federation)
    for strategy in names:  # mistakes are reported before anything is trained
        planned(strategy, numbers[0], of_seed(numbers[0]))
    check_folders(out, ((s, n) for n in numbers for s in names))
    count = len(names) * len(numbers)
    display = ShowProgress(total=count * given["rounds"]) if progress else None
    watchers = {(s, n): run_loggers(callbacks, run_name(s, n), count > 1) for n in numbers for s in names}

    def play(strategy: str, seed: int) -> History:
        shown: list[Callback] = []
        if display is not None:
            display.label = f"{strategy}, seed {seed}"
            shown = [display]
        folder = None if out is None else Path(out) / run_name(strategy, seed)
        experiment = planned(strategy, seed, of_seed(seed))
        history = experiment.run(engine, [*shown, *watchers[strategy, seed]], folder)
        if display is not None:
            display.after_run(given["rounds"])
        return history

    try:
        runs, interrupted = play_all(list(names), numbers, play)
    finally:
        if display is not None:
            display.close()
    if not runs:
        raise KeyboardInterrupt
    found = Comparison(runs, target, interrupted=interrupted)
    if out is not None:
        found.write_tables(Path(out), numbers)
    return found


def play_all(
    strategies: Sequence[str], seeds: Sequence[int], play: Callable[[str, int], History]
) -> tuple[dict[str, dict[int, History]], bool]:
    """The finished runs by strategy and seed, seed by seed, and whether Ctrl-C ended the loop."""
    runs: dict[str, dict[int, History]] = {strategy: {} for strategy in strategies}
    interrupted = False
    for strategy, seed in ((s, n) for n in seeds for s in strategies):
        history = play(strategy, seed)
        if history.interrupted:
            interrupted = True
            break
        runs[strategy][seed] = history
    return {strategy: found for strategy, found in runs.items() if found}, interrupted


def check_folders(out: str | Path | None, runs: Iterable[tuple[str, int]]) -> None:
    """Raise if ``out`` holds something else, or if the folders of these runs cannot be in it or are links there."""
    if out is None or not Path(out).exists():
        return
    if not Path(out).is_dir():
        raise ValueError(f"{out} is a file; give a folder")
    check_kind(Path(out), "a comparison", RUN, STUDY)
    for strategy, seed in runs:
        inside.names(Path(out) / run_name(strategy, seed), Path(out))


def run_loggers(callbacks: Watchers, name: str, several: bool) -> list[Callback]:
    """The callbacks of one run. With several runs each text must contain {run}, so that each run has its own file."""
    texts = [text for text in callbacks if isinstance(text, str)]
    for text in texts:
        if several and "{run}" not in text:
            raise ValueError(f"log = {text!r} is the same for every run; write {{run}} in it, as in csv('{{run}}.csv')")
    objects = [callback for callback in callbacks if not isinstance(callback, str)]
    return [*objects, *(LOGGERS.parse(text.replace("{run}", name)) for text in texts)]


def _arguments(options: dict[str, Any]) -> dict[str, Any]:
    """All arguments of `plan`, with the defaults of `run`."""
    known = {
        name: p.default
        for name, p in inspect.signature(run).parameters.items()
        if p.default is not p.empty and name not in ("engine", "callbacks", "progress", "out")
    }
    for name in options:
        if name in ("strategy", "seed"):
            raise TypeError(f"compare has no argument {name!r}; give {'strategies' if name == 'strategy' else 'seeds'}")
        if name not in known:
            raise TypeError(f"compare has no argument {name!r}; {nearest(name, known)}")
    return {**known, **options}


def _by_seed(federation: Federation | Callable[[int], Federation]) -> Callable[[int], Federation]:
    if isinstance(federation, Federation):
        return lambda seed: federation
    if not callable(federation):
        raise TypeError(
            f"expected a federation or a function of the seed, got {type(federation).__name__}; "
            "build one with fedalpha.federation(…)"
        )
    try:
        inspect.signature(federation).bind(0)
    except TypeError as error:
        raise TypeError(f"federation is a function, which is called with a seed: {error}") from None
    except ValueError:  # a built-in without a signature
        pass
    built: dict[int, Federation] = {}

    def of(seed: int) -> Federation:
        if seed not in built:
            built.clear()  # seeds come one after the other: one federation is in memory
            built[seed] = federation(seed)
        return built[seed]

    return of


def _named(strategies: Iterable[str | Strategy]) -> dict[str, Strategy]:
    """Different strategies by their texts."""
    if isinstance(strategies, str | Strategy):
        raise TypeError(
            f"strategies = {str(strategies)!r} is one strategy; give a list, such as ['FedAvg', 'FedWorse']"
        )
    found = {str(rule): rule for rule in map(STRATEGIES.parse, strategies)}
    if not found:
        raise ValueError("strategies is empty; name at least one, such as 'FedAvg'")
    return found


def _numbers(seeds: int | Iterable[int]) -> list[int]:
    found = list(range(seeds)) if isinstance(seeds, int) and not isinstance(seeds, bool) else None
    if found is None and isinstance(seeds, Iterable) and not isinstance(seeds, str):
        found = list(seeds)
    if not found or not all(type(n) is int and n >= 0 for n in found) or len(set(found)) != len(found):
        raise ValueError(f"seeds = {seeds!r}; give how many (5) or distinct numbers ≥ 0 ([3, 4, 5])")
    return found
