"""Secure sums on a live federation: the bytes of the simulated ones, and nothing of a client in what is sent."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg

import fedalpha
from fedalpha.data import Pooled
from fedalpha.flower import FedAlpha, client_app, evaluate_on, initial_arrays, secured
from fedalpha.flower.names import CONTENT, SECURE
from fedalpha.flower.pytorch import to_parameters
from fedalpha.secure.messages import Masked, Survivors, Unmask
from fedalpha.secure.server import KINDS

CLIENTS = [7, 2, 0, 5, 1, 9, 3, 4, 8, 6]
UPDATE = "sgd(lr=0.1, batch=20)"


@pytest.fixture(scope="module")
def digits() -> Pooled:
    found = fedalpha.federation("digits", partition="shards(size=30)", clients=10, seed=5)
    assert isinstance(found, Pooled)
    return found


def app_of(digits: Pooled, **settings: Any) -> Any:
    data = lambda context: digits.client(int(context.node_config["partition-id"]))  # noqa: E731
    return secured(client_app("softmax", data, UPDATE, classes=10, seed=5), **settings)


def live(
    digits: Pooled, grid: Any, secure: str, strategy: str = "FedSoftWorse(T=0.2)", rounds: int = 2, **more: Any
) -> tuple[FedAlpha, Any]:
    settings = {"fraction_evaluate": 0.0, "bound": None, **more}
    rule = FedAlpha(strategy, seed=5, clients=10, secure=secure, **settings)
    first = initial_arrays("softmax", digits.shape, 10, seed=5)
    test = evaluate_on("softmax", digits.test, classes=10)
    return rule, rule.start(grid, first, num_rounds=rounds, timeout=0.5, evaluate_fn=test)


def equal(found: Any, history: fedalpha.History) -> None:
    for name, value in to_parameters(found.arrays).items():
        assert value.numpy().tobytes() == history.model[name].numpy().tobytes(), name


@pytest.mark.parametrize("secure", ["masked", "blind(reference=2.0)", "masked(neighbours=4, threshold=1/2)"])
def test_the_model_is_that_of_the_simulated_secure_sum(digits: Pooled, grid_of: Any, secure: str) -> None:
    rule, found = live(digits, grid_of(app_of(digits), CLIENTS), secure)
    history = fedalpha.run(
        digits,
        "softmax",
        "FedSoftWorse(T=0.2)",
        rounds=2,
        seed=5,
        update=UPDATE,
        engine="embedded(workers=1, vectorise=false)",
        secure=secure,
    )
    equal(found, history)
    for row, other in zip(rule.rows, history.rows, strict=True):
        assert row["kept"] is None
        for name in ("alpha", "cohort", "secure_error", "secure_bytes_up"):
            assert row[name] == other[name], name
    assert ("before" in rule.rows[-1]["losses"]) == secure.startswith("masked")


class Lost:
    """Nodes that do not answer some kinds of messages; keeps everything that reaches the server."""

    def __init__(self, grid: Any, lost: dict[str, set[int]]) -> None:
        self.grid, self.lost, self.heard = grid, lost, list[tuple[str, int, Message]]()

    def __call__(self, node: int, message: Message, reply: Message) -> Message | None:
        kind, client = message.metadata.message_type, self.grid.client(node)
        record = message.content.config_records.get(SECURE, {})
        step = str(record.get("step", kind))
        if client in self.lost.get(step, ()):
            return None
        self.heard.append((step, client, reply))
        return reply


@pytest.mark.parametrize("step", ["advertised", "shared", "masked", "revealed"])
def test_three_of_ten_may_be_lost_at_every_step(digits: Pooled, grid_of: Any, step: str) -> None:
    grid = grid_of(app_of(digits), CLIENTS)
    grid.spoil = Lost(grid, {step: {0, 4, 9}})
    rule, found = live(digits, grid, "masked", rounds=1)
    lost = [] if step == "revealed" else [0, 4, 9]
    history = fedalpha.run(
        digits,
        "softmax",
        "FedSoftWorse(T=0.2)",
        rounds=1,
        seed=5,
        update=UPDATE,
        engine="embedded(workers=1, vectorise=false)",
        fault=f"drop(clients={lost})" if lost else None,
    )
    error = rule.rows[-1]["secure_error"]
    for name, value in to_parameters(found.arrays).items():
        assert float((value - history.model[name]).abs().max()) <= error + 1e-7
    assert [r["client"] for r in rule.rows[-1]["refused"]] == lost
    assert rule.rows[-1]["alpha"] == history.rows[-1]["alpha"]


def test_a_round_that_is_repeated_after_a_kill_has_new_keys_and_masks(
    digits: Pooled, grid_of: Any, tmp_path: Path
) -> None:
    """The server app is killed in round 2 when it holds all masked vectors and half of the shares."""
    whole, expected = live(digits, grid_of(app_of(digits), CLIENTS), "masked", out=tmp_path / "whole")

    class Killed(Lost):
        def __call__(self, node: int, message: Message, reply: Message) -> Message | None:
            found = super().__call__(node, message, reply)
            if sum(step == "revealed" for step, _, _ in self.heard) == 15:
                raise KeyboardInterrupt
            return found

    grids = [grid_of(app_of(digits), CLIENTS) for _ in range(2)]
    grids[1].nodes, grids[1].contexts = grids[0].nodes, grids[0].contexts  # the nodes keep their state
    grids[0].spoil = Killed(grids[0], {})
    with pytest.raises(KeyboardInterrupt):
        live(digits, grids[0], "masked", out=tmp_path / "killed")
    grids[1].spoil = Lost(grids[1], {})
    again, found = live(digits, grids[1], "masked", out=tmp_path / "killed")
    assert again.rounds_done == 1
    for name, value in to_parameters(found.arrays).items():
        assert value.numpy().tobytes() == to_parameters(expected.arrays)[name].numpy().tobytes(), name
    assert [row["alpha"] for row in again.rows] == [row["alpha"] for row in whole.rows]
    contents = [
        {
            (step, client): reply.content.config_records[SECURE][CONTENT]
            for step, client, reply in heard
            if step in KINDS
        }
        for heard in (grids[0].spoil.heard[-35:], grids[1].spoil.heard)
    ]
    assert len(contents[1]) == 40
    for client in CLIENTS:
        one, two = (KINDS["advertised"].read(told["advertised", client]) for told in contents)
        assert not {one.sealing, one.masking} & {two.sealing, two.masking}
        a, b = (np.frombuffer(Masked.read(told["masked", client]).words, "<u4") for told in contents)
        counts = np.bincount((a - b).view(np.uint8), minlength=256)  # masks that were used again would cancel
        assert ((counts - counts.mean()) ** 2).sum() / counts.mean() < 400


def test_a_client_that_was_lost_after_sharing_its_secrets_is_in_the_next_sum(digits: Pooled, grid_of: Any) -> None:
    """The others have revealed its masking key of round 1; in round 2 it has new ones."""

    class Back(Lost):
        def __call__(self, node: int, message: Message, reply: Message) -> Message | None:
            if sum(step == "masked" for step, _, _ in self.heard) == 9:
                self.lost = {}
            return super().__call__(node, message, reply)

    grid = grid_of(app_of(digits), CLIENTS)
    listener = grid.spoil = Back(grid, {"masked": {4}})
    rule, _ = live(digits, grid, "masked")
    assert [[r["client"] for r in row["refused"]] for row in rule.rows[1:]] == [[4], []]
    assert [row["kept"] for row in rule.rows[1:]] == [None, None]
    one, two = (
        KINDS["advertised"].read(reply.content.config_records[SECURE][CONTENT])
        for step, client, reply in listener.heard
        if step == "advertised" and client == 4
    )
    assert not {one.sealing, one.masking} & {two.sealing, two.masking}


def test_below_the_threshold_the_model_is_kept(digits: Pooled, grid_of: Any) -> None:
    grid = grid_of(app_of(digits), CLIENTS)
    grid.spoil = Lost(grid, {"masked": {0, 4, 8, 9}})
    rule = FedAlpha("FedAvg", seed=5, secure="masked", fraction_evaluate=0.0)
    first = initial_arrays("softmax", digits.shape, 10, seed=5)
    with pytest.raises(RuntimeError, match="no client has trained"):
        rule.start(grid, first, num_rounds=1, timeout=0.5)
    row = rule.rows[-1]
    assert row["kept"] == "there is no secure sum: only 6 of 10 clients delivered; a secure sum needs 7"
    assert not [one for one in grid.spoil.heard if one[0] == "revealed"]


@pytest.mark.parametrize("secure", ["masked", "blind(reference=2.0)"])
def test_what_reaches_the_server_holds_no_model_and_no_loss(digits: Pooled, grid_of: Any, secure: str) -> None:
    grid = grid_of(app_of(digits, hides_losses=secure.startswith("blind")), CLIENTS)
    listener = grid.spoil = Lost(grid, {})
    live(digits, grid, secure, rounds=1)
    trained = [reply for step, _, reply in listener.heard if step == "masked"]
    assert len(trained) == 10
    for reply in trained:
        assert not reply.content.array_records
        assert [list(r) for r in reply.content.metric_records.values()] == [["num-examples"]]
        words = np.frombuffer(Masked.read(reply.content.config_records[SECURE][CONTENT]).words, np.uint8)
        counts = np.bincount(words, minlength=256)
        assert ((counts - counts.mean()) ** 2).sum() / counts.mean() < 400  # chi-square with 255 degrees of freedom
    asked = {step for step, _, _ in listener.heard}
    assert ("query.loss" in asked) == (secure == "masked")
    for _, _, reply in listener.heard:
        assert not reply.content.array_records
        assert (secure == "masked") or not any("loss" in k for r in reply.content.metric_records.values() for k in r)


def keys_for(grid: Any, folder: Path, strangers: tuple[int, ...] = ()) -> None:
    """Write a signing key for each node and everybody's public keys, as the nodes' configurations name them."""
    known = {}
    for node, config in grid.nodes.items():
        key = Ed25519PrivateKey.generate()
        id = config["partition-id"]
        if id not in strangers:
            known[id] = key.public_key().public_bytes_raw().hex()
        file = folder / f"{node}.pem"
        file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        config |= {"signing-key": str(file), "known-keys": str(folder / "known.json")}
    (folder / "known.json").write_text(json.dumps(known))


def test_lists_are_signed_where_nodes_have_keys(digits: Pooled, grid_of: Any, tmp_path: Path) -> None:
    grid = grid_of(app_of(digits), CLIENTS)
    keys_for(grid, tmp_path)
    listener = grid.spoil = Lost(grid, {"masked": {3}, "agreed": {4}})
    rule, found = live(digits, grid, "masked(signed=true)", rounds=1)
    assert rule.rows[-1]["kept"] is None
    assert sum(step == "agreed" for step, _, _ in listener.heard) == 8
    assert [r["client"] for r in rule.rows[-1]["refused"]] == [3]
    assert found.arrays


class Lying:
    """A server that sends some clients another message than the others; ``change`` does so to a training message."""

    def __init__(self, grid: Any, change: Any) -> None:
        self.push, self.client, self.change = grid.push_messages, grid.client, change

    def __call__(self, messages: Any) -> Any:
        return self.push([self.change(self.client(m.metadata.dst_node_id), m) for m in messages])


def singled_out(client: int, message: Message) -> Message:
    """Every client but 3 trains with another model, from which it learns nothing: the sum would be 3's update."""
    if message.metadata.message_type == "train" and client != 3:
        arrays = message.content.array_records["arrays"]
        zeros = {name: Array(np.zeros_like(array.numpy())) for name, array in arrays.items()}
        message.content["arrays"] = ArrayRecord(zeros)
    return message


