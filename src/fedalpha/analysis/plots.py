"""Pictures of runs: curves with confidence bands. matplotlib is imported when one is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedalpha.analysis.columns import column
from fedalpha.analysis.history import History
from fedalpha.analysis.stats import interval
from fedalpha.store.exports import write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5", "#9c6b4e", "#9498a0")


def figure(width: float, height: float, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure in fedalpha's style; no global state of matplotlib is used."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    fig = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(fig)
    axes: list[Any] = list(np.atleast_1d(fig.subplots(1, columns)))
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(True, color="#e6e6e6", linewidth=0.8)
        ax.set_axisbelow(True)
    return fig, axes


def plot_run(history: History, path: str | Path, title: str = "") -> None:
    """Accuracy and loss of one run."""
    plot_comparison({title or "run": [history]}, path)


def over_rounds(ax: Axes, title: str) -> None:
    """Name a picture whose horizontal axis counts rounds, in whole numbers."""
    ax.set_xlabel("round")
    ax.locator_params(axis="x", integer=True)
    ax.set_title(title, loc="left", fontsize=11)
    ax.margins(x=0.01)


def plot_comparison(
    runs: Mapping[str, Sequence[History]], path: str | Path, title: str = "", target: float | None = None
) -> None:
    """Accuracy and loss over rounds: the mean over seeds with its 95 % band, one colour per strategy."""
    fig, axes = figure(11, 4.2, columns=2)
    shown = [column("accuracy"), column("loss")]
    for (label, histories), colour in zip(runs.items(), _cycle(len(runs)), strict=True):
        length = min(len(h.rows) for h in histories)
        rounds = np.arange(length)
        for ax, what in zip(axes, shown, strict=True):
            values = what.scale * np.stack([h.column(what.name)[:length] for h in histories])
            drawn = ~np.isnan(values).any(axis=0)
            if not drawn.any():
                continue
            bands = [interval(values[:, r]) for r in rounds[drawn]]
            middle = np.array([b.mean for b in bands])
            half = np.nan_to_num([b.half for b in bands])
            ax.plot(rounds[drawn], middle, color=colour, linewidth=2, label=label)
            ax.fill_between(rounds[drawn], middle - half, middle + half, color=colour, alpha=0.18, linewidth=0)
    for ax, what in zip(axes, shown, strict=True):
        over_rounds(ax, what.heading)
    axes[0].set_ylim(0, 100)
    axes[1].set_ylim(bottom=0)
    if target is not None:
        axes[0].axhline(100 * target, color="#888888", linewidth=1, linestyle="--")
    if axes[0].get_legend_handles_labels()[0]:
        axes[0].legend(frameon=False, fontsize=9, loc="lower right")
    if title:
        fig.suptitle(title, fontsize=12, x=0.01, ha="left")
    write_figure(fig, path, dpi=130)


def _cycle(n: int) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(n)]
