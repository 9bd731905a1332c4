"""The report's figures as SVG and PNG files, for papers and slides."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedalpha.analysis.plots import Band, draw_bands, figure, mark_target
from fedalpha.store.exports import COLOURS, texts_as_written
from fedalpha.store.files import remove
from fedalpha.store.inside import names
from fedalpha.study.store import write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FAINT = "#8a8f98"
_MARKS = {"≥": ">", "≤": "<"}
"""A bound is drawn as a hollow marker that points towards the value."""
_LATE = "; hollow: some runs never reached it, the value is higher"


def write_figures(data: dict[str, Any], folder: Path) -> dict[str, str]:
    """Draw every figure of the page's data, as SVG and PNG. Returns their descriptions, by file name without suffix."""
    written = {}
    with texts_as_written():
        for name, fig, caption in _all(data):
            written[name] = caption
            for ending in ("svg", "png"):
                _save(fig, folder / f"{name}.{ending}")
    for name in names(folder, folder.parent):  # figures of an earlier report that this one does not have
        if Path(name).suffix in (".svg", ".png") and Path(name).stem not in written:
            remove(folder / name, folder.parent)
    return written


def _all(data: dict[str, Any]) -> Iterator[tuple[str, Figure, str]]:
    for item in data["across"]:
        late = any(point and not point["reached"] for line in item["lines"] for point in line["points"])
        caption = f"{item['title']} in every case: mean ± 95 %" + _LATE * late
        yield f"across-{item['name'].replace('@', '-')}", _across(data, item), caption
    for number, case in enumerate(data["cases"]):
        prefix = "" if len(data["cases"]) == 1 else f"case{number + 1}-"
        if case["curves"]:
            yield from ((prefix + name, fig, caption) for name, fig, caption in _figures(data, case))


