"""The plot of a study: measured distance and each bound, and ρ over time. matplotlib is imported on use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedalpha.store.exports import write_figure
from fedalpha.strategies import Array
from fedalpha.theory.constants import InverseStep
from fedalpha.theory.corollary import V_E
from fedalpha.theory.fixed_points import FixedPoint
from fedalpha.theory.monte_carlo import Run
from fedalpha.theory.one_step import Variant
from fedalpha.theory.rollout import rollout_bound

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MEASURED, GREY = "#4269d0", "#8a8f98"
STYLES: dict[str, dict[str, Any]] = {
    "roll-out bound": {"color": "#ff725c", "linewidth": 1.8},
    "corollary, corrected": {"color": "#efb118", "linewidth": 1.8, "linestyle": (0, (5, 2))},
    "corollary, as printed": {"color": "#a463f2", "linewidth": 1.5, "linestyle": (0, (1, 1.5))},
}


def distance_bounds(run: Run) -> dict[str, Array]:
    """Upper bounds of Δ_0 … Δ_T by name, from the measured ρ_t, X*_t and Σ alpha² of the run."""
    c, delta0 = run.problem.constants, float(run.distance[0, 0])
    t = np.arange(len(run.distance))
    rho = np.nan_to_num(run.rho)
    bounds = {
        "roll-out bound": rollout_bound(c, delta0, run.eta, E=run.E, rho=rho, X_star=run.X_star, s2=run.s2),
    }
    variants: dict[str, Variant] = {"corollary, corrected": "corrected", "corollary, as printed": "paper"}
    if isinstance(run.step, InverseStep) and run.step.beta * c.mu * (1 + 3 * run.rho_bar() / 8) > 1 + 1e-9:
        for name, variant in variants.items():
            bounds[name] = V_E(
                c,
                delta0,
                E=run.E,
                rho_bar=run.rho_bar(),
                X_star=float(run.X_star.max()),
                s2=float(run.s2.max()),
                variant=variant,
                beta=run.step.beta,
                gamma=run.step.gamma,
            ).distance(t)
    return bounds


def plot_study(runs: Sequence[Run], ends: Sequence[FixedPoint | None], path: str | Path, title: str = "") -> None:
    """One column per strategy: Δ_t = E‖w_t − w*‖² against its bounds (log axes) above, ρ_t below.

    ``ends`` are the strategies' fixed points, if known; the level at which Δ_t then stays is drawn.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    fig = Figure(figsize=(1.2 + 3.3 * len(runs), 6.2), layout="constrained")
    FigureCanvasAgg(fig)
    grid: Any = fig.subplots(
        2, len(runs), sharex=True, sharey="row", squeeze=False, gridspec_kw={"height_ratios": [2.6, 1]}
    )
    for column, (run, end) in enumerate(zip(runs, ends, strict=True)):
        _distance(grid[0, column], run, end)
        _skew(grid[1, column], run)
        grid[0, column].set_title(str(run.strategy), loc="left", fontsize=10.5, pad=8)
        grid[1, column].set_xlabel("step  t + 1", color="#555555")
    for ax in grid.flat:
        ax.spines[["top", "right"]].set_visible(False)
        ax.spines[["left", "bottom"]].set_color("#bbbbbb")
        ax.tick_params(colors="#555555", which="both", labelsize=9)
        ax.grid(True, which="major", color="#ececec", linewidth=0.8)
        ax.set_axisbelow(True)
    grid[1, 0].set_ylim(0, 1.1 * max(float(np.nanmax(run.rho)) for run in runs))
    grid[0, 0].set_ylabel(r"$\mathrm{E}\,\Vert w_t-w^\star\Vert^2$", fontsize=11)
    grid[1, 0].set_ylabel(r"$\rho_t$", fontsize=11)
    handles: dict[str, Any] = {}
    for ax in grid[0]:
        handles |= dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    handles = {"measured": handles.pop("measured"), **handles}
    fig.legend(
        handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles), frameon=False, fontsize=9.5
    )
    if title:
        fig.suptitle(title, fontsize=12, x=0.01, ha="left")
    write_figure(fig, path, dpi=150)


def _distance(ax: Axes, run: Run, end: FixedPoint | None) -> None:
    """Measured (mean with its 95 % band) and bounds; t = 0 is drawn at 1 on the logarithmic axis."""
    t = np.arange(len(run.distance)) + 1
    for name, bound in distance_bounds(run).items():
        ax.plot(t, np.where(bound > 0, bound, np.nan), label=name, **STYLES[name])
    mean = run.distance.mean(1)
    replicas = run.distance.shape[1]
    if replicas > 1:
        half = 1.96 * run.distance.std(1, ddof=1) / np.sqrt(replicas)
        ax.fill_between(t, np.maximum(mean - half, mean * 1e-2), mean + half, color=MEASURED, alpha=0.22, linewidth=0)
    ax.plot(t, mean, color=MEASURED, linewidth=2.4, label="measured", zorder=3)
    ax.set_xscale("log")
    ax.set_yscale("log")
    c = run.problem.constants
    if end is not None and len(end.points) == 1:
        level = float(np.square(end.points[0] - c.w_star).sum())
        if level > 1e-12:
            ax.axhline(level, color=GREY, linewidth=1, linestyle=(0, (2, 2)), zorder=1)
            ax.annotate(
                f"ends at: {end.law}", (1, level), (0, -4), textcoords="offset points", fontsize=8, color=GREY, va="top"
            )


def _skew(ax: Axes, run: Run) -> None:
    ax.axhline(1, color=GREY, linewidth=1, linestyle=(0, (2, 2)))
    ax.plot(np.arange(len(run.rho)) + 1, run.rho, color=MEASURED, linewidth=1.8)
    ax.set_xscale("log")
