"""The paper's experiments: settings, published figures, protocols, calibration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy, nll_loss

from fedalpha.study import reproduction, study
from fedalpha.study.reproduction import CITED, NAMES, TABLES, Form, calibrate, calibration, experiment
from fedalpha.task import task

RESULTS = Path(__file__).parents[2] / "docs/results"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("protocol", ["printed", "authors", "calibrated"])
@pytest.mark.parametrize("form", [None, "quick", "table"])
def test_every_experiment_lays_out(name: str, protocol: str, form: Form | None) -> None:
    if form == "table" and name not in TABLES:
        with pytest.raises(
            ValueError, match=f"{name} is not a table of the paper; fmnist-noniid and fmnist-hybrid are"
        ):
            experiment(name, protocol, form=form)
        return
    found = experiment(name, protocol, form=form)
    cells = found.cells()
    assert len({c.key for c in cells}) == len(cells)
    assert found.name == f"{name}-{protocol}" + (f"-{form}" if form else "")
    for figure in found.published:
        assert figure.strategy in found.strategies
        assert figure.measure in found.measures
    if name != "further":
        settings = cells[0].settings
        assert (settings.clients, settings.model, settings.select) == (100, "cnn", "uniform")
        assert "batch=64, epochs=1" in settings.update
        assert settings.partition == ("iid" if name.startswith("mnist") else "shards(size=30)")


@pytest.mark.parametrize("name", CITED)
def test_every_cited_system_lays_out(name: str) -> None:
    """The data of some of them may not be on this machine; the layout does not need them."""
    found = experiment(name)
    cells = found.cells()
    assert len({c.key for c in cells}) == len(cells)
    assert any(word in found.note for word in ("Read:", "Not read:", "were read in"))
    assert not found.unanswered()
    short = experiment(name, form="quick")
    assert short.name == f"{name}-quick"
    assert len(short.cells()) <= 4
    assert max(cell.settings.rounds for cell in short.cells()) <= 3


def test_a_cited_system_has_no_protocol_and_no_table() -> None:
    with pytest.raises(ValueError, match="cho-2020 is not an experiment of the paper and has no protocols"):
        experiment("cho-2020", "authors")
    with pytest.raises(ValueError, match="cho-2020 is not a table of the paper"):
        experiment("cho-2020", form="table")


def test_a_published_figure_stands_in_the_cases_of_its_name() -> None:
    figures = {p.case: p for p in experiment("mcmahan-2017").published}
    assert {case: p.mean for case, p in figures.items()} == {"IID": 87, "two shards a client": 664}
    assert [case for case in experiment("mcmahan-2017").variations() if figures["IID"].of(case)] == [
        "IID, lr=0.05",
        "IID, lr=0.1",
    ]
    assert [p.case for p in experiment("mcmahan-2017", form="quick").published] == ["IID"]


def test_the_published_figures_are_the_papers() -> None:
    found = {(p.strategy.split("(")[0], p.mean, p.half) for n in NAMES for p in experiment(n).published}
    assert found == {
        ("FedAvg", 0.8967, None),
        ("FedSoftWorse", 0.8977, None),
        ("FedSoftBetter", 0.8970, None),
        ("FedAvg", 5.90, 0.37),
        ("FedSoftWorse", 5.73, 0.35),
        ("FedSoftBetter", 5.57, 0.32),
        ("FedAvg", 5.48, 0.75),
        ("FedSoftWorseAvg", 6.13, 0.91),
        ("FedSoftBetterAvg", 4.97, 0.57),
        ("FedAvgSoftWorse", 5.76, 0.72),
        ("FedAvgSoftBetter", 5.64, 0.78),
    }


def test_a_table_asks_for_its_published_figures_and_its_rows_are_stored() -> None:
    stored = {cell["cell"] for cell in json.loads((RESULTS / "fmnist-r60-soft/study.json").read_text())["cells"]}
    for name in TABLES:
        found = experiment(name, form="table")
        assert found.measures == ("R_60",)
        assert {p.strategy for p in found.published} == set(found.strategies)
        assert {claim.measure for claim in found.claims} == {"R_60"}
        assert {cell.key for cell in found.cells()} <= stored
        assert len(experiment(name, form="table", seeds="4").cells()) == 4 * len(found.strategies)


def test_protocols_differ_as_the_specification_says() -> None:
    printed, authors, calibrated = (
        experiment("mnist-iid", p).cells()[1].settings for p in ("printed", "authors", "calibrated")
    )
    assert printed.update.startswith("sgd(lr=exponential(0.001)")
    assert authors.update == printed.update
    assert authors.strategy == f"FedSoftWorse(T={1 / 15}, prior=uniform, loss=train)"
    assert "FedSoftWorse(T=0.2, " in experiment("mnist-hybrid", "authors").cells()[1].settings.strategy
    assert experiment("fmnist-noniid", "authors").cells()[1].settings.strategy.startswith("FedSoftWorse(T=0.2, ")
    assert (authors.pixels, authors.task) == ("raw", "batch_softmax")
    assert (calibrated.pixels, calibrated.task, calibrated.strategy) == ("unit", "cross_entropy", "FedSoftWorse(T=0.2)")
    assert calibrated.update != printed.update


def test_the_authors_loss_by_hand() -> None:
    output, target = torch.randn(7, 10, generator=torch.manual_seed(0)), torch.arange(7)
    inside = output.exp() / output.exp().sum(dim=0)
    expected = nll_loss(inside.log_softmax(dim=1), target, reduction="sum")
    assert torch.allclose(task("batch_softmax").loss(output, target), expected)
    assert torch.allclose(task("summed").loss(output, target), 7 * cross_entropy(output, target))
    assert task("batch_softmax").correct(output, target).tolist() == (output.argmax(1) == target).tolist()  # type: ignore[misc]
    with pytest.raises(ValueError, match="did you mean 'summed'"):
        task("sumed")


def test_unknown_names_are_told() -> None:
    with pytest.raises(ValueError, match="did you mean 'mnist-iid'"):
        experiment("mnist-iids")
    with pytest.raises(ValueError, match="did you mean 'authors'"):
        experiment("mnist-iid", "author")
    with pytest.raises(ValueError, match="no calibration of its own"):
        calibration("fmnist-topk")


def test_calibration_never_sees_reported_seeds() -> None:
    for name in ("mnist-iid", "fmnist-noniid"):
        plan = calibration(name)
        assert plan.strategies == ("FedAvg",)
        assert min(plan.seeds) >= 1000 > max(experiment(name).seeds)


def test_calibration_takes_the_nearest_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On digits: a tiny rate learns nothing, so the one that reaches the target wins."""
    values: dict[str, Any] = {
        "name": "mini",
        "strategies": ["FedAvg", "FedWorse"],
        "seeds": 2,
        "protocol": "calibrated",
        "settings": {"dataset": "digits", "partition": "iid", "clients": 3, "model": "softmax", "rounds": 3},
        "calibration": {"measure": "accuracy", "target": 0.8, "lr": [0.001, 0.3], "seeds": "1000-1001"},
    }
    monkeypatch.setattr(reproduction, "experiment", lambda name, protocol: study(values))
    rates, best = calibrate("mini", tmp_path)
    assert [r.lr for r in rates] == [0.001, 0.3]
    assert rates[0].mean.mean < 0.5 < rates[1].mean.mean
    assert best.lr == 0.3