def rated(client: int, message: Message) -> Message:
    if message.metadata.message_type == "train" and client != 3:
        message.content["config"]["lr"] = 0.0
    return message


def dropped_and_alive(client: int, message: Message) -> Message:
    """In the last step half of the clients are told that client 3 was lost, after all have signed that it was not."""
    record = message.content.config_records.get(SECURE, {})
    if record.get("step") == "revealed" and client < 5:
        unmask = Unmask.read(record[CONTENT])
        told = Survivors.read(unmask.survivors)
        fewer = Survivors(told.roster, [id for id in told.ids if id != 3])
        record[CONTENT] = Unmask(fewer.packed, unmask.signatures).packed
    return message


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (singled_out, "another model or other settings than the clients of this session agreed on"),
        (rated, "another model or other settings than the clients of this session agreed on"),
        (dropped_and_alive, "reports other survivors than those that this client signed"),
    ],
)
def test_with_signing_keys_a_lying_server_is_refused(
    digits: Pooled, grid_of: Any, tmp_path: Path, change: Any, reason: str
) -> None:
    grid = grid_of(app_of(digits), CLIENTS)
    keys_for(grid, tmp_path)
    copied = lambda client, message: change(client, copy.deepcopy(message))  # noqa: E731 - contents are shared
    grid.push_messages = Lying(grid, copied)
    with pytest.raises(RuntimeError, match=reason):
        live(digits, grid, "masked(signed=true)", rounds=1)


