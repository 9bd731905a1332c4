"""Pictures of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedalpha.analysis.history import History
from fedalpha.analysis.plots import figure, figure_of, over_rounds, plot_comparison, plot_run


def history(accuracy: list[float | None]) -> History:
    rows: list[dict[str, Any]] = [{"round": r, "accuracy": a, "loss": None} for r, a in enumerate(accuracy)]
    return History(rows, {})


@pytest.mark.parametrize("last", [1, 3, 20, 100])
def test_rounds_are_whole_numbers(last: int) -> None:
    fig, (ax,) = figure(6.5, 4.2)
    ax.plot([max(0, last - 20), last], [0.0, 1.0])
    over_rounds(ax, "accuracy")
    fig.canvas.draw()
    ticks = ax.get_xticks()
    assert len(ticks) > 1
    assert all(tick == int(tick) for tick in ticks)


def test_the_same_runs_give_the_same_picture_and_others_another(tmp_path: Path) -> None:
    def drawn(name: str, *values: float | None) -> bytes:
        plot_comparison({"FedAvg": [history([0.1, *values]), history([0.2, *values])]}, tmp_path / name, target=0.6)
        return (tmp_path / name).read_bytes()

    first = drawn("a.png", 0.5, None, 0.7)
    assert first == drawn("b.png", 0.5, None, 0.7)
    assert first != drawn("c.png", 0.5, None, 0.8)


def test_a_run_without_evaluations_has_an_empty_picture(tmp_path: Path) -> None:
    plot_run(history([None, None]), tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_accuracy_stays_between_0_and_100_and_its_target_is_named() -> None:
    """Bands of two seeds that disagree reach far beyond; the axis and the bands do not."""
    fig = figure_of({"FedAvg": [history([0.02, 0.5, 0.98]), history([0.1, 0.9, 0.6])]}, target=0.6)
    accuracy, _ = fig.axes
    bottom, top = accuracy.get_ylim()
    assert bottom >= 0
    assert top <= 100
    band = accuracy.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() >= 0
    assert band[:, 1].max() <= 100
    assert [text.get_text() for text in accuracy.texts] == ["60 %"]


def test_a_loss_axis_starts_near_its_curves() -> None:
    rows: list[dict[str, Any]] = [{"round": r, "accuracy": None, "loss": 2.0 + r / 10} for r in range(4)]
    fig = figure_of({"FedAvg": [History(rows, {})]}, column="loss")
    assert fig.axes[0].get_ylim()[0] > 1.5


def test_the_legend_stands_outside_of_the_axes() -> None:
    fig = figure_of({name: [history([0.1, 0.5])] for name in ("FedAvg", "FedWorse")})
    fig.canvas.draw()
    box = fig.legends[0].get_window_extent()
    assert not any(box.overlaps(ax.get_window_extent()) for ax in fig.axes)


def test_on_a_phone_the_loss_stands_below_the_accuracy() -> None:
    above, below = figure_of({"FedAvg": [history([0.1, 0.5])]}, narrow=True).axes
    assert (above.get_title(loc="left"), below.get_title(loc="left")) == ("test accuracy (%)", "test loss")
    assert above.get_position().y0 > below.get_position().y1


def test_losses_that_no_axis_can_show_are_left_out(tmp_path: Path) -> None:
    """A hostile client may report any loss, and a run must not end at its picture."""
    rows = [{"round": r, "accuracy": 0.5, "loss": loss} for r, loss in enumerate([1.0, 1.7e308, 2.0, 1e29])]
    drawn = figure_of({"run": [History(rows, {})]}).axes[1].lines[0]
    assert drawn.get_ydata().tolist() == [1.0, 2.0, 1e29]
    plot_run(History(rows, {}), tmp_path / "curves.png")
    plot_run(History([{**row, "loss": 1e29} for row in rows], {}), tmp_path / "constant.png")
