"""Who is who: ids of clients, keys of nodes, second claims, apps without queries."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.supercore import logger as flower_logging

from fedalpha.flower import FedAlpha, add_loss_query
from fedalpha.flower.clients import RETRY, KnownClients


def start_arrays() -> ArrayRecord:
    return ArrayRecord({"w": Array(np.zeros(2, dtype=np.float32))})


def plain_app() -> ClientApp:
    """An app that knows nothing of fedalpha; client i moves the model by i + 1 and has loss i."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        here = int(context.node_config["partition-id"]) % 7
        w = message.content["arrays"]["w"].numpy() + np.float32(here + 1)
        metrics = MetricRecord({"num-examples": 10, "train_loss": float(here)})
        content = RecordDict({"arrays": ArrayRecord({"w": Array(w)}), "metrics": metrics})
        return Message(content, reply_to=message)

    return app


def app_with_queries() -> ClientApp:
    return add_loss_query(plain_app(), lambda arrays, context: (int(context.node_config["partition-id"]) % 7, 10))


def claiming(**claims: Any) -> Callable[[int, Message, Message], Message]:
    """Replies of some nodes to ``query.client``, with another id."""

    def spoil(node: int, message: Message, reply: Message) -> Message:
        if message.metadata.message_type == "query.client" and f"n{node}" in claims:
            reply.content["metrics"].__dict__["_data"]["client-id"] = claims[f"n{node}"]  # past Flower's own checks
        return reply

    return spoil


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    flower_logging.FLOWER_LOGGER.propagate = True
    caplog.set_level(logging.INFO, logger="flwr")
    return caplog


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=0.0)
    clock.monotonic = lambda: clock.now
    clock.sleep = lambda seconds: setattr(clock, "now", clock.now + seconds)
    for module in ("exchange", "clients"):
        monkeypatch.setattr(f"fedalpha.flower.{module}.time", clock)
    return clock


@pytest.mark.parametrize("claim", [1e308, 2.0**53, 2**63, 2**400, -1, 0.5, True])
def test_an_id_that_is_no_int64_concerns_its_node_alone(grid_of: Any, logged: Any, claim: Any) -> None:
    grid = grid_of(app_with_queries(), range(3))
    grid.spoil = claiming(n1037=claim)
    rule = FedAlpha("FedSoftWorse(T=2)", fraction_evaluate=0.0)
    rule.start(grid, start_arrays(), num_rounds=2)
    assert [row["cohort"] for row in rule.rows[1:]] == [[0, 2]] * 2
    assert logged.text.count("expected a whole number from 0 to 2^63 - 1") == 1


@pytest.mark.parametrize("strategy", ["FedWorse(k=2)", "FedSoftWorse(T=2, optima=estimated)", "AFL", "FedAvg"])
def test_large_ids_are_not_rounded(grid_of: Any, strategy: str) -> None:
    ids = [2**53, 2**53 + 1, 2**63 - 1]
    rule = FedAlpha(strategy, fraction_evaluate=0.0)
    rule.start(grid_of(app_with_queries(), ids), start_arrays(), num_rounds=2)
    assert [row["cohort"] for row in rule.rows[1:]] == [ids, ids]
    assert not any(row["refused"] for row in rule.rows[1:])


def test_a_second_claim_is_refused_while_the_first_node_is_connected(grid_of: Any, logged: Any, clock: Any) -> None:
    """The row names the nodes; the claim is granted when the first node is gone (a node that was started again)."""
    grid = grid_of(app_with_queries(), range(3))
    grid.nodes[9000] = {"partition-id": 0}
    rule = FedAlpha("FedSoftWorse(T=2)", fraction_evaluate=0.0)

    def leave(server_round: int, arrays: ArrayRecord) -> None:
        clock.now += RETRY
        if server_round == 2:
            del grid.nodes[1000]

    rule.start(grid, start_arrays(), num_rounds=4, evaluate_fn=leave)
    assert [row["nodes"]["0"] for row in rule.rows[1:3]] == ["1000", "1000"]
    assert [row["nodes"].get("0") for row in rule.rows[3:]] == ["9000", "9000"]
    text = "node 9000 is left out until it reports a usable client id: it claims client 0, which is node 1000"
    assert logged.text.count(text) == 1
    assert "client 0 is now node 9000; it was node 1000 before" in logged.text


