"""A live federation gives the rows and the model of `fedalpha.run`, to the bit, for every rule.

Real ClientApps and messages on a grid in this process: 12 clients of which half take part, 4 rounds. Client 2 is
refused because of its loss: before weighing, where the rule looks at losses. Client 5 is lost after weighing.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Message
from torch import nn

import fedalpha
from fedalpha.apply import APPLIES
from fedalpha.combine import COMBINES
from fedalpha.data import Pooled
from fedalpha.flower import FedAlpha, client_app, evaluate_on, initial_arrays
from fedalpha.flower.pytorch import to_parameters
from fedalpha.select import SELECTIONS
from fedalpha.strategies import STRATEGIES

SHUFFLED = [7, 2, 11, 0, 5, 1, 9, 3, 10, 4, 8, 6]
ACCIDENTS = "together(lie(loss=-1, clients=[2]), drop(clients=[5]))"
UPDATE = "sgd(lr=0.1, batch=20, momentum=0.5)"


class Net(nn.Module):
    """Convolution, batch norm (an integer buffer) and dropout (a generator)."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.2), nn.Flatten())
        self.head = nn.Linear(144, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


def app_of(digits: Pooled, model: Any, update: str) -> Any:
    return client_app(
        model, lambda context: digits.client(int(context.node_config["partition-id"])), update, classes=10, seed=5
    )


def accidents(grid: Any) -> Callable[[int, Message, Message], Message | None]:
    """What `ACCIDENTS` does, done to real replies."""

    def spoil(node: int, message: Message, reply: Message) -> Message | None:
        kind, client = message.metadata.message_type, grid.client(node)
        if kind in ("query.loss", "train") and client == 2:
            metrics = reply.content["metrics"]
            metrics.update({key: -1.0 for key in metrics if key.endswith("loss")})
        return None if kind == "train" and client == 5 else reply

    return spoil


LIVE = {"nodes", "fresh", "metrics"}
"""Columns of live federations alone."""
UNLIKE = LIVE | {"seconds", "refused", "worst_client_accuracy", "client_accuracy_spread"}
"""Columns that differ: reasons of refusals are in other words, a server does not know its clients' labels."""


def compare(rule: FedAlpha, found: Any, expected: Any) -> None:
    for row, other in zip(rule.rows, expected.rows, strict=True):
        assert [name for name in row if name not in LIVE] == list(other)
        assert row.keys() >= LIVE
        assert {k: v for k, v in row.items() if k not in UNLIKE} == {k: v for k, v in other.items() if k not in UNLIKE}
        assert {r["client"] for r in row["refused"]} == {r["client"] for r in other["refused"]}
    found = to_parameters(found.arrays)
    assert found.keys() == expected.model.keys()
    for name, value in found.items():
        assert value.numpy().tobytes() == expected.model[name].numpy().tobytes(), name


def both(
    digits: Pooled,
    grid_of: Any,
    strategy: str = "FedSoftWorse(T=0.2)",
    model: Any = "softmax",
    spoil: bool = True,
    update: str = UPDATE,
    server: dict[str, Any] | None = None,
    **rules: Any,
) -> FedAlpha:
    """Run both and compare them; ``rules`` are the same text in both."""
    out = rules.pop("out", None)
    rules.setdefault("select", "uniform(C=0.5)")
    rules.setdefault("fault", None)
    expected = fedalpha.run(
        digits,
        model,
        strategy,
        rounds=4,
        seed=5,
        update=update,
        engine="embedded(workers=1, vectorise=false)",
        **{**rules, "fault": ACCIDENTS if spoil else rules["fault"]},
    )
    rule = FedAlpha(strategy, seed=5, clients=12, fraction_evaluate=0.0, bound=None, out=out, **rules, **(server or {}))
    grid = grid_of(app_of(digits, model, update), SHUFFLED)
    grid.spoil = accidents(grid) if spoil else grid.spoil
    first = initial_arrays(model, digits.shape, 10, seed=5)
    test = evaluate_on(model, digits.test, classes=10)
    found = rule.start(grid, first, num_rounds=4, timeout=0.2, evaluate_fn=test)
    compare(rule, found, expected)
    if spoil and strategy == "FedSoftWorse(T=0.2)":  # it asks for losses, and all clients have a weight
        refused = {refusal["client"] for row in rule.rows for refusal in row["refused"]}
        assert refused == {2, 5}
        assert not any(2 in row["cohort"] for row in rule.rows[1:] if row["kept"] is None)
    return rule


@pytest.mark.parametrize("strategy", [entry.examples[0] for entry in STRATEGIES])
def test_every_strategy(digits: Pooled, grid_of: Any, strategy: str) -> None:
    both(digits, grid_of, strategy)


@pytest.mark.parametrize("select", [text for entry in SELECTIONS for text in entry.examples])
def test_every_selection(digits: Pooled, grid_of: Any, select: str) -> None:
    both(digits, grid_of, "FedAvg", select=select)


HALF = {
    "by_size": "by_size(C=0.6)",  # of fewer clients, client 2 is never one
    "fedpage": "fedpage(C=0.5, p=0.3)",
    "power_of_choice": "power_of_choice(C=0.5, d=0.75)",
}
"""Selections of half of the clients for which C=0.5 is not all that has to be said."""
HALVES = [HALF.get(e.name, f"{e.name}(C=0.5)") for e in SELECTIONS if "C" in inspect.signature(e.make).parameters]


@pytest.mark.parametrize("select", HALVES)
def test_every_selection_of_half_of_the_clients_with_a_refused_and_a_lost_one(
    digits: Pooled, grid_of: Any, select: str
) -> None:
    both(digits, grid_of, "FedSoftWorse(T=0.2)", select=select)


EXEMPT = {text for entry in COMBINES for text in entry.examples if "server" in COMBINES.parse(text).wants}
"""The only rules that a live federation does not have: those that learn on the server's data."""
COMBINED = [text for entry in COMBINES for text in entry.examples if text not in EXEMPT]


def test_rules_that_learn_on_the_servers_data_are_refused() -> None:
    assert "fedlaw" in EXEMPT
    for text in EXEMPT:
        with pytest.raises(ValueError, match="learns on the server's data"):
            FedAlpha("FedAvg", combine=text)


@pytest.mark.parametrize("combine", COMBINED)
def test_every_combine_rule(digits: Pooled, grid_of: Any, combine: str) -> None:
    server = {"model": "mlp(hidden=[16])"} if combine.startswith(("pfnm", "feddist")) else {}
    strategy = "FedSoftWorse(T=0.2)"
    if combine.startswith("noise"):  # the examples are for another number of clients, and need bounded weights
        combine, strategy = "noise(clip(mean, C=1.0), z=1.0, c=0.3, seed=7)", "cap(FedAvg, 0.3)"
    both(digits, grid_of, strategy, "mlp(hidden=[16])", combine=combine, server=server)


@pytest.mark.parametrize("apply", [text for entry in APPLIES for text in entry.examples])
def test_every_apply_rule(digits: Pooled, grid_of: Any, apply: str) -> None:
    both(digits, grid_of, model=Net, apply=apply)


@pytest.mark.parametrize(
    ("strategy", "model"),
    [
        ("FedSoftWorse(T=0.2)", Net),
        ("cap(FedSoftWorse(T=0.2), 0.3)", "mlp"),
        ("FedSoftBetter(T=0.2, loss=after)", "softmax"),
        ("FedSoftWorse(T=0.5, loss=train, optima=estimated)", "softmax"),
        ("switch(FedWorse(k=2), FedAvg, at=2)", "softmax"),
    ],
)
@pytest.mark.parametrize("spoil", [False, True])
def test_the_mean_without_torch(digits: Pooled, grid_of: Any, strategy: str, model: Any, spoil: bool) -> None:
    both(digits, grid_of, strategy, model, spoil=spoil)


@pytest.mark.parametrize("fault", ["sign_flip(clients=2)", "replay(clients=2)", "straggler(p=0.3, delay=60)"])
def test_faults_for_drills(digits: Pooled, grid_of: Any, fault: str) -> None:
    both(digits, grid_of, spoil=False, fault=fault, deadline=30.0, combine="median")


@pytest.mark.parametrize(
    ("update", "select"),
    [
        ("scaffold(lr=0.1, batch=20)", "uniform(C=0.5)"),
        ("scaffold(lr=0.1, batch=20, prior=size)", "uniform(C=0.5)"),
        ("fedpage(lr=0.05, batch=20, steps=4, p=0.3)", "fedpage(C=0.5, p=0.3)"),
    ],
)
@pytest.mark.parametrize("states", ["server", "node"])
def test_clients_with_state(digits: Pooled, grid_of: Any, update: str, select: str, states: str) -> None:
    both(digits, grid_of, "FedAvg", update=update, select=select, server={"update": update, "states": states})


def test_reevaluation_on_the_servers_data(grid_of: Any) -> None:
    digits = fedalpha.federation("digits", partition="shards(size=30)", clients=12, seed=0, validation=0.1)
    assert digits.validation is not None
    validation = evaluate_on("softmax", digits.validation, classes=10)
    for strategy in ("FedSoftWorse(T=0.2)", "FedSoftWorse(T=0.2, loss=after)"):
        both(digits, grid_of, strategy, evaluate=fedalpha.Evaluate(reevaluate=2), server={"validation": validation})


def test_the_folder_has_the_files_of_a_run(digits: Pooled, grid_of: Any, tmp_path: Path) -> None:
    rule = both(digits, grid_of, out=tmp_path / "live")
    fedalpha.run(
        digits, "softmax", "FedSoftWorse(T=0.2)", rounds=4, seed=5, update=UPDATE, select="uniform(C=0.5)",
        engine="embedded(workers=1, vectorise=false)", fault=ACCIDENTS, out=tmp_path / "run",
    )  # fmt: skip
    assert {p.name for p in (tmp_path / "live").iterdir()} == {p.name for p in (tmp_path / "run").iterdir()}
    same = [(tmp_path / place / "model.safetensors").read_bytes() for place in ("live", "run")]
    assert same[0] == same[1]
    rows = [json.loads(line) for line in (tmp_path / "live" / "history.jsonl").read_text().splitlines()]
    assert rows == rule.rows
    assert json.loads((tmp_path / "live" / "config.json").read_text())["federation"] == "flower"
    assert fedalpha.analysis.history.read(tmp_path / "live").accuracy[-1] == rows[-1]["accuracy"]


@pytest.mark.parametrize(
    ("upload", "model"),
    [
        ("quantised(bits=4, block=100)", Net),
        ("feedback(sparse(share=0.02))", Net),
        ("feedback(quantised(bits=2))", "softmax"),
        ("sparse(share=0.3)", "softmax"),
        ("bfloat16", "softmax"),
    ],
)
@pytest.mark.parametrize("combine", ["mean", "median"])
def test_every_kind_of_upload(digits: Pooled, grid_of: Any, upload: str, model: Any, combine: str) -> None:
    both(digits, grid_of, model=model, upload=upload, combine=combine)


@pytest.mark.parametrize("states", ["server", "node"])
def test_an_upload_with_a_memory_beside_the_state_of_an_update(digits: Pooled, grid_of: Any, states: str) -> None:
    update = "scaffold(lr=0.1, batch=20)"
    server = {"update": update, "states": states}
    both(digits, grid_of, "FedAvg", update=update, upload="feedback(quantised(bits=4))", server=server)
