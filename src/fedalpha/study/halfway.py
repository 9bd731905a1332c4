"""Saved states of cells: a killed cell resumes from its own, a hybrid starts from the state of its first rule.

The states are in ``log/`` and are not results: without them a cell starts at round 0 and gets the same rows.
"""

from __future__ import annotations

import bisect
import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedalpha.runs.callbacks import Callback
from fedalpha.runs.machine import versions
from fedalpha.runs.saved_state import check_state, of_the_same_model, state_tree
from fedalpha.store import DamagedError, FormatError, Generations
from fedalpha.store.inside import remove_tree
from fedalpha.strategies import STRATEGIES, State, Strategy
from fedalpha.strategies.switch import Switch
from fedalpha.study.cells import Cell
from fedalpha.study.store import Store

if TYPE_CHECKING:
    from fedalpha.analysis.history import Row
    from fedalpha.round import ServerState

SECONDS = 20.0
"""Seconds between two saves of a running cell."""


def half(store: Store, cell: Cell) -> Path:
    """The folder of a cell's own state."""
    return store.log / "half" / cell.key


def branch(store: Store, cell: Cell, round: int) -> Path:
    """The folder of a cell's state after ``round`` rounds, for other cells that share those rounds."""
    return store.log / "branches" / f"{cell.key}-{round}"


def is_there(folder: Path, root: Path) -> bool:
    """Whether a state was saved completely: its manifest is written last."""
    return not Generations(folder, root).empty


class Save(Callback):
    """Saves a running cell every `SECONDS`, and at the rounds (``marks``) from which other cells start."""

    def __init__(self, store: Store, cell: Cell, marks: frozenset[int], earlier: Sequence[dict[str, str]] = ()) -> None:
        self.store, self.cell, self.marks = store, cell, marks
        self.machines = list(earlier) if versions() in earlier else [*earlier, versions()]
        self.rows: list[Row] = []
        self.saved = time.monotonic()
        self.folders: dict[Path, Generations] = {}

    def on_resume(self, rows: Sequence[Row]) -> None:
        self.rows = list(rows)

    def on_round(self, row: Row, state: ServerState) -> bool | None:
        self.rows.append(row)
        if self.cell.stop_at is not None and self.cell.stop_at.holds(self.rows):
            return None  # the cell stops here, so no cell starts from this state
        if state.round in self.marks:
            self._save(branch(self.store, self.cell, state.round), state)
        if time.monotonic() - self.saved > SECONDS:
            self._save(half(self.store, self.cell), state)
            self.saved = time.monotonic()
        return None

    def _save(self, folder: Path, state: ServerState) -> None:
        # The object is kept between saves, because it knows which rows are on disk.
        tree = {"state": state_tree(state), "machines": self.machines}
        generations = self.folders.setdefault(folder, Generations(folder, self.store.folder))
        generations.save(state.round, tree, self.rows)


@dataclass(frozen=True, eq=False)
class Begin:
    """A state to start from, the rows that led to it, and the `versions` of the machines that computed them."""

    state: ServerState
    rows: list[Row]
    machines: list[dict[str, str]]


def beginning(store: Store, cell: Cell, donor: Cell | None) -> Begin | None:
    """The state from which a cell starts: its own, or that of a cell with the same first rounds; None for round 0."""
    own = _load(store, half(store, cell), cell)
    if own is not None:
        return own
    if donor is None:
        return None
    found = _load(store, branch(store, donor, cell.shared(donor)), donor)
    if found is None:
        return None
    state = found.state
    first, second = (STRATEGIES.parse(c.settings.strategy) for c in (donor, cell))
    try:
        weigh = adopted(first, state.weigh, second, state.round, cell.settings.clients)
    except (KeyError, IndexError, TypeError, ValueError):  # it was forged: the first rule has not written it
        return None
    return dataclasses.replace(found, state=dataclasses.replace(state, weigh=weigh))


def adopted(first: Strategy, state: State, second: Strategy, round: int, clients: int) -> State:
    """The state of ``second`` from that of ``first``, after ``round`` rounds in which both used the same rules.

    >>> better, hybrid = (STRATEGIES.parse(s) for s in ("FedSoftBetter", "FedSoftBetterAvg(at=3)"))
    >>> adopted(better, {}, hybrid, 3, clients=20)
    {'members': [{}, {}], 'stage': 0}
    """
    inner = [state["members"][i] for i in _places(first)] if _switches(first) else [state]
    if not _switches(second):
        return dict(inner[0])
    assert isinstance(second, Switch)
    begun: dict[str, Any] = {**second.init(clients)}
    members = list(begun["members"])
    for place, known in zip(_places(second), inner, strict=False):
        if place == 0 or second.at[place - 1] < round:
            members[place] = dict(known)
    return {"members": members, "stage": bisect.bisect_right(second.at, round - 1)}


def clear(store: Store, cell: Cell) -> None:
    """Delete a finished cell's own state."""
    remove_tree(half(store, cell), store.folder)


def clear_all(store: Store) -> None:
    """Delete all states when the study is done."""
    for name in ("half", "branches"):
        remove_tree(store.log / name, store.folder)


def donors(cells: Sequence[Cell]) -> Mapping[str, Cell]:
    """For each cell the earlier one with which it shares the most first rounds (some, but not all).

    None for a part of a federation, because its number of clients, and so the first state of rules, depends on the
    data.
    """
    found: dict[str, Cell] = {}
    for i, cell in enumerate(cells):
        if cell.settings.part is not None:
            continue
        best = max(cells[:i], key=cell.shared, default=None)
        if best is not None and 0 < cell.shared(best) < cell.settings.rounds:
            found[cell.key] = best
    return found


def _load(store: Store, folder: Path, cell: Cell) -> Begin | None:
    """The state of a cell that is saved in a folder."""
    try:
        found = Generations(folder, store.folder).load(accept=lambda tree, rows: _begin(tree, rows, cell))
    except (DamagedError, FormatError):
        return None  # a state only saves time
    return None if found is None else found[0]


def _begin(tree: Any, rows: list[Row], cell: Cell) -> Begin:
    if tree.keys() != {"state", "machines"}:
        raise ValueError("it is of another version")
    machines = tree["machines"]
    if not isinstance(machines, list) or not all(isinstance(word, str) for one in machines for word in one.values()):
        raise ValueError("its machines are not described by words")
    experiment = cell.settings.experiment()
    start = experiment.start()
    state = of_the_same_model(tree["state"], start)
    check_state(state, start, rows, experiment.federation.clients)
    return Begin(state, list(rows), machines)


def _switches(strategy: Strategy) -> bool:
    return isinstance(strategy, Switch) and bool(strategy.at)


def _places(strategy: Strategy) -> list[int]:
    """The indices of the members that play at least one round, in order."""
    assert isinstance(strategy, Switch)
    starts, ends = [0, *strategy.at], [*strategy.at, float("inf")]
    return [i for i, (start, end) in enumerate(zip(starts, ends, strict=True)) if start < end]
