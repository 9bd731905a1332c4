from __future__ import annotations

import io
import sys

import numpy as np
import pytest
from rich.console import Console

from fedalpha.data import PARTITIONS, describe_partition, plot_partition
from fedalpha.data.picture import label_counts, label_skew
from fedalpha.rng import generator
from fedalpha.store.exports import COLOURS

NAMES = [f"label {k}" for k in range(10)]


@pytest.mark.parametrize("clients", [1, 10, 100, 300])
def test_pictures_of_few_and_of_many_clients(tmp_path, clients: int) -> None:
    labels = np.arange(3000) % 10
    parts = PARTITIONS.parse("shards(size=10)").split(labels, clients, generator(0, "partition"))
    path = plot_partition(labels, parts, NAMES, tmp_path / "new" / "who.png")
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_more_labels_than_colours(tmp_path) -> None:
    labels = np.arange(400) % 40
    parts = PARTITIONS.parse("iid").split(labels, 5, generator(0, "partition"))
    assert plot_partition(labels, parts, [str(k) for k in range(40)], tmp_path / "who.svg").stat().st_size
    with pytest.raises(ValueError, match="one name per label"):
        plot_partition(labels, parts, NAMES, tmp_path / "who.svg")


def test_drawing_does_not_touch_pyplot(tmp_path) -> None:
    before = "matplotlib.pyplot" in sys.modules
    plot_partition([0, 1], [np.array([0]), np.array([1])], NAMES, tmp_path / "who.png")
    assert ("matplotlib.pyplot" in sys.modules) == before


def test_counts_and_skew_by_hand() -> None:
    counts = label_counts([0, 0, 1, 1], [np.array([0, 1, 2]), np.array([3])])
    assert counts.tolist() == [[2, 1], [0, 1]]
    assert np.allclose(label_skew(counts), [1 / 6, 1 / 2])  # against ½, ½


def test_description() -> None:
    console = Console(file=io.StringIO(), width=100)
    console.print(describe_partition([0, 0, 1, 1], [np.array([0, 1, 2]), np.array([3])], "a title"))
    text = console.file.getvalue()
    for expected in ("a title", "2 clients, 4 samples", "0.333", "0.500"):
        assert expected in text


def test_no_two_colours_are_alike() -> None:
    """Neighbours in a bar are told apart: the hues of the palette differ, or their lightness does."""
    from matplotlib.colors import to_rgb

    colours = np.array([to_rgb(colour) for colour in COLOURS])
    apart = np.abs(colours[:, None] - colours[None]).sum(axis=2)
    np.fill_diagonal(apart, np.inf)
    assert apart.min() > 0.35
    blue = [c for c in colours if c[2] > 0.6 and c[2] > 1.2 * c[0] and c[2] > 1.2 * c[1]]
    assert len(blue) == 2  # one blue, and a purple


def test_every_colour_is_seen_on_a_light_and_on_a_dark_page() -> None:
    """The contrast of WCAG 2, to white and to the dark paper of the reports; 3 is that of large text."""
    from matplotlib.colors import to_rgb

    def light(colour: str) -> float:
        values = [v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in to_rgb(colour)]
        return float(np.dot((0.2126, 0.7152, 0.0722), values)) + 0.05

    for colour in COLOURS:
        assert light("white") / light(colour) > 1.8, colour
        assert light(colour) / light("#17181c") > 3, colour
