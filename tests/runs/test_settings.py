"""The settings of the command line and the arguments of `fedalpha.run`: the same defaults, one form for both."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import fedalpha
from fedalpha import run
from fedalpha.runs.evaluate import Evaluate
from fedalpha.runs.experiment import plan
from fedalpha.runs.reading import read_settings
from fedalpha.runs.settings import Settings
from fedalpha.trust import UntrustedError


def test_both_ways_in_have_the_same_defaults() -> None:
    python = {name: p.default for name, p in inspect.signature(run).parameters.items() if p.default is not p.empty}
    fields = {name: field.default for name, field in Settings.model_fields.items()}
    common = python.keys() & fields.keys()
    assert {"strategy", "rounds", "seed", "select", "update", "combine", "apply", "quorum", "engine"} <= common
    assert {name: python[name] for name in common - {"model"}} == {name: fields[name] for name in common - {"model"}}
    evaluate = Evaluate(python["evaluate"])
    assert (fields["evaluate_every"], fields["signal"], fields["liars"]) == (1, evaluate.signal, evaluate.liars)


def test_run_passes_on_every_argument_that_describes_the_run() -> None:
    described = inspect.signature(run).parameters.keys() - {"engine", "callbacks", "progress", "out"}
    assert described == inspect.signature(plan).parameters.keys()


def test_run_takes_at_most_a_dozen_parameters_besides_the_plug_points() -> None:
    parameters = inspect.signature(run).parameters
    assert all(p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in parameters.values())
    plug_points = {"strategy", "select", "update", "combine", "apply", "secure", "server", "clock", "availability"}
    assert len(parameters.keys() - plug_points - {"fault"}) <= 12  # a fault is a text of a registered object, too


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"lr": 0.1, "update": "sgd(lr=0.5)"}, r"lr is given twice: 0.1, and in update = 'sgd\(lr=0.5\)'; keep one"),
        ({"lr": 0.1, "update": "sgd(0.5)"}, "lr is given twice"),
        ({"batch": 8, "update": "fedprox(batch=8)"}, "batch is given twice"),
        ({"ratio": 0.1, "select": "uniform(C=0.5)"}, "ratio is given twice"),
        ({"device": "cpu", "engine": "embedded(device=cuda)"}, "device is given twice"),
    ],
)
def test_an_argument_that_is_given_twice_is_refused(options: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=reason):
        read_settings(None, options)
    file = tmp_path / "run.json"
    file.write_text(json.dumps(options))
    with pytest.raises(ValueError, match="given twice"):
        read_settings(file, {})


def test_an_option_overrides_a_file_in_either_form(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('update = "sgd(lr=0.5, batch=7)"')
    assert read_settings(file, {"lr": 0.1}).resolved().update == "sgd(lr=0.1, batch=7, epochs=1)"
    file.write_text("lr = 0.5\nbatch = 7\nratio = 0.3")
    found = read_settings(file, {"update": "sgd(lr=0.1)", "select": "uniform(C=0.2)"}).resolved()
    assert (found.update, found.select) == ("sgd(lr=0.1, batch=7, epochs=1)", "uniform(C=0.2)")


def python_run(out: Path, **more: Any) -> None:
    data = fedalpha.federation("digits", partition="shards(size=30)", clients=5, seed=3, validation=0.1)
    fedalpha.run(
        data, **{"model": "softmax", "rounds": 2, "seed": 3, "out": out, "engine": "embedded(workers=1)"} | more
    )


def test_a_folder_made_in_python_is_repeated_from_its_config(tmp_path: Path) -> None:
    watch = fedalpha.Evaluate(every=2, keep="best", shadow=["FedWorse"])
    more = {"strategy": "FedSoftWorse", "update": "sgd(lr=0.2, batch=10)", "select": "uniform(C=0.5)", "quorum": 1}
    python_run(tmp_path / "python", evaluate=watch, fault="drop(p=0.1)", **more)
    settings = read_settings(tmp_path / "python" / "config.json", {})
    settings.run(out=tmp_path / "again", workers=1)
    for name in ("model.safetensors", "best.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "python" / name).read_bytes()
    # Either side may go on in the other's folder.
    longer = read_settings(tmp_path / "python" / "config.json", {"rounds": 3})
    assert longer.run(out=tmp_path / "python", workers=1).rows[-1]["round"] == 3
    python_run(tmp_path / "again", evaluate=watch, fault="drop(p=0.1)", rounds=3, **more)
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (
        tmp_path / "python" / "model.safetensors"
    ).read_bytes()


def test_what_has_no_text_says_so(tmp_path: Path) -> None:
    python_run(tmp_path / "module", model=nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))
    python_run(tmp_path / "seed", seed=4)
    for name in ("module", "seed"):
        with pytest.raises(ValueError, match="started in Python with objects that have no text"):
            read_settings(tmp_path / name / "config.json", {})


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: fedalpha.federation("digits", clients=2.5), "clients = 2.5; give a whole number ≥ 1"),  # type: ignore[arg-type]
        (lambda: fedalpha.federation("digits", seed=None), "seed = None; give a whole number"),  # type: ignore[arg-type]
        (lambda: fedalpha.federation("digits", validation="a"), "validation = 'a'"),  # type: ignore[arg-type]
        (lambda: tiny(seed=None), "seed = None; give a whole number ≥ 0"),
        (lambda: tiny(rounds=2.5), "rounds = 2.5; give a whole number ≥ 0"),
        (lambda: tiny(rounds=True), "rounds = True"),
        (lambda: tiny(quorum="2"), "quorum = '2'; give a number of clients"),
        (lambda: tiny(deadline="2"), "deadline = '2'; give a number of seconds"),
        (lambda: tiny(evaluate="2"), "evaluate: every = '2'; give a whole number ≥ 1"),
        (lambda: tiny(engine="embedded(workers='2')"), "workers = '2'; give a whole number ≥ 1"),
    ],
)
def test_numbers_of_the_wrong_kind_are_named(call: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        call()


def tiny(**more: Any) -> None:
    fedalpha.run(fedalpha.federation("digits", clients=2), "softmax", **{"rounds": 0, **more})


def test_a_file_names_loggers_only_with_the_users_word(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("FEDALPHA_STATE", str(tmp_path / "state"))
    file = tmp_path / "run.toml"
    text = f"csv('{tmp_path}/rounds.csv')"
    file.write_text(f'rounds = 1\nlog = ["{text}"]\n')
    with pytest.raises(UntrustedError, match="name the logger yourself: --log"):
        read_settings(file, {})
    found = read_settings(file, {}, trust=True)
    assert found.log == [text]
    assert "log" not in found.resolved().model_dump()  # not part of the configuration
