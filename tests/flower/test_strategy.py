"""FedAlpha: two phases, failures, server optimisers, metrics, resuming; clients without torch."""

from __future__ import annotations

import itertools
import json
import logging
import math
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import strategy
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM, FedMedian, FedProx, Krum, MultiKrum
from flwr.supercore import logger as flower_logging

from fedalpha import Evaluate, weights
from fedalpha.flower import FedAlpha, add_loss_query, clipping, loss_query_mod, secured
from fedalpha.store import DamagedError

START = {"w": np.zeros(4, dtype=np.float32), "count": np.zeros((), dtype=np.int64)}


def start_arrays() -> ArrayRecord:
    return ArrayRecord({k: Array(v) for k, v in START.items()})


def target(id: int) -> np.ndarray:
    return np.array([id, 1, -id, 0.5], dtype=np.float32)


def quadratic(examples: Callable[[Context], int] | None = None) -> ClientApp:
    """Client i minimises ‖w − target(i)‖², halfway in each round; it holds 10·(i + 1) examples."""
    app = ClientApp()

    def loss(arrays: ArrayRecord, context: Context) -> tuple[float, int]:
        id = int(context.node_config["partition-id"])
        return float(((arrays["w"].numpy() - target(id)) ** 2).sum()), 10 * (id + 1)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        id = int(context.node_config["partition-id"])
        arrays = message.content["arrays"]
        w = (arrays["w"].numpy() + target(id)) / 2
        record = ArrayRecord({"w": Array(w), "count": Array(np.asarray(arrays["count"].numpy() + id))})
        metrics = MetricRecord({"num-examples": 10 * (id + 1), "train_loss": float(id)})
        return Message(RecordDict({"arrays": record, "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        value, examples = loss(message.content["arrays"], context)
        metrics = MetricRecord({"num-examples": examples, "loss": value, "accuracy": 0.25})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return add_loss_query(app, loss, examples=examples)


def run(rule: FedAlpha, grid: Any, rounds: int = 1) -> dict[str, np.ndarray]:
    return {k: a.numpy() for k, a in rule.start(grid, start_arrays(), num_rounds=rounds, timeout=1).arrays.items()}


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    flower_logging.FLOWER_LOGGER.propagate = True
    caplog.set_level(logging.WARNING, logger="flwr")
    return caplog


def test_two_phases_train_and_upload_only_whom_alpha_counts(grid_of: Any) -> None:
    grid = grid_of(quadratic(), range(6))
    rule = FedAlpha("FedWorse(k=2)", fraction_evaluate=0.0)
    found = run(rule, grid)
    asked = [id for kind, id in grid.log if kind == "query.loss"]
    trained = [id for kind, id in grid.log if kind == "train"]
    assert sorted(asked) == list(range(6))
    assert sorted(trained) == [4, 5]
    row = rule.rows[1]
    assert row["alpha"] == weights("FedWorse(k=2)", row["losses"]["before"], [10 * (i + 1) for i in range(6)]).tolist()
    assert row["bytes_up"] == 2 * (4 * 4 + 8) + 8 * (6 + 2)  # two models, six losses before training and two after
    np.testing.assert_allclose(found["w"], (target(4) + target(5)) / 2 / 2, rtol=1e-6)
    assert found["count"].dtype == np.int64
    assert found["count"] == 4  # not averaged: one client's


def test_one_phase_where_the_loss_comes_from_training(grid_of: Any) -> None:
    grid = grid_of(quadratic(), range(3))
    rule = FedAlpha("FedSoftBetter(T=1, loss=train)", fraction_evaluate=0.0)
    run(rule, grid)
    assert [kind for kind, _ in grid.log if kind == "query.loss"] == []
    np.testing.assert_array_equal(rule.rows[1]["alpha"], weights("FedSoftBetter(T=1)", [0, 1, 2], [10, 20, 30]))


def test_clients_are_known_by_their_own_id(grid_of: Any) -> None:
    """Other node ids, connected in another order: the same cohorts and the same bytes."""
    runs = []
    for clients, first in ((range(8), 1), ([3, 7, 0, 1, 6, 2, 5, 4], 90_000)):
        rule = FedAlpha("FedSoftWorse(T=2)", fraction_train=0.5, fraction_evaluate=0.0, seed=3)
        runs.append((run(rule, grid_of(quadratic(), clients, first), rounds=4)["w"].tobytes(), rule.rows))
    assert runs[0][0] == runs[1][0]
    cohorts = [[row["cohort"] for row in rows[1:]] for _, rows in runs]
    assert cohorts[0] == cohorts[1]
    assert len({tuple(c) for c in cohorts[0]}) > 1
    assert all(len(c) == 4 for c in cohorts[0])


def test_the_global_generator_is_left_alone(grid_of: Any) -> None:
    random.seed(1)
    before = random.getstate()
    run(FedAlpha("FedAvg", fraction_train=0.5), grid_of(quadratic(), range(6)))
    assert random.getstate() == before


def lose_training_of(grid: Any, *lost: int) -> None:
    def spoil(node: int, message: Message, reply: Message) -> Message | None:
        return None if grid.client(node) in lost and message.metadata.message_type == "train" else reply

    grid.spoil = spoil


def test_late_clients_are_left_out_and_alpha_renormalised(grid_of: Any, logged: Any) -> None:
    grid = grid_of(quadratic(), range(4))
    lose_training_of(grid, 2)
    rule = FedAlpha("FedSoftWorse(T=2)", fraction_evaluate=0.0)
    run(rule, grid)
    full = weights("FedSoftWorse(T=2)", rule.rows[1]["losses"]["before"], [10, 20, 30, 40])
    expected = np.where(np.arange(4) == 2, 0, full) / (1 - full[2])
    np.testing.assert_allclose(rule.rows[1]["alpha"], expected, rtol=1e-12)
    assert rule.rows[1]["alpha"][2] == 0
    assert rule.rows[1]["refused"] == [{"client": 2, "reason": "no reply in time"}]
    assert "round 1: client 2 (node 1074) refused: no reply in time" in logged.text


@pytest.mark.parametrize("loss", ["before", "train"])
def test_a_cap_holds_after_a_loss_and_keeps_the_model_if_it_cannot(grid_of: Any, logged: Any, loss: str) -> None:
    grid = grid_of(quadratic(), range(4))
    lose_training_of(grid, 2)
    rule = FedAlpha(f"cap(FedSoftWorse(T=2, loss={loss}), 0.4)", fraction_evaluate=0.0)
    run(rule, grid)
    assert max(rule.rows[1]["alpha"]) <= 0.4
    lose_training_of(grid, 1, 2)
    rule = FedAlpha(f"cap(FedSoftWorse(T=2, loss={loss}), 0.4)", fraction_evaluate=0.0)
    assert (run(rule, grid)["w"] == 0).all()
    assert rule.rows[1]["kept"]
    assert "the model is kept" in logged.text


@pytest.mark.parametrize("strategy", ["FedAvg", "FedSoftWorse(T=2)", "FedSoftWorse(T=2, loss=train)"])
def test_below_the_quorum_the_model_is_kept(grid_of: Any, logged: Any, strategy: str) -> None:
    grid = grid_of(quadratic(), range(4))
    lose_training_of(grid, 0, 1, 3)
    rule = FedAlpha(strategy, quorum=0.5, fraction_evaluate=0.0)
    found = run(rule, grid, rounds=2)
    assert (found["w"] == 0).all()
    assert [row["kept"] for row in rule.rows[1:]] == ["only 1 of 4 clients delivered, the quorum is 0.5"] * 2
    assert [row["alpha"] for row in rule.rows[1:]] == [[0.0] * 4] * 2
    assert "the model is kept: only 1 of 4" in logged.text
    assert (run(FedAlpha(strategy, quorum=1, fraction_evaluate=0.0), grid)["w"] != 0).any()


def test_a_quorum_above_the_clients_that_train_asks_for_all_of_them(grid_of: Any) -> None:
    rule = FedAlpha("FedWorse(k=1)", quorum=2, fraction_evaluate=0.0)
    run(rule, grid_of(quadratic(), range(4)))
    assert rule.rows[1]["kept"] is None
    assert rule.rows[1]["alpha"] == [0, 0, 0, 1]


def weighted_by_tokens(grid: Any) -> None:
    """Client i holds 10·(i + 1) examples, and 100 − i tokens."""

    def spoil(node: int, message: Message, reply: Message) -> Message:
        tokens = 100 - grid.client(node)
        return replaced(reply, tokens=tokens) if message.metadata.message_type == "train" else reply

    grid.spoil = spoil


@pytest.mark.parametrize("strategy", ["FedAvg", "FedSoftWorse(T=2)"])
def test_sizes_are_of_one_unit(grid_of: Any, strategy: str) -> None:
    """Queries tell num-examples only: before tokens are known, everybody trains and is weighed afterwards."""
    grid = grid_of(quadratic(examples=lambda _: 10), range(4))
    weighted_by_tokens(grid)
    rule = FedAlpha(strategy, fraction_evaluate=0.0, weighted_by_key="tokens")
    run(rule, grid, rounds=2)
    for row in rule.rows[1:]:
        losses = row["losses"].get("before", [0.0] * 4)
        np.testing.assert_allclose(row["alpha"], weights(strategy, losses, [100, 99, 98, 97]), rtol=1e-12)


def test_with_another_unit_the_weights_come_first_once_sizes_are_known(grid_of: Any) -> None:
    grid = grid_of(quadratic(), range(4))
    weighted_by_tokens(grid)
    rule = FedAlpha("FedWorse(k=1)", fraction_evaluate=0.0, weighted_by_key="tokens")
    run(rule, grid, rounds=2)
    assert sorted(id for kind, id in grid.log if kind == "train") == [0, 0, 1, 2, 3, 3]
    assert [row["alpha"] for row in rule.rows[1:]] == [[0, 0, 0, 1], [0.5, 0, 0, 0.5]]


@pytest.mark.parametrize("strategy", ["FedAvg", "FedSoftWorse(T=2)", "FedSoftWorse(T=2, loss=train)"])
def test_a_cohort_without_examples_keeps_the_model(grid_of: Any, logged: Any, strategy: str) -> None:
    """For that round: once there are examples, training goes on."""
    now = {"examples": 0}

    def told(node: int, message: Message, reply: Message) -> Message:
        metrics = next(iter(reply.content.metric_records.values()))
        if "num-examples" in metrics:
            metrics["num-examples"] = now["examples"]
        return reply

    def arrive(server_round: int, arrays: ArrayRecord) -> None:
        now["examples"] = 5 if server_round >= 2 else 0

    grid = grid_of(quadratic(examples=lambda _: 10), range(3))
    grid.spoil = told
    rule = FedAlpha(strategy, fraction_evaluate=0.0)
    rule.start(grid, start_arrays(), 3, timeout=1, evaluate_fn=arrive)
    assert ["all sizes are 0" in (row["kept"] or "") for row in rule.rows[1:]] == [True, True, False]
    assert "(all sizes are 0), so there is no client to weigh" in logged.text


def replaced(reply: Message, **changes: Any) -> Message:
    arrays, metrics = dict(reply.content["arrays"]), dict(reply.content["metrics"])
    for key, value in changes.items():
        where = arrays if isinstance(value, Array) or key in arrays else metrics
        where.pop(key.replace("_", "-") if key == "num_examples" else key, None)
        if value is not None:
            where[key.replace("_", "-") if key == "num_examples" else key] = value
    reply.content = RecordDict({"arrays": ArrayRecord(arrays), "metrics": MetricRecord(metrics)})
    return reply


BAD = {
    "NaN": ({"w": Array(np.array([np.nan, 0, 0, 0], dtype=np.float32))}, "NaN or infinity"),
    "shape": ({"w": Array(np.zeros(1, dtype=np.float32))}, "shape"),
    "dtype": ({"w": Array(np.zeros(4))}, "float64, expected float32"),
    "missing layer": ({"w": None}, "missing: ['w']"),
    "extra layer": ({"v": Array(np.zeros(1))}, "unknown: ['v']"),
    "no size": ({"num_examples": None}, "no metric 'num-examples'"),
    "negative size": ({"num_examples": -3}, "-3"),
    "infinite size": ({"num_examples": float("inf")}, "inf"),
    "no loss": ({"train_loss": None}, "no metric 'train_loss'"),
    "NaN loss": ({"train_loss": float("nan")}, "nan"),
    "negative loss": ({"train_loss": -1.0}, "-1, but this loss cannot be negative"),
}


@pytest.mark.parametrize("fault", BAD)
def test_a_malformed_reply_is_rejected_alone(grid_of: Any, logged: Any, fault: str) -> None:
    """As if that client had not been there, to the bit, and the reason is logged."""
    changes, reason = BAD[fault]
    grid = grid_of(quadratic(), range(4))

    def spoil(node: int, message: Message, reply: Message) -> Message | None:
        bad = grid.client(node) == 1 and message.metadata.message_type == "train"
        return replaced(reply, **changes) if bad else reply

    grid.spoil = spoil
    rule = FedAlpha("FedSoftWorse(T=2, loss=train)", fraction_evaluate=0.0)
    found = run(rule, grid)
    alone = run(FedAlpha("FedSoftWorse(T=2, loss=train)", fraction_evaluate=0.0), grid_of(quadratic(), [0, 2, 3]))
    assert found["w"].tobytes() == alone["w"].tobytes()
    (refused,) = rule.rows[1]["refused"]
    assert refused["client"] == 1
    assert reason in refused["reason"]
    assert "client 1 (node 1037) refused" in logged.text


def test_a_bad_loss_is_rejected_before_weighing(grid_of: Any) -> None:
    def spoil(node: int, message: Message, reply: Message) -> Message | None:
        if grid.client(node) == 1 and message.metadata.message_type == "query.loss":
            reply.content["metrics"]["loss"] = float("nan")
        return reply

    grid = grid_of(quadratic(), range(4))
    grid.spoil = spoil
    found = run(FedAlpha("FedSoftWorse(T=2)", fraction_evaluate=0.0), grid)
    alone = run(FedAlpha("FedSoftWorse(T=2)", fraction_evaluate=0.0), grid_of(quadratic(), [0, 2, 3]))
    assert found["w"].tobytes() == alone["w"].tobytes()
    assert ("train", 1) not in grid.log


def test_a_failing_client_app_is_one_rejected_reply(grid_of: Any) -> None:
    app, grid = quadratic(), None

    @app.train("again")
    def broken(message: Message, context: Context) -> Message:
        raise ZeroDivisionError("boom")

    good = app._registered_funcs["train.default"]
    app._registered_funcs["train.default"] = lambda m, c: (broken if c.node_config["partition-id"] == 0 else good)(m, c)
    grid = grid_of(app, range(3))
    rule = FedAlpha("FedAvg", fraction_evaluate=0.0)
    run(rule, grid)
    assert "boom" in rule.rows[1]["refused"][0]["reason"]


def test_extra_metrics_of_one_client_do_not_fail_the_run(grid_of: Any) -> None:
    grid = grid_of(quadratic(), range(3))

    def spoil(node: int, message: Message, reply: Message) -> Message | None:
        if grid.client(node) == 0 and message.metadata.message_type == "train":
            return replaced(reply, extra=1.0)
        return reply

    grid.spoil = spoil
    rule = FedAlpha("FedAvg")
    result = rule.start(grid, start_arrays(), num_rounds=1)
    metrics = result.train_metrics_clientapp[1]
    assert metrics["train_loss"] == pytest.approx((0 * 10 + 1 * 20 + 2 * 30) / 60)
    assert metrics["fedalpha.clients"] == [0, 1, 2]
    assert metrics["fedalpha.alpha"] == pytest.approx([1 / 6, 1 / 3, 1 / 2])
    assert result.evaluate_metrics_clientapp[1]["accuracy"] == pytest.approx(0.25)
    assert rule.rows[1]["accuracy"] == pytest.approx(0.25)


@pytest.mark.parametrize("spoilt", [{"accuracy": math.nan, "loss": -math.inf}, {"accuracy": [1.0] * 9, "loss": []}, {}])
def test_one_client_cannot_hide_the_evaluation_of_the_others(grid_of: Any, spoilt: dict[str, Any]) -> None:
    """Not even by leaving a metric out."""
    grid = grid_of(quadratic(), range(3))

    def spoil(node: int, message: Message, reply: Message) -> Message:
        if grid.client(node) == 2 and message.metadata.message_type == "evaluate":
            reply.content["metrics"] = MetricRecord({"num-examples": 30, **spoilt})
        return reply

    grid.spoil = spoil
    rule = FedAlpha("FedAvg")
    result = rule.start(grid, start_arrays(), num_rounds=1)
    w = result.arrays["w"].numpy()
    losses = [float(((w - target(id)) ** 2).sum()) for id in range(2)]
    assert rule.rows[1]["accuracy"] == pytest.approx(0.25)
    assert rule.rows[1]["loss"] == pytest.approx((10 * losses[0] + 20 * losses[1]) / 30)


def test_a_client_that_claims_most_of_the_evaluation_is_named_once(grid_of: Any, logged: Any) -> None:
    grid = grid_of(quadratic(), range(3))

    def spoil(node: int, message: Message, reply: Message) -> Message:
        if grid.client(node) == 1 and message.metadata.message_type == "evaluate":
            reply.content["metrics"].update({"num-examples": 2**53, "accuracy": 1.0})
        return reply

    grid.spoil = spoil
    run(FedAlpha("FedAvg"), grid, rounds=2)
    assert logged.text.count("client 1 has 100 % of the examples in the clients' evaluation") == 1
    logged.clear()
    run(FedAlpha("FedAvg"), grid_of(quadratic(), range(3)), rounds=1)
    assert "of the examples" not in logged.text


def test_a_second_reply_and_one_that_nobody_asked_for_are_not_used(grid_of: Any, logged: Any) -> None:
    """Loops of other strategies pass on whatever comes."""

    def trained(forge: bool) -> bytes:
        grid, rule = grid_of(quadratic(), range(4)), FedAlpha("FedAvg", fraction_train=0.5, fraction_evaluate=0.0)
        messages = list(rule.configure_train(1, start_arrays(), ConfigRecord(), grid))
        replies = list(grid.pull_messages(grid.push_messages(messages)))
        asked = {message.metadata.dst_node_id for message in messages}
        other = Message(RecordDict(), message_type="train", dst_node_id=next(n for n in grid.nodes if n not in asked))
        nines = np.full(4, 9, dtype=np.float32)
        forged = [
            replaced(Message(reply.content, reply_to=to), w=Array(nines))
            for to in (messages[0], other)
            for reply in replies
        ]
        arrays, _ = rule.aggregate_train(1, [*replies, *forged] if forge else replies)
        assert arrays is not None
        return arrays["w"].numpy().tobytes()

    assert trained(True) == trained(False)
    assert logged.text.count("is not used: it was not asked for, or it is repeated") == 4


@pytest.mark.parametrize("dtype", ["complex64", ">f4", "longdouble", "<U3", "datetime64[s]"])
def test_arrays_that_cannot_be_averaged_are_refused_before_anything_is_sent(grid_of: Any, dtype: str) -> None:
    grid = grid_of(quadratic(), range(3))
    with pytest.raises(ValueError, match=r"initial_arrays: 'x' is .*floats of at most 64 bits"):
        FedAlpha("FedAvg").start(grid, ArrayRecord({"x": Array(np.zeros(2, dtype=dtype))}))
    assert not grid.log


@pytest.mark.parametrize("over", [FedAvgM(server_momentum=0.9), FedAdam(eta=0.1), FedProx(proximal_mu=0.1)])
def test_it_works_over_flowers_server_optimisers(grid_of: Any, over: FedAvg) -> None:
    """With FedAvg's weights, what the optimiser gives on its own, but integer buffers keep their dtype."""
    twin = type(over)(**{k: getattr(over, k) for k in ("server_momentum", "eta", "proximal_mu") if hasattr(over, k)})
    alone = twin.start(grid_of(quadratic(), range(4)), start_arrays(), num_rounds=3)
    found = FedAlpha("FedAvg", over=over).start(grid_of(quadratic(), range(4)), start_arrays(), num_rounds=3)
    np.testing.assert_allclose(found.arrays["w"].numpy(), alone.arrays["w"].numpy(), rtol=1e-5)
    assert found.arrays["count"].numpy().dtype == np.int64
    assert found.arrays["w"].numpy().dtype == np.float32


@pytest.mark.parametrize("over", [FedMedian(), Krum(), MultiKrum()])
def test_rules_that_are_not_means_are_refused(over: FedAvg) -> None:
    with pytest.raises(ValueError, match="weighted mean"):
        FedAlpha("FedAvg", over=over)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="fraction_train to FedAdam"):
        FedAlpha("FedAvg", over=FedAdam(), fraction_train=0.5)
    with pytest.raises(ValueError, match="quorum"):
        FedAlpha("FedAvg", quorum=1.5)
    with pytest.raises(ValueError, match="quorum"):
        FedAlpha("FedAvg", quorum=0.0)
    with pytest.raises(ValueError, match="quorum"):
        FedAlpha("FedAvg", quorum=True)
    with pytest.raises(ValueError, match="liars = -1"):
        FedAlpha("FedAvg", evaluate=Evaluate(liars=-1))
    with pytest.raises(TypeError, match="evaluate = 5; give"):
        FedAlpha("FedAvg", evaluate=5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="every and signal of Evaluate are for simulations"):
        FedAlpha("FedAvg", evaluate=Evaluate(every=5))
    with pytest.raises(TypeError, match="FedAlpha does not take patience; "):
        FedAlpha("FedAvg", patience=3)
    for name, instead in (
        ("fraction_fit", "its present name is fraction_train"),
        ("initial_parameters", "pass initial_arrays= to start"),
        ("evaluate_fn", "pass evaluate_fn= to start"),
        ("clock", "time is real on a live federation"),
        ("fraction_trian", "did you mean 'fraction_train'"),
        ("loss", "did you mean .*'losses'"),
    ):
        with pytest.raises(TypeError, match=f"FedAlpha does not take {name}; {instead}"):
            FedAlpha("FedAvg", **{name: 1})
    for share in (2, -0.1, "0.5", True):
        with pytest.raises(ValueError, match=r"fraction_train = .*; give a share of the nodes"):
            FedAlpha("FedAvg", fraction_train=share)
    with pytest.raises(ValueError, match="seed = 'a'; give a whole number"):
        FedAlpha("FedAvg", seed="a")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="loss_keys = 'test_loss'; give a name for each kind"):
        FedAlpha("FedAvg", loss_keys="test_loss")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="loss_keys: 'eval' is not a kind of loss; give train, after, evaluate"):
        FedAlpha("FedAvg", loss_keys={"eval": "test_loss"})
    for name in ("accuracy_key", "weighted_by_key"):
        with pytest.raises(TypeError, match=f"{name} = 3; give the name of a metric"):
            FedAlpha("FedAvg", **{name: 3})  # type: ignore[arg-type]
    for name, seconds in itertools.product(("wait_for_nodes", "query_timeout"), (-1, 0, math.nan, True, "60")):
        with pytest.raises(ValueError, match=f"{name} = .*; give a number of seconds above 0"):
            FedAlpha("FedAvg", **{name: seconds})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="out = 3; give the path of a folder"):
        FedAlpha("FedAvg", out=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="callbacks = 3; give a list"):
        FedAlpha("FedAvg", callbacks=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unknown logger 'foo'"):
        FedAlpha("FedAvg", callbacks="foo")
    with pytest.raises(ValueError, match="FedSoftWorse"):
        FedAlpha("FedSoftWors(T=1)")


def test_wrong_arguments_of_start_are_named(grid_of: Any) -> None:
    grid = grid_of(quadratic(), range(3))
    with pytest.raises(ValueError, match="num_rounds = '3'; give a whole number"):
        FedAlpha("FedAvg").start(grid, ArrayRecord(), num_rounds="3")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"initial_arrays is dict; give an ArrayRecord\(model.state_dict\(\)\)"):
        FedAlpha("FedAvg").start(grid, {}, num_rounds=3)  # type: ignore[arg-type]


