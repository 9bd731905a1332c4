"""The measures that cannot have a value in a cell; a study lists them before it is run."""

from __future__ import annotations

from fedalpha.analysis.columns import numbers
from fedalpha.analysis.conditions import Comparison
from fedalpha.analysis.measures import Measure
from fedalpha.study.cells import Cell


def why_not(measure: Measure, cell: Cell) -> str:
    """Why a cell is not expected to have a value of this measure; empty if it is."""
    if measure.timed and cell.settings.clock is None:
        return 'runs have no simulated time; write clock = "lognormal(sigma=1)" or another one under [settings]'
    rounds, every, stop = cell.settings.rounds, cell.settings.evaluate_every, cell.stop_at
    if measure.at is not None:
        if measure.at > rounds:
            return f"runs end at round {rounds}"
        if measure.at % every and measure.at != rounds:
            return f"runs are evaluated every {every} rounds"
    name = str(measure).partition("@")[0]
    known = next((found for found in numbers() if found.name == name), None)
    if known is not None and known.timed:
        return "" if cell.settings.clock is not None else "only runs with a clock compute it"
    if known is not None and known.optional and name not in (cell.settings.scores or ""):
        return f"runs do not compute it; write scores = {name!r} under [settings]"
    if stop is None:
        return ""
    if measure.percent is None and measure.at is None:
        return f"runs that stop at {stop} have no final round"
    if not isinstance(stop, Comparison):
        return ""
    asked = {"accuracy": measure.percent and measure.percent / 100, "round": measure.at}.get(stop.column)
    return f"runs stop at {stop}" if asked is not None and stop.sign.startswith(">") and asked > stop.value else ""