def test_with_signing_keys_another_run_configuration_is_refused(digits: Pooled, grid_of: Any, tmp_path: Path) -> None:
    """It comes from the server and is not in the messages: the learning rate of an app may stand there."""
    grid = grid_of(app_of(digits), CLIENTS)
    keys_for(grid, tmp_path)
    grid.run_config = {"lr": 0.1, "secure": True, "name": "a", "epochs": 2}
    node = next(node for node in grid.nodes if grid.client(node) == 3)
    grid.contexts[node] = Context(1, node, dict(grid.nodes[node]), RecordDict(), {**grid.run_config, "lr": 0.0})
    with pytest.raises(RuntimeError, match="the keys of client 3 are not signed by it for this session with these"):
        live(digits, grid, "masked(signed=true)", rounds=1)


def test_with_signing_keys_only_clients_that_hide_their_losses_weigh_themselves(
    digits: Pooled, grid_of: Any, tmp_path: Path
) -> None:
    secure = "blind(reference=2.0, signed=true)"
    grid = grid_of(app_of(digits), CLIENTS)
    keys_for(grid, tmp_path)
    with pytest.raises(RuntimeError, match="clients weigh themselves in this session"):
        live(digits, grid, secure, rounds=1)
    grid = grid_of(app_of(digits, hides_losses=True), CLIENTS)
    keys_for(grid, tmp_path)
    rule, _ = live(digits, grid, secure, rounds=1)
    assert rule.rows[-1]["kept"] is None