def test_what_is_no_app_and_no_loss_is_named() -> None:
    for wrap in (add_loss_query, clipping, secured):
        with pytest.raises(TypeError, match="3 is not a ClientApp; call it with the app"):
            wrap(3)  # type: ignore[arg-type,operator]
    with pytest.raises(TypeError, match=r"loss = 'eval_loss' is not a function; give loss\(arrays, context\)"):
        add_loss_query(ClientApp(), "eval_loss")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="is not a function"):
        loss_query_mod(0.5)  # type: ignore[arg-type]


def test_a_rule_that_looks_at_accuracy_needs_an_evaluation(grid_of: Any) -> None:
    text = "switch(FedWorse(k=1), FedAvg, accuracy=0.2)"
    with pytest.raises(ValueError, match="evaluate_fn"):
        run(FedAlpha(text, fraction_evaluate=0.0), grid_of(quadratic(), range(3)))
    rule = FedAlpha(text)
    run(rule, grid_of(quadratic(), range(3)), rounds=2)
    assert [0 in row["alpha"] for row in rule.rows[1:]] == [True, False]
    server = FedAlpha(text, fraction_evaluate=0.0)
    server.start(
        grid_of(quadratic(), range(3)), start_arrays(), 3, evaluate_fn=lambda r, _: MetricRecord({"accuracy": r / 10})
    )
    assert [0 in row["alpha"] for row in server.rows[1:]] == [True, True, False]


