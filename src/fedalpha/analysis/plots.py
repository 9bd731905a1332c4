"""Pictures of runs: curves with confidence bands. matplotlib is imported when one is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedalpha.analysis.columns import Column, columns
from fedalpha.analysis.stats import interval
from fedalpha.store.exports import COLOURS, new_figure, texts_as_written, write_figure
from fedalpha.text import nearest

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FAINT = "#6b7078"


class Rounds(Protocol):
    """What a picture needs of a history."""

    @property
    def rows(self) -> list[dict[str, Any]]: ...

    def column(self, name: str) -> NDArray[np.float64]: ...


def figure(width: float, height: float, columns: int = 1, lines: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure in fedalpha's style; no global state of matplotlib is used."""
    fig = new_figure(width, height)
    axes: list[Any] = list(np.atleast_1d(fig.subplots(lines, columns)).flat)
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(True, color="#e6e6e6", linewidth=0.8)
        ax.set_axisbelow(True)
    return fig, axes


def plot_run(history: Rounds, path: str | Path, title: str = "") -> None:
    """Accuracy and loss of one run."""
    plot_comparison({title or "run": [history]}, path)


def over_rounds(ax: Axes, title: str) -> None:
    """Name a picture whose horizontal axis counts rounds, in whole numbers."""
    ax.set_xlabel("round")
    ax.locator_params(axis="x", integer=True)
    ax.set_title(title, loc="left", fontsize=11)
    ax.margins(x=0.01)


def plot_comparison(
    runs: Mapping[str, Sequence[Rounds]], path: str | Path, title: str = "", target: float | None = None
) -> None:
    """Write `figure_of` to a file: accuracy and loss of one or several strategies."""
    write_figure(figure_of(runs, title=title, target=target), path, dpi=130)


@texts_as_written()
def figure_of(
    runs: Mapping[str, Sequence[Rounds]],
    ax: Axes | None = None,
    column: str | None = None,
    *,
    title: str = "",
    target: float | None = None,
    legend: bool = True,
    narrow: bool = False,
) -> Figure:
    """Accuracy and loss over rounds, or one ``column``: the mean over seeds with its 95 % band, a colour per strategy.

    With ``ax`` one column is drawn there, the accuracy by default. ``narrow`` is for phones: the loss stands below the
    accuracy. Returns the figure.
    """
    wanted = [column] if column is not None else ["accuracy"] if ax is not None else ["accuracy", "loss"]
    shown = [_described(name) for name in wanted]
    if ax is None:
        size = (4.5, 6.6) if narrow else (11 if len(shown) > 1 else 6.5, 4.4)
        fig, axes = figure(*size, **{"lines" if narrow else "columns": len(shown)})
    elif not hasattr(ax, "get_figure"):
        raise TypeError(f"{ax!r} is not an axis of matplotlib; the column to draw is column={ax!r}")
    else:
        found = ax.get_figure(root=True)
        assert found is not None, "an axis belongs to a figure"
        fig, axes = found, [ax]
    for one, what in zip(axes, shown, strict=True):
        curves = {label: _curve(histories, what) for label, histories in runs.items()}
        draw_bands(one, curves, dict(zip(runs, _cycle(len(runs)), strict=True)), what.heading or what.name, what.scale)
        if target is not None and what.name == "accuracy":
            mark_target(one, 100 * target)
    handles, labels = axes[0].get_legend_handles_labels()
    if handles and legend and ax is not None:
        ax.legend(frameon=False, fontsize=9)
    elif handles and legend:  # below the axes: it hides no curve and no band
        fig.legend(
            handles,
            labels,
            frameon=False,
            fontsize=9,
            loc="outside lower left",
            ncols=1 if narrow else 3 if len(labels) > 2 else 2,
        )
    if title:
        fig.suptitle(title, fontsize=12, x=0.01, ha="left")
    return fig


Band = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]
"""Rounds, means and half-widths; NaN in the half-widths where there is one seed only."""


def draw_bands(ax: Axes, curves: Mapping[str, Band], colours: Mapping[str, str], title: str, scale: float) -> None:
    """Draw mean curves with their bands. ``scale`` 100 is a fraction, shown in %: it stays between 0 and 100.

    A band of few seeds can be enormous: it may stretch the axis by 15 % of the curves' own range.
    """
    least, most = (0.0, 100.0) if scale == 100 else (-np.inf, np.inf)
    for label, (rounds, middle, half) in curves.items():
        h = np.nan_to_num(half)
        ax.plot(rounds, middle, color=colours[label], linewidth=2, label=label)
        low, high = (middle - h).clip(least, most), (middle + h).clip(least, most)
        ax.fill_between(rounds, low, high, color=colours[label], alpha=0.18, linewidth=0)
    over_rounds(ax, title)
    if values := [middle for _, middle, _ in curves.values() if len(middle)]:
        means = np.concatenate(values)
        room = 0.15 * max(float(np.ptp(means)) or 1.0, 1e-9 * float(np.abs(means).max()))
        bottom, top = ax.get_ylim()
        floor = max(bottom, float(means.min()) - room, least, 0.0 if means.min() >= 0 else -np.inf)
        ax.set_ylim(floor, min(top, float(means.max()) + room, most))


def mark_target(ax: Axes, percent: float) -> None:
    """A dashed line with its name, if it lies within the picture."""
    bottom, top = ax.get_ylim()
    if bottom < percent < top:
        ax.axhline(percent, color=_FAINT, linewidth=1, linestyle="--")
        place = {"xycoords": ax.get_yaxis_transform(), "xytext": (3, 3), "textcoords": "offset points"}
        ax.annotate(f"{percent:g} %", (0, percent), ha="left", fontsize=8.5, color=_FAINT, **place)  # type: ignore[arg-type]


_DRAWN = 1e30
"""Larger values are left out: a client may report any loss, and matplotlib has no axis for the largest floats."""


def _curve(histories: Sequence[Rounds], what: Column) -> Band:
    length = min(len(h.rows) for h in histories)
    values = what.scale * np.stack([h.column(what.name)[:length] for h in histories])
    values[np.abs(values) > _DRAWN] = np.nan
    drawn = np.flatnonzero(~np.isnan(values).any(axis=0))
    bands = [interval(values[:, r]) for r in drawn]
    return drawn.astype(np.float64), np.array([b.mean for b in bands]), np.array([b.half for b in bands])


def _described(name: str) -> Column:
    known = {found.name: found for found in columns() if found.dtype and not found.per_client}
    if name not in known:
        raise ValueError(f"unknown column {name!r}; {nearest(name, known)}")
    return known[name]


def _cycle(n: int) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(n)]