def test_the_run_says_who_is_left_out_if_too_few_are_left(grid_of: Any, clock: Any) -> None:
    grid = grid_of(app_with_queries(), [0, 1])
    grid.nodes[9000] = {"partition-id": 0}
    rule = FedAlpha("FedSoftWorse(T=2)", min_available_nodes=3, wait_for_nodes=5)
    with pytest.raises(RuntimeError, match=r"2 clients are connected, 3 are needed.*node 9000 .* claims client 0"):
        rule.start(grid, start_arrays())


def registered(name: str, at: int = 0) -> dict[str, Any]:
    return {"name": name, "public_key": f"key of {name}".encode(), "registered_at": f"2030-01-01T00:00:{at:02}"}


def test_an_id_stays_with_the_key_that_claimed_it_first(grid_of: Any, logged: Any, clock: Any, tmp_path: Path) -> None:
    """Where nodes are authenticated: also while the first node is away, and after a restart of the server."""
    grid = grid_of(app_with_queries(), range(3))
    grid.nodes[5] = {"partition-id": 0}  # the smallest node id, but registered last
    grid.infos = {node: registered(f"clinic{place}", place) for place, node in enumerate([1000, 1037, 1074, 5])}

    first = FedAlpha("FedSoftWorse(T=2)", fraction_evaluate=0.0, out=tmp_path)
    first.start(grid, start_arrays(), num_rounds=1)
    assert first.rows[1]["nodes"] == {"0": "clinic0", "1": "clinic1", "2": "clinic2"}
    second = FedAlpha("FedSoftWorse(T=2)", fraction_evaluate=0.0, out=tmp_path)
    del grid.nodes[1000]
    second.start(grid, start_arrays(), num_rounds=3)
    assert [row["cohort"] for row in second.rows[1:]] == [[0, 1, 2], [1, 2], [1, 2]]
    assert "node clinic3 is left out until it reports a usable client id: it claims client 0" in logged.text
    assert "which belongs to a node with another key" in logged.text
    grid.nodes[1111] = {"partition-id": 0}  # the same key, under another node id
    grid.infos[1111] = registered("clinic0")
    third = FedAlpha("FedSoftWorse(T=2)", fraction_evaluate=0.0, out=tmp_path)
    third.start(grid, start_arrays(), num_rounds=4)
    assert third.rows[-1]["cohort"] == [0, 1, 2]


def test_a_node_that_is_left_out_because_of_its_size_holds_no_id(grid_of: Any, logged: Any) -> None:
    grid = grid_of(add_loss_query(plain_app(), lambda a, c: (1.0, 10), examples=lambda context: 10), range(3))

    def spoil(node: int, message: Message, reply: Message) -> Message:
        if message.metadata.message_type == "query.client" and grid.client(node) == 1:
            reply.content["metrics"]["num-examples"] = -1
        return reply

    grid.spoil = spoil
    rule = FedAlpha("FedAvg", fraction_evaluate=0.0)
    rule.start(grid, start_arrays(), num_rounds=1)
    assert rule.rows[1]["cohort"] == [0, 2]
    assert logged.text.count("node 1037 is left out until it reports a usable client id: num-examples = -1") == 1