def test_an_accuracy_in_percent_is_named_once(grid_of: Any, logged: Any) -> None:
    rule = FedAlpha("switch(FedWorse(k=1), FedAvg, accuracy=0.2)", fraction_evaluate=0.0, accuracy_key="top1")
    rule.start(grid_of(quadratic(), range(3)), start_arrays(), 3, evaluate_fn=lambda r, _: MetricRecord({"top1": 30.0}))
    warnings = [r.getMessage() for r in logged.records if "'top1' is 30" in r.getMessage()]
    assert len(warnings) == 1
    assert "0.6, not 60" in warnings[0]
    assert rule.accuracy is None


OPTIMISERS = {"FedAvg": FedAvg, "FedAvgM": lambda: FedAvgM(server_momentum=0.5), "FedAdam": lambda: FedAdam(eta=0.1)}


@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize("strategy", ["FedSoftWorse(T=2, optima=estimated)", "switch(FedWorse(k=1), FedAvg, at=3)"])
def test_a_killed_server_goes_on_with_the_same_bytes(
    grid_of: Any, tmp_path: Path, strategy: str, optimiser: str
) -> None:
    def rule(folder: Path) -> FedAlpha:
        return FedAlpha(strategy, over=OPTIMISERS[optimiser](), out=folder, seed=2)

    whole = rule(tmp_path / "whole")
    expected = run(whole, grid_of(quadratic(), range(5)), rounds=6)

    grid = grid_of(quadratic(), range(5))

    def kill(node: int, message: Message, reply: Message) -> Message:
        if message.content.config_records and message.content["config"].get("server-round") == 4:
            raise KeyboardInterrupt
        return reply

    grid.spoil = kill
    with pytest.raises(KeyboardInterrupt):
        run(rule(tmp_path / "killed"), grid, rounds=6)
    again = rule(tmp_path / "killed")
    grid = grid_of(quadratic(), range(5), first_node=5)
    result = again.start(grid, start_arrays(), num_rounds=6, timeout=1)
    assert again.rounds_done == 3
    assert result.arrays["w"].numpy().tobytes() == expected["w"].tobytes()
    assert [row["alpha"] for row in again.rows] == [row["alpha"] for row in whole.rows]
    assert sorted(result.train_metrics_clientapp) == [1, 2, 3, 4, 5, 6]
    assert sorted(result.evaluate_metrics_clientapp) == [1, 2, 3, 4, 5, 6]
    lines = (tmp_path / "killed" / "history.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines] == [0, 1, 2, 3, 4, 5, 6]
    finished = rule(tmp_path / "killed")
    grid = grid_of(quadratic(), range(5))
    assert run(finished, grid, rounds=6)["w"].tobytes() == expected["w"].tobytes()
    assert not any(kind == "train" for kind, _ in grid.log)


def test_a_damaged_state_falls_back_to_the_one_before(grid_of: Any, tmp_path: Path) -> None:
    expected = run(FedAlpha("FedAvg", out=tmp_path / "a"), grid_of(quadratic(), range(3)), rounds=4)
    run(FedAlpha("FedAvg", out=tmp_path / "b"), grid_of(quadratic(), range(3)), rounds=2)
    newest = max((tmp_path / "b" / "checkpoint").glob("*.safetensors"))
    data = bytearray(newest.read_bytes())
    data[-3] ^= 1
    newest.write_bytes(data)
    again = FedAlpha("FedAvg", out=tmp_path / "b")
    found = run(again, grid_of(quadratic(), range(3)), rounds=4)
    assert 0 < again.rounds_done <= 2
    assert found["w"].tobytes() == expected["w"].tobytes()
    for file in (tmp_path / "b" / "checkpoint").glob("*.safetensors"):
        file.write_bytes(b"nothing")
    with pytest.raises(DamagedError, match="no older one to go back to"):
        run(FedAlpha("FedAvg", out=tmp_path / "b"), grid_of(quadratic(), range(3)))


def test_another_run_in_the_folder_is_refused(grid_of: Any, tmp_path: Path) -> None:
    run(FedAlpha("FedAvg", out=tmp_path), grid_of(quadratic(), range(3)))
    with pytest.raises(ValueError, match=r"strategy is FedAvg there and FedWorse.* here.*another folder"):
        run(FedAlpha("FedWorse", out=tmp_path), grid_of(quadratic(), range(3)))
    others = FedAlpha("FedAvg", out=tmp_path, quorum=0.5, wait_for_nodes=9, query_timeout=8, min_available_nodes=3)
    run(others, grid_of(quadratic(), range(3)))
    assert others.rounds_done == 1


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "share": ({"fraction_train": 0.5}, "FedAdam.fraction_train is 1.0 there and 0.5 here"),
    "least": ({"min_evaluate_nodes": 1}, "FedAdam.min_evaluate_nodes is 2 there and 1 here"),
    "key": ({"weighted_by_key": "tokens"}, "FedAdam.weighted_by_key is num-examples there and tokens here"),
    "eta": ({"eta": 0.2}, "FedAdam.eta is 0.1 there and 0.2 here"),
    "loss key": ({"loss_keys": {"train": "mine"}}, "loss_keys is .* there and .*mine.* here"),
    "signed": ({"signed": True}, "signed is False there and True here"),
    "model": ({"start": np.zeros(3)}, "arrays is 2 arrays, 5 values, .* there and 2 arrays, 4 values, .* here"),
}


