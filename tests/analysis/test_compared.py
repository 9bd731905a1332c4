"""A comparison as an object: its table in every form, its picture, its files."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

import fedalpha
from fedalpha import Callback, Comparison, compare

GIVEN = {"model": "softmax", "rounds": 2, "engine": "embedded(workers=1)"}


def digits(seed: int) -> fedalpha.data.Federation:
    return fedalpha.federation("digits", partition="shards(size=30)", clients=6, seed=seed)


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> tuple[Comparison, Path]:
    out = tmp_path_factory.mktemp("comparison") / "both"
    return compare(digits, ["FedAvg", "FedSoftWorse(T=0.2)"], seeds=2, target=0.3, out=out, **GIVEN), out


def test_runs_are_those_of_single_calls(found) -> None:
    comparison, _ = found
    alone = fedalpha.run(digits(1), strategy="FedSoftWorse(T=0.2)", seed=1, **GIVEN)
    assert comparison["FedSoftWorse(T=0.2)"][1].accuracy.tolist() == alone.accuracy.tolist()
    assert comparison.seeds == [0, 1]
    assert repr(comparison) == "Comparison(2 strategies, 2 seeds: FedAvg, FedSoftWorse(T=0.2))"
    with pytest.raises(ValueError, match="unknown strategy 'FedAvgg'; did you mean 'FedAvg'"):
        comparison["FedAvgg"]


def test_the_table_has_the_same_numbers_in_every_form(found) -> None:
    comparison, _ = found
    ends = [h.accuracy[-1] for h in comparison["FedAvg"].values()]
    shown = f"{100 * np.mean(ends):.2f} ± "
    assert f"| FedAvg | 2 | {shown}" in comparison.table("markdown")
    latex = comparison.table("latex")
    assert shown.replace("±", r"$\pm$") in latex
    assert r"R\_30 (rounds)" in latex
    lines = list(csv.DictReader(io.StringIO(comparison.table("csv"))))
    assert [line["measure"] for line in lines] == ["accuracy", "accuracy", "R_30", "R_30"]
    assert float(lines[0]["mean"]) == np.mean(ends)
    differences = [
        b.accuracy[-1] - a.accuracy[-1] for a, b in zip(*(r.values() for r in comparison.runs.values()), strict=True)
    ]
    assert float(lines[1]["difference"]) == pytest.approx(np.mean(differences), abs=1e-12)
    assert shown.split()[0] in comparison._repr_html_()
    with pytest.raises(ValueError, match="not one of markdown, latex, csv"):
        comparison.table("xml")


def test_pictures_and_pandas(found) -> None:
    comparison, _ = found
    accuracy, loss = comparison.plot().axes
    assert [line.get_label() for line in accuracy.lines[:2]] == comparison.strategies
    means = np.mean([h.loss for h in comparison["FedAvg"].values()], axis=0)
    assert np.allclose(loss.lines[0].get_ydata(), means)
    table = comparison.to_pandas()
    assert len(table) == 2 * 2 * 3
    assert table.loc[("FedAvg", 1, 2), "accuracy"] == comparison["FedAvg"][1].accuracy[-1]


def test_the_folder_is_loaded_as_it_was(found, tmp_path: Path) -> None:
    comparison, out = found
    for there in (out, comparison.save(tmp_path / "saved")):
        again = Comparison.load(there)
        assert again.rows == comparison.rows
        assert (there / "table.tex").read_text() == comparison.table("latex")
        assert (there / "curves.png").read_bytes()[:4] == b"\x89PNG"
    (tmp_path / "saved" / "comparison.json").write_text(
        json.dumps({"strategies": ["FedAvg"], "seeds": ["../0"], "target": 0.6})
    )
    with pytest.raises(ValueError, match="is damaged"):
        Comparison.load(tmp_path / "saved")
    with pytest.raises(ValueError, match="holds no comparison"):
        Comparison.load(tmp_path)


def test_the_same_call_again_plays_nothing(found) -> None:
    _, out = found

    class Refuse(Callback):
        def on_start(self, rounds: int) -> None:
            raise AssertionError

    compare(digits, ["FedAvg", "FedSoftWorse(T=0.2)"], seeds=2, target=0.3, out=out, callbacks=[Refuse()], **GIVEN)


def test_the_folder_of_a_run_or_study_is_not_overwritten(found, tmp_path: Path) -> None:
    comparison, _ = found
    for name, kind in (("config.json", "run"), ("study.json", "study")):
        folder = tmp_path / kind
        folder.mkdir()
        (folder / name).write_text("{}")
        (folder / "curves.png").write_bytes(b"mine")
        with pytest.raises(ValueError, match=f"holds a {kind}; choose another folder for a comparison"):
            compare(digits, ["FedAvg"], seeds=1, out=folder, **GIVEN)
        with pytest.raises(ValueError, match=f"holds a {kind}; choose another folder for a comparison"):
            comparison.save(folder)
        assert sorted(file.name for file in folder.iterdir()) == sorted([name, "curves.png"])
        assert (folder / "curves.png").read_bytes() == b"mine"


def test_mistakes_are_reported_before_anything_is_trained() -> None:
    class Refuse(Callback):
        def on_start(self, rounds: int) -> None:
            raise AssertionError

    given = {**GIVEN, "callbacks": [Refuse()]}
    with pytest.raises(ValueError, match="unknown strategy 'FedAvgg'"):
        compare(digits, ["FedAvg", "FedAvgg"], **given)
    with pytest.raises(ValueError, match="no validation part"):
        compare(digits, ["FedAvg", "switch(FedWorse, FedAvg, accuracy=0.6)"], **given)
    with pytest.raises(TypeError, match="no argument 'round'; did you mean 'rounds'"):
        compare(digits, ["FedAvg"], round=3)
    with pytest.raises(TypeError, match=r"'FedAvg' is one strategy; give a list"):
        compare(digits, "FedAvg", **given)
    with pytest.raises(TypeError, match="federation is a function, which is called with a seed: too many positional"):
        compare(lambda: digits(0), ["FedAvg"], **given)
    with pytest.raises(ValueError, match="seeds = 0"):
        compare(digits, ["FedAvg"], seeds=0)
    with pytest.raises(ValueError, match=r"is the same for every run; write \{run\} in it"):
        compare(digits, ["FedAvg"], seeds=2, **{**GIVEN, "callbacks": ["csv(rounds.csv)"]})


def test_progress_is_shown_in_plain_lines(capsys) -> None:
    compare(digits, ["FedAvg"], seeds=1, progress=True, **GIVEN)
    assert "FedAvg, seed 0  round 2/2  accuracy" in capsys.readouterr().out
