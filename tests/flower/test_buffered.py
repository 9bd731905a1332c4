"""A live server that does not wait: real ClientApps and messages on a grid here, with slow and lost nodes."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Error, Message
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping

import fedalpha
from fedalpha.data import Pooled
from fedalpha.flower import FedAlpha, client_app, evaluate_on, initial_arrays
from fedalpha.flower.pytorch import to_parameters

from .conftest import LocalGrid

UPDATE = "sgd(lr=0.1, batch=20)"


@pytest.fixture(scope="module")
def digits() -> Pooled:
    return fedalpha.federation("digits", partition="shards(size=30)", clients=6, seed=5)  # type: ignore[return-value]


class SlowGrid(LocalGrid):
    """Training replies of some clients are there only after so many looks for replies."""

    def __init__(self, app: Any, clients: Iterable[int], looks: dict[int, int] | None = None) -> None:
        super().__init__(app, clients)
        self.looks = looks or {}
        self._due: dict[str, int] = {}

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        messages = list(messages)
        ids = list(super().push_messages(messages))
        for id, message in zip(ids, messages, strict=True):
            if message.metadata.message_type == "train":
                self._due[id] = self.looks.get(self.client(message.metadata.dst_node_id), 0)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        ready = []
        for id in message_ids:
            self._due[id] = self._due.get(id, 0) - 1
            if self._due[id] < 0:
                ready.append(id)
        return super().pull_messages(ready)


def app_of(digits: Pooled, update: str = UPDATE) -> Any:
    return client_app(
        "softmax", lambda context: digits.client(int(context.node_config["partition-id"])), update, classes=10, seed=5
    )


def started(
    digits: Pooled, strategy: str, server: str, rounds: int, grid: Any = None, timeout: float = 5, **options: Any
) -> tuple[FedAlpha, Any]:
    options = {
        "fraction_evaluate": 0.0,
        "bound": None,
        "seed": 5,
        "clients": 6,
        "select": "uniform(count=3)",
        **options,
    }
    rule = FedAlpha(strategy, server=server, **options)
    grid = grid or LocalGrid(app_of(digits), range(6))
    first = initial_arrays("softmax", digits.shape, 10, seed=5)
    test = evaluate_on("softmax", digits.test, classes=10)
    return rule, rule.start(grid, first, num_rounds=rounds, timeout=timeout, evaluate_fn=test)


@pytest.mark.parametrize(
    ("strategy", "options"),
    [
        ("FedAvg", {}),
        ("FedSoftWorse(T=0.2)", {}),
        ("FedSoftBetter(T=0.2, loss=after)", {}),
        ("stale(FedSoftWorse(T=0.2), polynomial(a=0.5))", {}),
        ("FedAvg", {"combine": "median"}),
        ("FedAvg", {"apply": "fedadam(lr=0.01)"}),
        ("FedAvg", {"select": "power_of_choice(count=3, d=5)"}),
        ("FedAvg(prior=uniform)", {"update": "scaffold(lr=0.1, batch=20)"}),
    ],
)
def test_one_cohort_in_training_is_the_simulated_synchronous_server_to_the_bit(
    digits: Pooled, strategy: str, options: dict[str, Any]
) -> None:
    update = options.get("update", UPDATE)
    server = {**options, **({"model": "softmax"} if "update" in options else {})}
    rule, found = started(
        digits, strategy, "buffered(K=3, concurrency=3)", 3, LocalGrid(app_of(digits, update), range(6)), **server
    )
    rules = {"select": "uniform(count=3)", **options, "update": update}
    expected = fedalpha.run(digits, "softmax", strategy, rounds=3, seed=5, engine="embedded(workers=1)", **rules)
    for row, other in zip(rule.rows, expected.rows, strict=True):
        for name in ("cohort", "alpha", "losses", "accuracy", "loss", "bytes_down", "bytes_up", "steps"):
            assert row[name] == other[name], name
        assert row["staleness"] == (None if row["round"] == 0 else [0, 0, 0])
    for name, value in to_parameters(found.arrays).items():
        assert value.numpy().tobytes() == expected.model[name].numpy().tobytes(), name


def test_slow_clients_deliver_stale_updates_and_train_once_at_a_time(digits: Pooled) -> None:
    grid = SlowGrid(app_of(digits), range(6), {0: 6, 1: 6})
    rule, _ = started(digits, "FedSoftWorse(T=0.2)", "buffered(K=2, concurrency=4)", 8, grid, select="uniform")
    stale = [late for row in rule.rows[1:] for late in row["staleness"]]
    assert max(stale) >= 2
    slow = {late for row in rule.rows[1:] for i, late in zip(row["cohort"], row["staleness"], strict=True) if i < 2}
    assert max(slow) == max(stale)
    for row in rule.rows[1:]:
        assert len(row["cohort"]) == 2
        assert row["losses"]["before"] is not None
        assert not row["refused"]
    trained = sum(kind == "train" for kind, _ in grid.log)
    delivered = sum(len(row["cohort"]) for row in rule.rows[1:])
    assert delivered <= trained <= delivered + 4
    assert rule.rows[-1]["accuracy"] > rule.rows[0]["accuracy"]


def test_a_node_that_comes_later_and_is_silent_holds_nobody_up(digits: Pooled) -> None:
    grid = SlowGrid(app_of(digits), range(6))
    late = 1000 + 37 * 5
    nodes, versions = grid.get_nodes, 0
    grid.get_nodes = lambda: [info for info in nodes() if info.node_id != late or versions]  # type: ignore[method-assign]

    def spoil(node: int, message: Message, reply: Message) -> Message | None:
        nonlocal versions
        versions += message.metadata.message_type == "train"
        return None if node == late else reply

    grid.spoil = spoil
    began = time.monotonic()
    rule, _ = started(digits, "FedAvg", "buffered(K=2, concurrency=3)", 4, grid, select="uniform", query_timeout=3600)
    assert time.monotonic() - began < 1000
    assert [kind for kind, client in grid.log if client == 5] == ["query.client"]
    assert all(len(row["cohort"]) == 2 and 5 not in row["cohort"] for row in rule.rows[1:])


def test_an_error_a_bad_model_and_a_node_that_is_gone_free_their_places(digits: Pooled) -> None:
    grid = SlowGrid(app_of(digits), range(6), {4: 10**9})

    gone: list[int] = []
    nodes = grid.get_nodes
    grid.get_nodes = lambda: [info for info in nodes() if info.node_id not in gone]  # type: ignore[method-assign]

    def spoil(node: int, message: Message, reply: Message) -> Message | None:
        if message.metadata.message_type != "train":
            return reply
        if grid.client(node) == 4:
            gone.append(node)  # it leaves while it trains
        if grid.client(node) == 2:
            return Message(Error(code=2, reason="out of memory"), reply_to=message)
        if grid.client(node) == 3:
            arrays = next(iter(reply.content.array_records.values()))
            name = next(iter(arrays))
            arrays[name] = type(arrays[name])(np.full(arrays[name].numpy().shape, np.nan, dtype=np.float32))
        return reply

    grid.spoil = spoil
    rule, _ = started(digits, "FedAvg", "buffered(K=2, concurrency=5)", 3, grid, select="uniform")
    reasons = {entry["client"]: entry["reason"] for row in rule.rows[1:] for entry in row["refused"]}
    assert "out of memory" in reasons[2]
    assert "NaN" in reasons[3]
    assert reasons[4] == "its node is gone"
    for row in rule.rows[1:]:
        assert set(row["cohort"]) <= {0, 1, 5}


@pytest.mark.parametrize("strategy", ["FedAvg", "FedSoftWorse(T=0.2)"])
def test_a_version_without_a_single_update_keeps_the_model(digits: Pooled, strategy: str) -> None:
    grid = LocalGrid(app_of(digits), range(6))
    failing = "train" if strategy == "FedAvg" else "query.loss"

    def spoil(node: int, message: Message, reply: Message) -> Message | None:
        fails = message.metadata.message_type == failing and broken
        return Message(Error(code=2, reason="out of memory"), reply_to=message) if fails else reply

    grid.spoil, broken = spoil, [True]
    test = evaluate_on("softmax", digits.test, classes=10)

    def look(server_round: int, arrays: Any) -> Any:
        if server_round == 1:
            broken.clear()  # from now on they deliver
        return test(server_round, arrays)

    rule = FedAlpha(strategy, server="buffered(K=2, concurrency=3)", fraction_evaluate=0.0, clients=6)
    first = initial_arrays("softmax", digits.shape, 10, seed=5)
    rule.start(grid, first, num_rounds=2, timeout=5, evaluate_fn=look)
    assert rule.rows[1]["kept"] is not None
    assert rule.rows[1]["loss"] == rule.rows[0]["loss"]
    assert {entry["client"] for entry in rule.rows[1]["refused"]} == set(range(6))
    assert rule.rows[2]["kept"] is None


def test_a_client_that_takes_too_long_is_given_up(digits: Pooled) -> None:
    grid = SlowGrid(app_of(digits), range(6), {0: 10**9, 1: 10**9})
    rule, _ = started(digits, "FedAvg", "buffered(K=5, concurrency=6)", 2, grid, select="uniform", deadline=0.3)
    for row in rule.rows[1:]:
        assert row["cohort"] == [2, 3, 4, 5]  # there is nobody else to wait for
        assert [(r["client"], r["reason"]) for r in row["refused"]] == [(i, "no reply within 0.3 s") for i in (0, 1)]


def test_a_server_app_that_is_started_again_goes_on_after_the_last_version(digits: Pooled, tmp_path: Path) -> None:
    options: dict[str, Any] = {"out": tmp_path / "run", "select": "uniform"}
    server = "buffered(K=2, concurrency=4)"
    first, _ = started(digits, "FedAvg", server, 2, SlowGrid(app_of(digits), range(6), {0: 9}), **options)
    again, _ = started(digits, "FedAvg", server, 4, SlowGrid(app_of(digits), range(6), {0: 9}), **options)
    assert again.rows[:3] == first.rows
    assert [row["round"] for row in again.rows] == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="another configuration: server is"):
        started(digits, "FedAvg", "buffered(K=3, concurrency=4)", 5, **options)


def test_what_a_live_server_cannot_do_is_refused(digits: Pooled) -> None:
    def made(**options: Any) -> FedAlpha:
        return FedAlpha(**{"server": "buffered(K=2, concurrency=3)", "fraction_evaluate": 0.0, **options})

    for options, reason in (
        ({"fraction_evaluate": 1.0}, "clients in training cannot evaluate"),
        ({"server": "synchronous(take=3)"}, "give deadline= instead"),
        ({"combine": "pfnm"}, "cannot be rebased"),
        ({"fault": "drop(p=0.1)"}, "faults happen to a cohort"),
        ({"strategy": "unbiased(FedAvg)"}, "chance to be in a cohort"),
        (
            {"evaluate": fedalpha.Evaluate(shadow="FedSoftWorse(T=0.2)")},
            "clients of a version were sent different models",
        ),
        ({"clients": 1}, "needs 2 updates, but there are 1 clients"),
    ):
        with pytest.raises(ValueError, match=reason):
            made(**options)
    wrapper = DifferentialPrivacyServerSideFixedClipping(made(), 0.1, 1.0, 2)
    first = initial_arrays("softmax", digits.shape, 10, seed=5)
    with pytest.raises(RuntimeError, match=r"needs FedAlpha\.start, which pulls replies as they arrive"):
        wrapper.start(LocalGrid(app_of(digits), range(6)), first, num_rounds=1)