def test_changed_settings_are_refused(grid_of: Any, tmp_path: Path, logged: Any) -> None:
    def resume(start: Any = 0.0, loss_keys: Any = None, signed: bool = False, **adam: Any) -> FedAlpha:
        rule = FedAlpha("FedAvg", over=FedAdam(**adam), out=tmp_path, loss_keys=loss_keys, signed=signed)
        w = np.asarray(start, dtype=np.float32) + np.zeros(4 if np.ndim(start) == 0 else 3, dtype=np.float32)
        rule.resume(ArrayRecord({"w": Array(w), "count": Array(START["count"])}))
        return rule

    run(FedAlpha("FedAvg", over=FedAdam(), out=tmp_path), grid_of(quadratic(), range(3)))
    for changes, message in CHANGES.values():
        with pytest.raises(ValueError, match=message):
            resume(**changes)
    assert "initial_arrays differ from those" not in logged.text
    rule = resume(start=1.0)  # a first model that is not drawn from a seed is another one after every start
    assert "initial_arrays differ from those" in logged.text
    assert rule.rounds_done == 1
    rule.release()


def test_a_second_server_is_kept_out(grid_of: Any, tmp_path: Path) -> None:
    first, second = (FedAlpha("FedAvg", out=tmp_path) for _ in range(2))
    first.resume(start_arrays())
    with pytest.raises(RuntimeError, match="in use by this process"):
        run(second, grid_of(quadratic(), range(3)))
    first.release()
    run(second, grid_of(quadratic(), range(3)))
    first.resume(start_arrays())
    first.release()
    code = (
        "from pathlib import Path; from fedalpha.store import FolderLock; lock = FolderLock(Path(input())); "
        "lock.__enter__(); print(1, flush=True); input()"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(f"{tmp_path}\n".encode())
        server.stdin.flush()
        server.stdout.readline()
        with pytest.raises(RuntimeError, match=rf"another process \(pid {server.pid}\)"):
            first.resume(start_arrays())
        server.kill()
    first.resume(start_arrays())
    first.release()


def test_an_app_without_the_query_is_named_without_a_wait(grid_of: Any, logged: Any) -> None:
    """All nodes of a run have the same app, so waiting for other nodes would not help."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        raise AssertionError

    for rules in ({"strategy": "FedWorse"}, {"select": "power_of_choice(C=0.5, d=0.8)", "losses": "evaluate"}):
        grid = grid_of(app, range(3))
        with pytest.raises(RuntimeError, match=r"a query that these rules need.*No query function.*add_loss_query"):
            run(FedAlpha(**rules), grid)
        assert grid.log == [("query.client", 0), ("query.client", 1), ("query.client", 2)]
    assert logged.text.count("add fedalpha.flower.add_loss_query") == 2


def test_a_silent_node_is_waited_for_once_and_joins_when_it_answers(
    grid_of: Any, logged: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=0.0)
    clock.monotonic = lambda: clock.now
    clock.sleep = lambda seconds: setattr(clock, "now", clock.now + seconds)
    monkeypatch.setattr("fedalpha.flower.exchange.time", clock)
    monkeypatch.setattr("fedalpha.flower.clients.time", clock)
    grid = grid_of(quadratic(), range(4))
    silent: list[tuple[str, Message]] = []

    def spoil(node: int, message: Message, reply: Message) -> Message | None:
        if message.metadata.message_type != "query.client" or grid.client(node) != 2:
            return reply
        silent.append((message.metadata.message_id, reply))
        return None

    times = []

    def after(server_round: int, arrays: ArrayRecord) -> None:
        times.append(clock.now)
        if server_round == 3:
            grid._replies.update(silent)

    grid.spoil = spoil
    rule = FedAlpha("FedAvg", query_timeout=600.0)
    rule.start(grid, start_arrays(), 4, evaluate_fn=after)
    assert 600 <= times[1] < 610
    assert times[1:] == times[1:2] * 4
    assert [row["cohort"] for row in rule.rows[1:]] == [[0, 1, 3]] * 3 + [[0, 1, 2, 3]]
    assert len(silent) == 1
    assert logged.text.count("is left out until it reports a usable client id") == 1


def test_a_server_needs_neither_torch_nor_matplotlib(tmp_path: Path) -> None:
    """A run folder without them lacks the picture, and the log says so."""
    code = (
        "import importlib.util as u, sys; find = u.find_spec; absent = 'torch', 'matplotlib', 'pandas', 'sklearn'; "
        "u.find_spec = lambda name, *rest: None if name in absent else find(name, *rest); "
        "sys.modules.update(dict.fromkeys(absent)); from flower.conftest import LocalGrid; import flwr.app as f; "
        "from flwr.clientapp import ClientApp; from fedalpha.flower import FedAlpha; app = ClientApp(); "
        "content = f.RecordDict({'a': f.ArrayRecord(), 'm': f.MetricRecord({'num-examples': 1})}); "
        "app.train()(lambda message, context: f.Message(content, reply_to=message)); "
        "rule = FedAlpha('FedAvg', out=sys.argv[1], fraction_evaluate=0.0); "
        "rule.start(LocalGrid(app, range(2)), f.ArrayRecord(), num_rounds=1); print(rule.rows[1]['alpha'])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    found = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, env=environment, check=True
    )
    assert found.stdout.strip() == "[0.5, 0.5]"
    assert "curves.png is not drawn: install matplotlib" in found.stderr
    files = {"config.json", "history.jsonl", "model.safetensors"}
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} >= files


@pytest.mark.parametrize("evaluated", [0.0, 1.0])
def test_a_round_that_flowers_privacy_wrapper_skips_keeps_the_model(grid_of: Any, evaluated: float) -> None:
    """These wrappers do not pass the replies on if a client sent an error; the run goes on."""
    from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping as Private

    def fail(node: int, message: Message, reply: Message) -> Message:
        failing = message.metadata.message_type == "train" and message.content["config"]["server-round"] == 2
        return Message(Error(code=2, reason="boom"), reply_to=message) if failing and node == 1037 else reply

    inner, grid = FedAlpha("FedSoftWorse(T=2)", fraction_evaluate=evaluated), grid_of(quadratic(), range(3))
    grid.spoil = fail
    wrapper = Private(inner, noise_multiplier=0.0, clipping_norm=1e6, num_sampled_clients=3)
    wrapper.start(grid, inner.resume(start_arrays()), num_rounds=4)
    assert [row["round"] for row in inner.rows] == [0, 1, 2, 3, 4]
    assert [bool(row["kept"]) for row in inner.rows] == [False, False, True, False, False]
    reasons = {refusal["reason"] for refusal in inner.rows[2]["refused"]}
    assert reasons == {"a wrapper of FedAlpha did not pass the replies on"}


def test_flowers_privacy_wrapper_can_resume_by_hand(grid_of: Any, tmp_path: Path) -> None:
    """Wrappers bypass FedAlpha.start; its resume and rounds_done let them go on. What is saved has the noise in it."""
    from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping as Private

    inner = FedAlpha("FedAvg", out=tmp_path, fraction_evaluate=0.0)
    wrapper = Private(inner, noise_multiplier=0.1, clipping_norm=5.0, num_sampled_clients=3)
    result = wrapper.start(grid_of(quadratic(), range(3)), inner.resume(start_arrays()), num_rounds=2)
    inner.release()
    again = FedAlpha("FedAvg", out=tmp_path, fraction_evaluate=0.0)
    arrays = again.resume(start_arrays())
    assert again.rounds_done == 2
    assert arrays["w"].numpy().tobytes() == result.arrays["w"].numpy().tobytes()
    wrapper = Private(again, noise_multiplier=0.1, clipping_norm=5.0, num_sampled_clients=3)
    wrapper.start(grid_of(quadratic(), range(3)), arrays, num_rounds=3 - again.rounds_done)
    again.release()
    assert [row["round"] for row in again.rows] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("adaptive", "on_clients", "rules"),
    [
        (False, False, {"strategy": "FedWorse(k=2)"}),
        (True, False, {"losses": "evaluate"}),
        (False, True, {"over": FedAdam(eta=0.1)}),
        (True, True, {"evaluate": Evaluate(shadow=["FedAvg"]), "losses": "train"}),
    ],
)
def test_under_a_wrapper_that_adds_no_noise_the_model_is_the_same(
    grid_of: Any, tmp_path: Path, adaptive: bool, on_clients: bool, rules: dict[str, Any]
) -> None:
    """All four of Flower's privacy wrappers; stopped after two rounds and resumed."""
    from flwr.clientapp.mod import adaptiveclipping_mod, fixedclipping_mod

    kind = f"DifferentialPrivacy{'Client' if on_clients else 'Server'}Side{'Adaptive' if adaptive else 'Fixed'}Clipping"
    given = ({"clipped_count_stddev": 0.0, "initial_clipping_norm": 1e6} if adaptive else {"clipping_norm": 1e6}) | {
        "noise_multiplier": 0.0,
        "num_sampled_clients": 3,
    }
    mod, app = adaptiveclipping_mod if adaptive else fixedclipping_mod, quadratic()

    def clipped(message: Message, context: Context) -> Message:
        training = message.metadata.message_type == "train"
        return mod(message, context, app) if training and on_clients else app(message, context)

    def rule(out: Path | None = None) -> FedAlpha:
        return FedAlpha(**{"strategy": "FedSoftWorse(T=2)", "out": out, **rules})

    expected = run(rule(), grid_of(app, range(3)), rounds=3)
    for rounds in (2, 3):
        inner = rule(tmp_path)
        begun = inner.resume(start_arrays())
        wrapper = getattr(strategy, kind)(inner, **given)
        found = wrapper.start(grid_of(clipped, range(3)), begun, num_rounds=rounds - inner.rounds_done).arrays
        inner.release()
    assert {name: array.numpy().tobytes() for name, array in found.items()} == {
        name: value.tobytes() for name, value in expected.items()
    }
    assert not any(row["refused"] for row in inner.rows)


def test_a_run_that_bypasses_start_does_not_overwrite_another(grid_of: Any, tmp_path: Path) -> None:
    """Wrappers and subclasses with a ``start`` of their own call configure_train without resume."""
    from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping as Private
    from flwr.serverapp.strategy import Strategy as FlowerStrategy

    class Own(FedAlpha):
        start = FlowerStrategy.start

    def private(rule: FedAlpha) -> Any:
        return Private(rule, noise_multiplier=0.1, clipping_norm=5.0, num_sampled_clients=3)

    def start(strategy: Any) -> Any:
        return strategy.start(grid_of(quadratic(), range(3)), start_arrays(), num_rounds=2)

    kinds: dict[str, Any] = {"wrapped": private, "own": lambda rule: rule}
    for name, wrapped in kinds.items():
        first = Own("FedAvg", out=tmp_path / name, fraction_evaluate=0.0)
        start(wrapped(first))
        with pytest.raises(RuntimeError, match="in use by this process"):
            start(wrapped(Own("FedAvg", out=tmp_path / name, fraction_evaluate=0.0)))
        with pytest.raises(RuntimeError, match="2 rounds of this run are finished"):
            start(wrapped(first))
        first.release()
        with pytest.raises(RuntimeError, match=r"Call resume\(initial_arrays\) first .* or name another folder"):
            start(wrapped(Own("FedAvg", out=tmp_path / name, fraction_evaluate=0.0)))
        again = FedAlpha("FedAvg", out=tmp_path / name, fraction_evaluate=0.0)
        arrays = again.resume(start_arrays())
        assert again.rounds_done == 2
        assert again.rows == first.rows
        assert arrays["w"].numpy().any()
        again.release()


def test_a_long_reason_is_stored_in_short(grid_of: Any, tmp_path: Path) -> None:
    grid = grid_of(quadratic(), range(3))

    def spoil(node: int, message: Message, reply: Message) -> Message:
        if message.metadata.message_type == "train" and grid.client(node) == 1:
            return Message(Error(code=0, reason="x" * 10_000_000), reply_to=message)
        return reply

    grid.spoil = spoil
    rule = FedAlpha("FedAvg", out=tmp_path, fraction_evaluate=0.0)
    run(rule, grid, rounds=2)
    assert all(len(row["refused"][0]["reason"]) < 600 for row in rule.rows[1:])
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".png"]
    assert sum(path.stat().st_size for path in files) < 20_000


