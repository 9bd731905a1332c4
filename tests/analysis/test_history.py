"""The comfort of a history: short texts, columns, tables, files, and more rounds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

import fedalpha
from fedalpha import Callback, Evaluate, History
from fedalpha.report.single import run_page
from histories import same_model, without_times

ENGINE = "embedded(workers=1)"


@pytest.fixture(scope="module")
def digits() -> fedalpha.data.Federation:
    return fedalpha.federation("digits", partition="shards(size=30)", clients=8, validation=0.1)


@pytest.fixture(scope="module")
def history(digits) -> History:
    return fedalpha.run(digits, "softmax", "FedSoftWorse", rounds=9, engine=ENGINE, evaluate=Evaluate(keep="best"))


def test_it_is_shown_in_a_few_lines(history) -> None:
    assert len(repr(history)) < 200
    page = history._repr_html_()
    assert page.count("<tr>") == 8  # a header, three rows, an ellipsis, three rows
    assert f"{history.accuracy[-1]:.4g}" in page
    assert len(page) < 2000


def test_rows_and_columns_are_indexed(history) -> None:
    assert len(history) == 10
    assert history[-1] is history.rows[9]
    assert [row["round"] for row in history[2:4]] == [2, 3]
    assert np.array_equal(history["loss"], history.loss)
    assert [row["round"] for row in history] == list(range(10))
    with pytest.raises(ValueError, match=r"unknown column 'acuracy'; did you mean 'accuracy'"):
        history["acuracy"]


def test_the_summary_describes_the_last_row(history) -> None:
    found = history.summary(target=0.5)
    assert (found["rounds"], found["accuracy"]) == (9, history.rows[-1]["accuracy"])
    assert found["R_50"] == history.rounds_to(0.5)
    assert found["bytes_up"] == sum(row["bytes_up"] for row in history.rows)
    assert found["best_round"] == history.best.round
    for wrong in (60, "a", -0.1):
        with pytest.raises(ValueError, match=r"give an accuracy between 0 and 1 \(0\.6, not 60\)"):
            history.summary(wrong)  # type: ignore[arg-type]


def test_the_plot_is_a_figure_and_draws_the_rows(history) -> None:
    fig = history.plot()
    assert isinstance(fig, Figure)
    accuracy, loss = (ax.lines[0] for ax in fig.axes)
    assert np.array_equal(accuracy.get_ydata(), 100 * history.accuracy)
    assert np.array_equal(loss.get_ydata(), history.loss)
    own = Figure()
    ax = own.subplots()
    assert history.plot(ax=ax, column="effective_clients", label="softly") is own
    assert np.array_equal(ax.lines[0].get_ydata(), history["effective_clients"][1:])
    with pytest.raises(ValueError, match="unknown column 'los'; did you mean 'loss'"):
        history.plot(column="los")
    with pytest.raises(TypeError, match="'loss' is not an axis of matplotlib; the column to draw is column='loss'"):
        history.plot("loss")  # type: ignore[arg-type]


def test_pandas_has_a_line_per_row(history) -> None:
    table = history.to_pandas()
    assert table.index.tolist() == list(range(10))
    assert table["accuracy"].tolist() == history.accuracy.tolist()
    assert table.loc[3, "alpha"] == history[3]["alpha"]


def test_a_saved_history_is_loaded_as_it_was(history, tmp_path: Path) -> None:
    there = history.save(tmp_path / "kept")
    again = History.load(there)
    assert again.rows == history.rows
    assert same_model(again, history)
    assert again.best.round == history.best.round
    assert not again.interrupted
    assert "9 rounds, finished" in run_page(there)
    with pytest.raises(ValueError, match="not an empty folder"):
        history.save(there)
    about = json.loads((there / "saved.json").read_text())
    (there / "saved.json").write_text(json.dumps({**about, "interrupted": True}))
    assert History.load(there).interrupted
    assert "9 rounds, not finished" in run_page(there)
    (there / "saved.json").write_text(json.dumps({**about, "format": 99}))
    with pytest.raises(ValueError, match="has the format 99; this version reads 1"):
        History.load(there)


@pytest.mark.parametrize("folder", [False, True])
def test_a_continued_run_has_the_rows_of_a_longer_one(digits, tmp_path: Path, folder: bool) -> None:
    """With evaluate=2 the third row is tested only because the run ended there: the longer run does not test it."""
    given = {"evaluate": 2, "engine": ENGINE, "update": "scaffold"}
    out = tmp_path / "run" if folder else None
    short = fedalpha.run(digits, "softmax", rounds=3, out=out, **given)
    before = without_times(short)
    longer = short.continue_(rounds=5)
    whole = fedalpha.run(digits, "softmax", rounds=5, **given)
    assert without_times(longer) == without_times(whole)
    assert same_model(longer, whole)
    assert without_times(short) == before  # the shorter history is as it was
    assert longer.continue_(rounds=6)[-1]["round"] == 6
    if folder:
        assert History.load(tmp_path / "run")[-1]["round"] == 6
        finished = fedalpha.run(digits, "softmax", rounds=6, out=out, **given)
        assert finished.continue_(rounds=7)[-1]["round"] == 7


def test_what_cannot_be_continued_says_why(history, digits, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="9 are played; give a larger number of rounds in all"):
        history.continue_(rounds=9)
    with pytest.raises(ValueError, match="read from files"):
        History.load(history.save(tmp_path / "kept")).continue_(rounds=20)
    stop = Evaluate(stop="round >= 1")
    stopped = fedalpha.run(digits, "softmax", rounds=4, engine=ENGINE, evaluate=stop)
    with pytest.raises(ValueError, match=r"stopped early \(round >= 1\)"):
        stopped.continue_(rounds=8)


def test_a_callback_sees_the_model_of_every_round(digits) -> None:
    class Models(Callback):
        def on_start(self, rounds: int) -> None:
            self.seen = []

        def on_round(self, row, state) -> None:
            self.seen.append({name: value.clone() for name, value in state.model.items()})

    models = Models()
    history = fedalpha.run(digits, "softmax", rounds=2, engine=ENGINE, callbacks=[models])
    assert len(models.seen) == 3
    assert all(models.seen[-1][name].equal(value) for name, value in history.model.items())
    assert not all(models.seen[0][name].equal(value) for name, value in history.model.items())