def test_settings_for_single_clients_are_refused_where_lists_are_signed(
    digits: Pooled, grid_of: Any, tmp_path: Path
) -> None:
    class PerClient(FedAvg):
        def configure_train(self, *arguments: Any) -> Any:
            for place, message in enumerate(super().configure_train(*arguments)):
                config = ConfigRecord({**message.content["config"], "place": place})
                content = RecordDict({**message.content, "config": config})
                yield Message(content, message_type="train", dst_node_id=message.metadata.dst_node_id)

    grid = grid_of(app_of(digits), CLIENTS)
    keys_for(grid, tmp_path)
    rule = FedAlpha("FedAvg", over=PerClient(fraction_evaluate=0.0), secure="masked(signed=true)")
    with pytest.raises(ValueError, match="the training messages differ from client to client"):
        rule.start(grid, initial_arrays("softmax", digits.shape, 10, seed=5), num_rounds=1, timeout=0.5)


@pytest.mark.parametrize(
    ("secure", "strangers", "reason"),
    [
        ("masked(signed=true)", (6,), "the keys of client 6 are not signed by it"),
        ("masked", (), "requires signatures"),
    ],
)
def test_clients_with_keys_refuse_what_is_not_signed(
    digits: Pooled, grid_of: Any, tmp_path: Path, secure: str, strangers: tuple[int, ...], reason: str
) -> None:
    grid = grid_of(app_of(digits), CLIENTS)
    keys_for(grid, tmp_path, strangers)
    with pytest.raises(RuntimeError, match=reason):
        live(digits, grid, secure, rounds=1)


def test_a_client_sends_nothing_in_the_clear(digits: Pooled, grid_of: Any) -> None:
    grid = grid_of(app_of(digits), CLIENTS)
    rule = FedAlpha("FedAvg", seed=5, fraction_evaluate=0.0)
    with pytest.raises(RuntimeError, match="no client has trained"):
        rule.start(grid, initial_arrays("softmax", digits.shape, 10, seed=5), num_rounds=1, timeout=0.5)


def test_a_client_that_hides_its_loss_answers_no_loss_query(digits: Pooled, grid_of: Any) -> None:
    grid = grid_of(app_of(digits, hides_losses=True), CLIENTS)
    with pytest.raises(RuntimeError, match="no client has trained"):
        live(digits, grid, "masked", rounds=1)


