"""A picture and a table of a partition: how many samples of each label the clients have."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedalpha.store.exports import COLOURS, new_figure, write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.table import Table

_INK, _PALE = "#333333", "#8a8a8a"


def label_counts(labels: ArrayLike, parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """The table clients × labels of sample counts; labels are 0 … K − 1.

    >>> label_counts([0, 1, 1], [np.array([0, 1]), np.array([2])])
    array([[1, 1],
           [0, 1]])
    """
    y = np.asarray(labels, dtype=np.int64)
    kinds = int(y.max()) + 1
    return np.stack([np.bincount(y[part], minlength=kinds) for part in parts]).astype(np.int64)


def label_skew(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Each client's total-variation distance ½ Σ_k |q_ik − q_k| to the label distribution of all: 0 is IID.

    >>> label_skew(np.array([[2, 0], [0, 2]]))
    array([0.5, 0.5])
    """
    own = counts / counts.sum(axis=1, keepdims=True)
    whole = counts.sum(axis=0) / counts.sum()
    skew: NDArray[np.float64] = np.abs(own - whole).sum(axis=1) / 2
    return skew


def describe_partition(labels: ArrayLike, parts: Sequence[NDArray[np.int64]], title: str = "") -> Table:
    """A small table: sizes, labels per client, and the mean distance to the global label distribution."""
    from rich.table import Table

    counts = label_counts(labels, parts)
    sizes, kinds = counts.sum(axis=1), (counts > 0).sum(axis=1)
    table = Table(title=title or None, title_justify="left")
    table.add_column(f"{len(parts)} clients, {sizes.sum()} samples")
    for name in ("min", "median", "max"):
        table.add_column(name, justify="right")
    rows = (
        ("samples per client", sizes, "{:g}"),
        ("labels per client", kinds, "{:g}"),
        ("distance to the global label distribution", label_skew(counts), "{:.3f}"),
    )
    for name, values, form in rows:
        table.add_row(name, *(form.format(f(values)) for f in (np.min, np.median, np.max)))
    table.add_section()
    table.add_row("mean distance (total variation; 0 is IID)", "", f"{label_skew(counts).mean():.3f}", "")
    return table


def plot_partition(
    labels: ArrayLike,
    parts: Sequence[NDArray[np.int64]],
    class_names: Sequence[str],
    path: str | Path,
    title: str = "",
) -> Path:
    """Draw a partition to ``path`` (its suffix sets the format), and return the path.

    Above, each client's size, stacked by label; below, the share of each label in each client.
    """
    figure = partition_figure(label_counts(labels, parts), class_names, title)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_figure(figure, path)
    return path


def partition_figure(
    counts: NDArray[np.int64], class_names: Sequence[str], title: str = "", ax: Axes | None = None
) -> Figure:
    """A partition as a figure, from the table clients × labels. With ``ax`` only the sizes are drawn, on that axis."""
    clients, kinds = counts.shape
    if len(class_names) < kinds:
        raise ValueError(f"{len(class_names)} class names for labels 0 … {kinds - 1}; pass one name per label")
    colours = [COLOURS[k % len(COLOURS)] for k in range(kinds)]
    if ax is not None:
        found = ax.get_figure(root=True)
        assert found is not None, "an axis belongs to a figure"
        _draw_sizes(ax, counts, colours, title)
        ax.set_xlabel("client", color=_INK)
        _plain(ax)
        return found
    tall = 0.27 * min(kinds, 30)
    figure = new_figure(float(np.clip(4.5 + 0.16 * clients, 8, 16)), 3.2 + tall, dpi=160)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2.0, tall))
    _draw_sizes(above, counts, colours, title)
    _draw_shares(below, counts, colours, list(class_names)[:kinds])
    for axes in (above, below):
        _plain(axes)
    return figure


def _plain(axes: Axes) -> None:
    axes.tick_params(length=0, colors=_INK, which="both", labelsize=9)
    axes.spines[:].set_visible(False)


def _draw_sizes(axes: Axes, counts: NDArray[np.int64], colours: Sequence[str], title: str) -> None:
    """Each client's size, stacked by label, and their mean."""
    clients, kinds = counts.shape
    sizes = counts.sum(axis=1)
    x, bottom = np.arange(clients), np.zeros(clients)
    bar = 0.82 if clients <= 60 else 0.9
    for k in range(kinds):
        axes.bar(x, counts[:, k], bar, bottom=bottom, color=colours[k], linewidth=0)
        bottom += counts[:, k]
    axes.axhline(float(sizes.mean()), color=_INK, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.annotate(
        f"mean {sizes.mean():.0f}",
        (1, float(sizes.mean())),
        xycoords=("axes fraction", "data"),
        xytext=(4, 0),
        textcoords="offset points",
        va="center",
        fontsize=8,
        color=_INK,
    )
    axes.set_ylabel("samples", color=_INK)
    axes.set_title(
        title or f"{sizes.sum():,} samples on {clients} clients", loc="left", fontsize=12, color=_INK, pad=20
    )
    axes.text(
        0,
        1.03,
        f"{sizes.min()} to {sizes.max()} samples a client, "
        f"{(counts > 0).sum(axis=1).mean():.1f} labels a client on average, "
        f"distance to the global label distribution {label_skew(counts).mean():.2f}",
        transform=axes.transAxes,
        fontsize=8.5,
        color=_PALE,
    )
    axes.grid(axis="y", color="#eeeeee", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_ylim(0, 1.05 * sizes.max())


def _draw_shares(axes: Axes, counts: NDArray[np.int64], colours: Sequence[str], names: Sequence[str]) -> None:
    """The share of each label in each client."""
    from matplotlib.colors import to_rgba_array

    clients, kinds = counts.shape
    # Each cell takes its label's colour, the deeper the larger the label's share in the client.
    share = counts / counts.sum(axis=1)[:, None]
    depth = np.sqrt(share / share.max()).T[:, :, None]
    empty = 0.97
    cells = empty - depth * (empty - to_rgba_array(colours)[:, None, :3])
    axes.imshow(cells.clip(0, 1), aspect="auto", interpolation="nearest")
    axes.set_yticks(range(kinds), names)
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500, clients) if clients <= 25 * s or s == clients)
    axes.set_xticks(range(0, clients, step))
    axes.set_yticks(np.arange(kinds + 1) - 0.5, minor=True)
    axes.set_xticks(np.arange(clients + 1) - 0.5, minor=True)
    if clients <= 200:
        axes.grid(which="minor", color="white", linewidth=2 if clients <= 60 else 1)
    axes.set_xlabel(f"client (colour depth: share of the label in the client, up to {share.max():.0%})", color=_INK)