def test_a_row_keeps_so_many_metrics_of_a_client_and_no_more(grid_of: Any, tmp_path: Path) -> None:
    grid = grid_of(quadratic(), [0])

    def spoil(node: int, message: Message, reply: Message) -> Message:
        reply.content["metrics"].update({f"metric {i}": i for i in range(5000)} | {"n" * 5000: 1, "list": [1] * 5000})
        return reply

    grid.spoil = spoil
    rule = FedAlpha("FedAvg", out=tmp_path, fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
    run(rule, grid, rounds=1)
    assert len(rule.rows[1]["metrics"]["train"]) <= 1000
    assert (tmp_path / "history.jsonl").stat().st_size < 40_000


def test_a_client_does_not_need_the_servers_packages() -> None:
    code = (
        "import sys; sys.modules['safetensors'] = sys.modules['torch'] = None; "
        "from fedalpha.flower import add_loss_query, loss_query_mod; "
        "print('fedalpha.flower.strategy' in sys.modules, 'fedalpha.store' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False False"


def test_nodes_that_register_again_are_the_same_clients(grid_of: Any) -> None:
    """New node ids after every round: the memory of the rule, and so the bytes, stay with the clients."""
    text = "FedSoftWorse(T=2, optima=estimated)"
    expected = run(FedAlpha(text, fraction_evaluate=0.0), grid_of(quadratic(), range(4)), rounds=3)
    grid = grid_of(quadratic(), range(4))

    def register_again(server_round: int, arrays: ArrayRecord) -> None:
        grid.nodes = {node + 1: config for node, config in reversed(grid.nodes.items())}

    found = FedAlpha(text, fraction_evaluate=0.0).start(grid, start_arrays(), 3, evaluate_fn=register_again)
    assert found.arrays["w"].numpy().tobytes() == expected["w"].tobytes()
