"""The plot of a race: the drops of candidates in tuning, and the leads of methods on held-out seeds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedalpha.analysis.anytime import bounds
from fedalpha.analysis.measures import Measure
from fedalpha.analysis.plots import figure
from fedalpha.store.exports import COLOURS, texts_as_written, write_figure
from fedalpha.study import read_tuning

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_races(folder: str | Path) -> list[Path]:
    """Draw the race of every case of a folder, from its ``tune.json``: ``race.png``, or one file per case."""
    journal = read_tuning(folder)
    written = []
    with texts_as_written():
        for case, found in journal["cases"].items():
            name = f"race-{re.sub(r'[^A-Za-z0-9._=-]+', '-', case).strip('-')}" if case else "race"
            path = Path(folder) / f"{name}.png"
            _draw(journal, case, found, path)
            written.append(path)
    return written


def _draw(journal: dict[str, Any], case: str, found: dict[str, Any], path: Path) -> None:
    measure = Measure.parse(journal["measure"])
    fig, (left, right) = figure(12, 4.6, columns=2)
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(found["methods"])}
    _tuning(left, found, measure, colours)
    _held_out(right, journal, found, measure, colours)
    handles, labels = left.get_legend_handles_labels()
    if handles:
        fig.legend(handles, labels, frameon=False, fontsize=9, loc="outside lower center", ncols=2)
    if case:
        fig.suptitle(case, fontsize=12, x=0.01, ha="left")
    write_figure(fig, path, path.parent, dpi=130)


def _tuning(ax: Axes, found: dict[str, Any], measure: Measure, colours: dict[str, str]) -> None:
    """A line per candidate, over the rounds that its method had played: its mean so far; × marks its drop."""
    scale = measure.scale if measure.higher_is_better else -measure.scale
    for name, method in found["methods"].items():
        played = 0
        for generation in method["generations"]:
            scores = {c: np.array(s) for c, s in generation["scores"].items() if s}
            lengths = [sum(len(s) > i for s in scores.values()) for i in range(len(generation["seeds"]))]
            ends = played + found["rounds"] * np.cumsum(lengths)
            for candidate, values in scores.items():
                means = scale * np.cumsum(values) / np.arange(1, len(values) + 1)
                x = ends[: len(means)]
                chosen = candidate == method["text"]
                style: dict[str, Any] = {"linewidth": 2.2 if chosen else 0.8, "alpha": 1.0 if chosen else 0.45}
                ax.plot(x, means, color=colours[name], marker=".", markersize=3, **style)
                if candidate in generation["dropped"]:
                    ax.plot(x[-1], means[-1], "x", color=colours[name], markersize=5)
            played = int(ends[-1]) if len(ends) else played
        ax.plot([], [], color=colours[name], linewidth=2.2, label=method["text"])
    ax.set_xlabel("tuning rounds of the method")
    ax.set_title(f"Tuning: {measure.heading}; × dropped, bold: chosen", loc="left", fontsize=10)


def _held_out(
    ax: Axes, journal: dict[str, Any], found: dict[str, Any], measure: Measure, colours: dict[str, str]
) -> None:
    """The mean lead over the reference after each seed, with the bounds after that seed."""
    race, reference = found["reported"], journal["reference"]
    unit = "points" if measure.scale == 100 else measure.text
    ax.axhline(0, color=colours[reference], linewidth=2.2)
    ax.set_xlabel("held-out seeds")
    ax.locator_params(axis="x", integer=True)
    ax.set_title(f"Held-out: lead over {reference} ({unit}); × dropped", loc="left", fontsize=10)
    if race is None or not race["seeds"]:
        return
    base = np.array(race["scores"][reference])
    error = journal["error"] / max(1, len(race["scores"]) - 1)
    drawn: list[float] = [0.0]
    for name, scores in race["scores"].items():
        if name == reference:
            continue
        D = measure.scale * (np.array(scores) - base[: len(scores)])
        looks = np.arange(1, len(D) + 1)
        means = np.cumsum(D) / looks
        within = [bounds(D[:look], error) for look in looks]
        low, high = np.array([b.low for b in within]), np.array([b.high for b in within])
        known = np.isfinite(high - low)
        ax.plot(looks, means, color=colours[name], linewidth=2, marker=".", markersize=4)
        ax.fill_between(looks[known], low[known], high[known], color=colours[name], alpha=0.13, linewidth=0)
        if name in race["dropped"]:
            ax.plot(looks[-1], means[-1], "x", color=colours[name], markersize=8, markeredgewidth=2)
        drawn += [*means, *([low[-1], high[-1]] if known[-1] else [])]
    pad = 0.1 * (max(drawn) - min(drawn)) + 1e-9
    ax.set_ylim(min(drawn) - pad, max(drawn) + pad)
