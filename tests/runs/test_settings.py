"""The settings of the command line and the arguments of `fedalpha.run`: one builder, the same defaults."""

from __future__ import annotations

import inspect

from fedalpha import run
from fedalpha.runs.experiment import Evaluate, plan
from fedalpha.runs.settings import Settings


def test_both_ways_in_have_the_same_defaults() -> None:
    python = {name: p.default for name, p in inspect.signature(run).parameters.items() if p.default is not p.empty}
    fields = {name: field.default for name, field in Settings.model_fields.items()}
    common = python.keys() & fields.keys()
    assert {"strategy", "rounds", "seed", "select", "update", "combine", "apply", "quorum", "engine"} <= common
    assert {name: python[name] for name in common - {"model"}} == {name: fields[name] for name in common - {"model"}}
    evaluate = Evaluate(python["evaluate"])
    assert (fields["evaluate_every"], fields["signal"], fields["liars"]) == (1, evaluate.signal, evaluate.liars)


def test_run_passes_on_every_argument_that_describes_the_run() -> None:
    described = inspect.signature(run).parameters.keys() - {"engine", "callbacks", "out"}
    assert described == inspect.signature(plan).parameters.keys()


def test_run_takes_at_most_a_dozen_parameters_besides_the_plug_points() -> None:
    parameters = inspect.signature(run).parameters
    assert all(p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in parameters.values())
    assert len(parameters.keys() - {"strategy", "select", "update", "combine", "apply"}) <= 12