def test_a_nodes_own_error_is_told_once(grid_of: Any, logged: Any, clock: Any) -> None:
    """Not an advice that does not fit, and not every second."""

    def no_id(context: Context) -> int:
        raise KeyError("the database of this clinic is locked")

    grid = grid_of(add_loss_query(plain_app(), lambda arrays, context: (1.0, 10), client_id=no_id), range(50))
    with pytest.raises(RuntimeError, match=r"0 clients are connected, 2 are needed.*database of this clinic is locked"):
        FedAlpha("FedWorse", wait_for_nodes=100).start(grid, start_arrays())
    told = [r.getMessage() for r in logged.records if "locked" in r.getMessage()]
    assert len(told) == 1
    assert "node 1000, 1037, 1074, 1111, 1148 and 45 more" in told[0]
    assert "add_loss_query" not in told[0]
    assert len(grid.log) <= 50 * (2 + 100 // RETRY)


@pytest.mark.parametrize("select", ["power_of_choice(C=0.4, d=0.6)", "loss_proportional(C=0.4)"])
def test_selections_by_loss_do_not_need_sizes(grid_of: Any, select: str) -> None:
    """Clients tell them with their first loss, after the candidates were drawn; one client tells none at all."""

    def loss(arrays: ArrayRecord, context: Context) -> tuple[float, int]:
        id = int(context.node_config["partition-id"])
        return (1.0 + id, 10 * 3**id) if id != 3 else (float("nan"), 10)

    grid = grid_of(add_loss_query(plain_app(), loss), range(5))
    rule = FedAlpha("FedAvg", select=select, fraction_evaluate=0.0)
    rule.start(grid, start_arrays(), num_rounds=3)
    assert all(row["cohort"] and row["kept"] is None and 3 not in row["cohort"] for row in rule.rows[1:])
    asked = [id for kind, id in grid.log if kind == "query.loss"]
    assert len(asked) == 3 * (3 if "power" in select else 5)


@pytest.mark.parametrize("select", ["power_of_choice(C=0.4, d=1.0)", "loss_proportional(C=0.4)"])
def test_one_client_without_examples_does_not_end_selections_by_loss(grid_of: Any, select: str) -> None:
    """Only its size is known, and it is 0: the others count alike."""
    examples = {"examples": lambda context: 0} if select else {}
    grid = grid_of(add_loss_query(plain_app(), lambda arrays, context: (1.0, 10), **examples), range(5))

    def spoil(node: int, message: Message, reply: Message) -> Message:
        if message.metadata.message_type == "query.client" and grid.client(node) != 3:
            del reply.content["metrics"]["num-examples"]
        return reply

    grid.spoil = spoil
    rule = FedAlpha("FedAvg", select=select, fraction_evaluate=0.0)
    rule.start(grid, start_arrays(), num_rounds=1)
    assert len(rule.rows[1]["cohort"]) == 2
    assert 3 not in rule.rows[1]["cohort"]


@pytest.mark.parametrize("rules", [{"select": "by_size(count=2)"}, {"strategy": "unbiased(FedAvg)"}])
def test_a_client_that_hides_its_size_is_left_out_where_all_sizes_are_needed(
    grid_of: Any, logged: Any, rules: dict[str, str]
) -> None:
    app = add_loss_query(plain_app(), lambda arrays, context: (1.0, 10), examples=lambda context: 10)
    grid = grid_of(app, range(5))

    def spoil(node: int, message: Message, reply: Message) -> Message:
        if message.metadata.message_type == "query.client" and grid.client(node) == 3:
            del reply.content["metrics"]["num-examples"]
        return reply

    grid.spoil = spoil
    rule = FedAlpha(**{"strategy": "FedAvg", **rules}, fraction_evaluate=0.0)
    rule.start(grid, start_arrays(), num_rounds=3)
    assert all(row["cohort"] and row["kept"] is None and 3 not in row["cohort"] for row in rule.rows[1:])
    assert logged.text.count("client 3 (node 1111) takes no part, because the rules need its size") == 1


def test_an_unchanged_app_does_not_wait(grid_of: Any, clock: Any, logged: Any) -> None:
    """Rules that need no query take node ids as ids. Those of unsigned 64 bits fit, too."""
    grid = grid_of(plain_app(), range(3))
    grid.nodes[2**64 - 5] = {"partition-id": 3}
    rule = FedAlpha("FedAvg", fraction_evaluate=0.0)
    rule.start(grid, start_arrays(), num_rounds=2)
    assert clock.now < 1
    assert rule.rows[2]["cohort"] == [1000, 1037, 1074, 2**63 - 5]
    assert rule.rows[2]["nodes"][str(2**63 - 5)] == str(2**64 - 5)
    assert logged.text.count("No query function registered with name 'client'") == 1


def test_a_client_that_has_not_trained_counts_with_the_mean(grid_of: Any) -> None:
    known = KnownClients(source="train")
    known.nameless = {1, 2, 3}
    assert known.estimates([1, 2, 3], 1) == {1: 1.0, 2: 1.0, 3: 1.0}
    known.losses = {1: (1, 4.0), 2: (1, 2.0)}
    assert known.estimates([1, 2, 3, 4], 2) == {1: 4.0, 2: 2.0, 3: 3.0}  # client 4 answers queries: it is asked
    known.source = "evaluate"
    assert known.estimates([1, 2, 4], 5) == {1: 4.0, 2: 2.0}
    known.losses = {1: (1, 1.5e308), 2: (1, 1.5e308)}  # their sum is no float
    assert known.estimates([3], 2) == {3: 1.5e308}


def test_estimates_are_saved(grid_of: Any, tmp_path: Path) -> None:
    def rule(folder: Path) -> FedAlpha:
        return FedAlpha("FedSoftWorse(T=2)", losses="train", fraction_evaluate=0.0, out=folder)

    grid = grid_of(plain_app(), range(3))
    whole = rule(tmp_path / "whole").start(grid, start_arrays(), num_rounds=4)
    rule(tmp_path / "halves").start(grid, start_arrays(), num_rounds=2)
    again = rule(tmp_path / "halves")
    halves = again.start(grid, start_arrays(), num_rounds=4)
    assert halves.arrays["w"].numpy().tobytes() == whole.arrays["w"].numpy().tobytes()
    assert again.rows[-1]["losses"]["before"] == [0.0, 1.0, 2.0]


def test_wrong_sources_of_losses_are_named(grid_of: Any) -> None:
    with pytest.raises(ValueError, match="losses = 'guess'; give one of query, evaluate, train"):
        FedAlpha("FedWorse", losses="guess")  # type: ignore[arg-type]
    rule = FedAlpha("FedWorse", losses="evaluate", fraction_evaluate=0.0)
    with pytest.raises(ValueError, match="set fraction_evaluate > 0"):
        rule.start(grid_of(plain_app(), [0, 1]), start_arrays())
    rule = FedAlpha("FedWorse", losses="train", loss_keys={"train": "running"}, fraction_evaluate=0.0)
    reason = r"no client has trained.*no metric 'running' among \['num-examples', 'train_loss'\]"
    with pytest.raises(RuntimeError, match=reason):
        rule.start(grid_of(plain_app(), [0, 1]), start_arrays())


@pytest.mark.parametrize(("losses", "size"), [([1.0, 1.0, 1e308], 10), ([1.0, 1.0, 1.0], 1e15)])
def test_a_client_that_outweighs_all_others_is_named(
    grid_of: Any, logged: Any, losses: list[float], size: float
) -> None:
    app = add_loss_query(plain_app(), lambda arrays, context: (losses[int(context.node_config["partition-id"])], 10))
    grid = grid_of(app, range(3))

    def spoil(node: int, message: Message, reply: Message) -> Message:
        if grid.client(node) == 2 and "num-examples" in reply.content["metrics"]:
            reply.content["metrics"]["num-examples"] = size
        return reply

    grid.spoil = spoil
    rule = FedAlpha("FedSoftWorse(T=2)", fraction_evaluate=0.0)
    rule.start(grid, start_arrays(), num_rounds=1)
    assert rule.rows[1]["dominant"] == 2
    assert "round 1: client 2 (node 1074) has 100 % of alpha" in logged.text
    even = FedAlpha("FedAvg", fraction_evaluate=0.0)
    even.start(grid_of(app_with_queries(), range(3)), start_arrays(), num_rounds=1)
    assert even.rows[1]["dominant"] is None