def _across(data: dict[str, Any], item: dict[str, Any]) -> Figure:
    fig, (ax,) = figure(7.5, 4.0)
    for number, line in enumerate(item["lines"]):
        colour = data["colours"][line["strategy"]]
        shift = 0.1 * (number - (len(item["lines"]) - 1) / 2)
        points = [(place + shift, point) for place, point in enumerate(line["points"]) if point]
        x, y = [place for place, _ in points], [point["mean"] for _, point in points]
        joined = {"linewidth": 1.2 if item["ordered"] else 0.0, "color": colour}
        ax.plot(x, y, **joined)
        ax.plot([], [], marker="o", label=line["strategy"], **joined)
        ax.errorbar(x, y, [point["half"] or 0.0 for _, point in points], fmt="none", ecolor=colour, elinewidth=1.6)
        for place, point in points:
            mark, face = ("o", colour) if point["reached"] else ("^", "white")
            ax.plot(place, point["mean"], mark, color=colour, markersize=6, markerfacecolor=face)
    names = [textwrap.fill(name, max(6, 56 // len(item["cases"])), break_long_words=False) for name in item["cases"]]
    ax.set_xticks(range(len(names)), names)
    ax.set_xlabel(item["axis"])
    _clip(ax.set_ylim, item["within"])
    ax.set_title(item["title"], loc="left", fontsize=11)
    ax.legend(frameon=False, fontsize=8.5, loc="center left", bbox_to_anchor=(1, 0.5))
    return fig


def _figures(data: dict[str, Any], case: dict[str, Any]) -> list[tuple[str, Figure, str]]:
    found = [("curves", _curves(data, case, None), "Test accuracy and loss")]
    for view in case["zoom"]:
        window = "-".join(f"{edge:g}" for edge in (*view["rounds"], *(view["accuracy"] or ())))
        caption = "The same, rounds {:g} to {:g}".format(*view["rounds"])
        found.append((f"zoom-{window}", _curves(data, case, view), caption))
    for item in case["dots"]:
        late = any(row["bound"] for row in item["items"])
        caption = f"{item['title']}: mean ± 95 %; small dots: seeds" + _LATE * late
        found.append((item["name"], _rows(data, item, zero=False), caption))
    for item in case["forests"]:
        bound = any(row["bound"] for row in item["items"])
        caption = f"{item['title']}, paired with {data['reference']}" + "; hollow: a bound, see the table" * bound
        found.append((f"difference-{item['name'].replace('@', '-')}", _rows(data, item, zero=True), caption))
    if case["diagnostics"]:
        found.append(("diagnostics", _diagnostics(data, case["diagnostics"]), "Weights of each round"))
    if case["heat"]:
        found.append(("alpha", _heat(case["heat"]), "α over rounds and clients, one seed"))
    if case["partition"]:
        found.append(("partition", _partition(case["partition"]), "Labels of each client"))
    return found


def _curves(data: dict[str, Any], case: dict[str, Any], view: dict[str, Any] | None) -> Figure:
    fig, axes = figure(13, 4.2, columns=2)
    shown = (("accuracy", "test accuracy (%)", 100.0), ("loss", "test loss", 1.0))
    for ax, (kind, title, scale) in zip(axes, shown, strict=True):
        lines = [{"strategy": item["strategy"], "rounds": item["rounds"], **item[kind]} for item in case["curves"]]
        draw_bands(ax, _bands(lines, view), data["colours"], title, scale)
        if kind == "accuracy" and view is not None and view["accuracy"] is not None:
            ax.set_ylim(*(100 * value for value in view["accuracy"]))
        if kind == "accuracy" and case["target"] is not None:
            mark_target(ax, case["target"])
    axes[1].legend(frameon=False, fontsize=8.5, loc="center left", bbox_to_anchor=(1, 0.5))
    seeds = f"mean of {data['seeds']} seeds, 95 % band" if data["seeds"] > 1 else "one seed"
    fig.suptitle(" · ".join(t for t in (data["title"], case["name"], seeds) if t), fontsize=11, x=0.01, ha="left")
    return fig


def _diagnostics(data: dict[str, Any], panels: Sequence[dict[str, Any]]) -> Figure:
    fig, axes = figure(3.4 * len(panels) + 0.5, 3.4, columns=len(panels))
    for ax, panel in zip(axes, panels, strict=True):
        draw_bands(ax, _bands(panel["lines"], None), data["colours"], panel["title"], 1.0)
    axes[-1].legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return fig


def _bands(lines: Sequence[dict[str, Any]], view: dict[str, Any] | None) -> dict[str, Band]:
    """The curves of the page, without rounds that have no value or lie outside of the view."""
    found = {}
    for item in lines:
        rounds = np.array(item["rounds"], dtype=np.float64)
        middle, half = (np.array([np.nan if v is None else v for v in item[k]], dtype=float) for k in ("mean", "half"))
        keep = ~np.isnan(middle)
        if view is not None:
            keep &= (rounds >= view["rounds"][0]) & (rounds <= view["rounds"][1])
        found[item["strategy"]] = (rounds[keep], middle[keep], half[keep])
    return found


def _clip(limits: Callable[..., Any], within: Sequence[float | None]) -> None:
    """Cut an axis to the values that are possible."""
    low, high = limits()
    least, most = (bound if bound is not None else value for bound, value in zip(within, (low, high), strict=True))
    limits(max(low, least), min(high, most))


def _rows(data: dict[str, Any], item: dict[str, Any], zero: bool) -> Figure:
    rows = [row for row in item["items"] if row["mean"] is not None]
    fig, (ax,) = figure(7.5, 1.3 + 0.42 * len(rows))
    for place, row in enumerate(reversed(rows)):
        colour = data["colours"][row["strategy"]]
        half = row["half"] or 0.0
        ax.plot([row["mean"] - half, row["mean"] + half], [place, place], color=colour, linewidth=2.5)
        mark, face = (_MARKS.get(row["bound"], "D"), "white") if row["bound"] else ("o", colour)
        ax.plot(row["mean"], place, mark, color=colour, markersize=7, markerfacecolor=face)
        points = row.get("points", [])
        for reached, face in ((True, colour), (False, "none")):
            x = [p["value"] for p in points if p["reached"] is reached]
            ax.plot(x, [place - 0.2] * len(x), "o", markersize=3.5, color=colour, markerfacecolor=face, alpha=0.5)
        if figure_ := row.get("published"):
            spread = figure_["half"] or 0.0
            ax.plot(
                [figure_["mean"] - spread, figure_["mean"] + spread], [place + 0.25] * 2, color=_FAINT, linewidth=1.3
            )
            ax.plot(figure_["mean"], place + 0.25, "D", color=_FAINT, markersize=5)
    _clip(ax.set_xlim, item["within"])
    if zero:
        ax.axvline(0, color=_FAINT, linewidth=1, linestyle="--")
    ax.set_yticks(range(len(rows)), [row["strategy"] for row in reversed(rows)])
    ax.set_ylim(-0.6, len(rows) - 0.4)
    ax.set_xlabel(item["unit"] + ("; grey: published" if item.get("published") else ""))
    title = item["title"] + (f", paired with {data['reference']}" if zero else "")
    fig.suptitle(title, fontsize=10, x=0.01, ha="left")  # over the names too: it may be long
    return fig


def _heat(maps: Sequence[dict[str, Any]]) -> Figure:
    columns = min(3, len(maps))
    lines = -(-len(maps) // columns)
    fig, _ = figure(4.2 * columns + 0.6, 3.2 * lines + 0.3)
    fig.clear()
    axes = fig.subplots(lines, columns, squeeze=False)
    for ax in axes.flat[len(maps) :]:
        ax.set_axis_off()
    for ax, item in zip(axes.flat, maps, strict=False):
        alpha = np.array([[np.nan if v is None else v for v in row] for row in item["alpha"]], dtype=np.float64)
        edges = (-0.5, alpha.shape[1] - 0.5, len(alpha) + 0.5, 0.5)
        drawn = ax.imshow(alpha, aspect="auto", cmap="Blues", interpolation="nearest", extent=edges)
        drawn.set_clim(0, float(np.nanmax(alpha)))
        fig.colorbar(drawn, ax=ax, label="α", fraction=0.05)
        ax.set_title(f"{item['strategy']}, seed {item['seed']}", loc="left", fontsize=9)
        ax.set_xlabel("client")
        ax.set_ylabel("round")
    return fig


def _partition(part: dict[str, Any]) -> Figure:
    counts = np.array(part["counts"])
    fig, (ax,) = figure(11, 3.4)
    bottom = np.zeros(len(counts))
    for k, name in enumerate(part["names"]):
        ax.bar(np.arange(len(counts)), counts[:, k], 0.88, bottom=bottom, color=COLOURS[k % len(COLOURS)], label=name)
        bottom += counts[:, k]
    ax.margins(x=0.01)
    ax.locator_params(axis="x", integer=True)
    ax.set_xlabel("client")
    ax.set_title(f"samples by label: {part['title']}", loc="left", fontsize=11)
    ax.legend(frameon=False, fontsize=8, ncols=1, loc="center left", bbox_to_anchor=(1, 0.5))
    return fig


def _save(fig: Figure, path: Path) -> None:
    """Save a figure so that equal figures have equal bytes: without a date and random ids."""
    import io

    import matplotlib

    buffer = io.BytesIO()
    ending = path.suffix[1:]
    with matplotlib.rc_context({"svg.hashsalt": "fedalpha", "svg.fonttype": "none"}):
        metadata: dict[str, Any] = {"Date": None} if ending == "svg" else {"Software": None}
        save: Callable[..., None] = fig.savefig
        save(buffer, format=ending, dpi=130, metadata=metadata)
    write_bytes(path, buffer.getvalue(), path.parents[1])