def test_a_client_keeps_to_its_own_clip_and_number_of_clients(digits: Pooled, grid_of: Any) -> None:
    rule, found = live(digits, grid_of(app_of(digits, clip=0.01), CLIENTS), "masked", rounds=1)
    first = to_parameters(initial_arrays("softmax", digits.shape, 10, seed=5))
    moves = [value - first[name] for name, value in to_parameters(found.arrays).items()]
    assert 0 < sum(float((move**2).sum()) for move in moves) ** 0.5 <= 0.0101
    assert rule.rows[-1]["kept"] is None
    with pytest.raises(RuntimeError, match="this client requires at least 9"):
        live(digits, grid_of(app_of(digits, least=9), CLIENTS), "masked", rounds=1)


def test_values_beyond_the_range_are_told(digits: Pooled, grid_of: Any) -> None:
    with pytest.raises(RuntimeError, match=r"beyond the range 0.001: give a larger range, or clip"):
        live(digits, grid_of(app_of(digits), CLIENTS), "masked(range=0.001)", rounds=1)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"combine": "median"}, "looks at single models"),
        ({"strategy": "FedSoftWorse(loss=after)"}, "known after training"),
        ({"update": "scaffold"}, "sends more than a model"),
        ({"losses": "train"}, "needs the training loss of every client"),
        ({"fault": "drop(p=0.1)"}, "changes single replies"),
        (
            {"server": "buffered(K=2, concurrency=4)", "clients": 10, "fraction_evaluate": 0.0},
            "takes updates one by one",
        ),
        ({"secure": "blind"}, "pass fraction_evaluate=0.0"),
        ({"secure": "blind", "losses": "evaluate"}, "asks clients for their losses"),
        ({"secure": "blind", "strategy": "FedWorse(k=4)"}, "compares the losses of clients"),
        (
            {"secure": "blind", "fraction_evaluate": 0.0, "evaluate": fedalpha.Evaluate(shadow=["FedSoftBetter"])},
            "leave shadow out",
        ),
    ],
)
def test_what_does_not_work_is_refused_before_anything_is_trained(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        FedAlpha(**{"strategy": "FedSoftWorse(T=0.2)", "secure": "masked", **settings})


def test_a_wrapper_with_a_loop_of_its_own_is_refused(digits: Pooled, grid_of: Any) -> None:
    wrapper = DifferentialPrivacyServerSideFixedClipping(FedAlpha("FedAvg", secure="masked"), 1.0, 1.0, 10)
    grid = grid_of(app_of(digits), CLIENTS)
    with pytest.raises(RuntimeError, match=r"needs the loop of FedAlpha\.start"):
        wrapper.start(grid, initial_arrays("softmax", digits.shape, 10, seed=5), num_rounds=1)
    assert "train" not in [kind for kind, _ in grid.log]


def test_settings_of_a_client_are_checked(digits: Pooled) -> None:
    with pytest.raises(ValueError, match="clip = -1"):
        app_of(digits, clip=-1)
    with pytest.raises(ValueError, match="give at least 2"):
        app_of(digits, least=1)


def test_private_sums_on_a_live_federation(digits: Pooled, grid_of: Any) -> None:
    """Clients clip, weigh and add noise; without noise it is the simulated sum to the last bits."""
    settings = {"strategy": "cap(FedAvg, 0.25)", "combine": "noise(clip(mean, C=0.2), z=0, c=0.25)"}
    quiet = live(digits, grid_of(app_of(digits), CLIENTS), "masked", rounds=1, **settings)
    history = fedalpha.run(
        digits, "softmax", rounds=1, seed=5, update=UPDATE, engine="embedded(workers=1)", secure="masked", **settings
    )
    for name, value in to_parameters(quiet[1].arrays).items():
        assert float((value - history.model[name]).abs().max()) <= 1e-6
    settings["combine"] = settings["combine"].replace("z=0", "z=0.5")
    loud = live(digits, grid_of(app_of(digits), CLIENTS), "masked", rounds=1, **settings)
    moved = [
        (value - to_parameters(quiet[1].arrays)[name]).numpy().ravel()
        for name, value in to_parameters(loud[1].arrays).items()
    ]
    assert np.std(np.concatenate(moved)) == pytest.approx(0.5 * 2 * 0.25 * 0.2 * (10 / 7) ** 0.5, rel=0.1)
