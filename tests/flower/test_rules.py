"""What protects a live federation: bounds on magnitude, buffers, rules that are refused, and states after a kill."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import FedAdam, FedAvg

from fedalpha import Evaluate
from fedalpha.data import Pooled
from fedalpha.flower import FedAlpha, add_loss_query, client_app, initial_arrays
from fedalpha.flower.rounds import Running
from fedalpha.strategies import Strategy, Traits

ARRAYS = {
    "w": np.zeros(3, dtype=np.float32),
    "bn.running_var": np.ones(3, dtype=np.float32),
    "bn.num_batches_tracked": np.zeros((), dtype=np.int64),
}


def begin() -> ArrayRecord:
    return ArrayRecord({name: Array(value) for name, value in ARRAYS.items()})


def app(sent: Any = None) -> ClientApp:
    """Client i sends w = i + 1 and running_var = 0.25; ``sent(i, arrays)`` may change what it sends."""
    made = ClientApp()

    @made.train()
    def train(message: Message, context: Context) -> Message:
        id = int(context.node_config["partition-id"])
        arrays = {
            "w": np.full(3, id + 1, dtype=np.float32),
            "bn.running_var": np.full(3, 0.25, dtype=np.float32),
            "bn.num_batches_tracked": np.array(id, dtype=np.int64),
        }
        if sent is not None:
            sent(id, arrays)
        metrics = MetricRecord({"num-examples": 10, "train_loss": 1.0})
        record = ArrayRecord({name: Array(value) for name, value in arrays.items()})
        return Message(RecordDict({"arrays": record, "metrics": metrics}), reply_to=message)

    return add_loss_query(made, lambda arrays, context: (1.0, 10), examples=lambda context: 10)


def run(rule: FedAlpha, grid: Any, rounds: int = 1) -> dict[str, np.ndarray]:
    found = rule.start(grid, begin(), num_rounds=rounds, timeout=0.2)
    return {name: array.numpy() for name, array in found.arrays.items()}


def test_a_model_of_absurd_magnitude_is_refused_alone(grid_of: Any) -> None:
    def hostile(id: int, arrays: dict[str, np.ndarray]) -> None:
        if id == 0:
            arrays["w"] = np.array([1, 3e38, 1], dtype=np.float32)

    for over in (None, FedAdam(eta=0.1)):
        rule = FedAlpha("FedAvg", over=over)
        found = run(rule, grid_of(app(hostile), range(3)), rounds=2)
        assert rule.rows[1]["refused"] == [
            {"client": 0, "reason": "array 'w' holds 3e+38; at most 10000 is accepted (bound=10000)"}
        ]
        alone = run(FedAlpha("FedAvg", over=over), grid_of(app(), [1, 2]), rounds=2)
        assert found["w"].tobytes() == alone["w"].tobytes()


@pytest.mark.parametrize("value", [1e6, 3e38])
def test_control_variates_of_absurd_magnitude_are_refused_alone(digits: Pooled, grid_of: Any, value: float) -> None:
    """One client would otherwise ruin the control variate of the server, and with it every later model."""
    update = "scaffold(lr=0.1, batch=20)"
    made = client_app("softmax", lambda c: digits.client(int(c.node_config["partition-id"])), update, classes=10)

    grid = grid_of(made, [1, 2, 3])

    def spoil(node: int, message: Message, reply: Message) -> Message:
        if grid.client(node) == 3 and message.metadata.message_type == "train":
            extras = reply.content.array_records["fedalpha.extras"]
            for name, array in extras.items():
                extras[name] = Array(np.full(array.shape, value, dtype=np.float32))
        return reply

    grid.spoil = spoil
    rule = FedAlpha("FedAvg", update=update, fraction_evaluate=0.0)
    rule.start(grid, initial_arrays("softmax", digits.shape, 10), 2, timeout=0.2)
    for row in rule.rows[1:]:
        assert row["kept"] is None
        assert [refusal["client"] for refusal in row["refused"]] == [3]
        assert "extra 'scaffold.output" in row["refused"][0]["reason"]
        assert "at most 10000 is accepted" in row["refused"][0]["reason"]


def test_an_aggregate_beyond_the_bound_is_not_installed(grid_of: Any) -> None:
    """Coefficients off the simplex may add up to anything, though every model is within the bound."""

    class Huge(Strategy):
        @property
        def traits(self) -> Traits:
            return Traits(simplex=False)

        def weights(self, state: Any, cohort: Any) -> Any:
            return np.full(len(cohort), 1e6), state

    rule = FedAlpha(Huge(), over=FedAdam(eta=0.1))
    found = run(rule, grid_of(app(), range(3)))
    assert "the aggregate is not installed: 'w' holds 6e+06; at most 10000 is accepted" in rule.rows[1]["kept"]
    assert (found["w"] == 0).all()
    assert rule.over.m_t is None
    assert (run(FedAlpha(Huge(), bound=None), grid_of(app(), range(3)))["w"] > 1e6).all()


def test_buffers_are_not_stepped_by_a_server_optimiser(grid_of: Any) -> None:
    """Adam's step does not depend on the size of a change: running variances would become negative."""
    for rule in (FedAlpha("FedAvg", over=FedAdam(eta=0.5)), FedAlpha("FedAvg", apply="fedadam(lr=0.5)")):
        found = run(rule, grid_of(app(), range(3)), rounds=3)
        assert found["bn.running_var"].tolist() == [0.25] * 3
        assert found["bn.num_batches_tracked"] == 0
        assert not np.allclose(found["w"], 2.0)


def made(kind: Any) -> Any:
    """An object of a Flower strategy; the privacy wrappers need arguments."""
    for given in ((), (FedAvg(), 0.1, 1000)):
        try:
            return kind(*given)
        except TypeError:
            continue
    return kind(FedAvg(), 0.1, 1.0, 1000)


def test_what_flower_strategies_are_taken() -> None:
    class Mine(FedAdam):
        """A user's own."""

    class Loops(FedAvg):
        def start(self, *args: Any, **kwargs: Any) -> Any:
            raise AssertionError

    assert "over=Mine" in repr(FedAlpha("FedAvg", over=Mine()))
    means = {"FedAdagrad", "FedAdam", "FedAvg", "FedAvgM", "FedProx", "FedYogi"}
    for name in set(flower.__all__) - {"Result", "Strategy"}:
        over = made(getattr(flower, name))
        if name in means:
            FedAlpha("FedAvg", over=over)
        else:
            with pytest.raises(ValueError, match=f"over = {name} does not build on a weighted mean.*combine="):
                FedAlpha("FedAvg", over=over)
    for wrong in (FedAdam, "FedAdam"):
        with pytest.raises(TypeError, match=r"is not a Flower strategy; give an object, such as FedAdam\(eta=0.01\)"):
            FedAlpha("FedAvg", over=wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"Loops has a start\(\) of its own"):
        FedAlpha("FedAvg", over=Loops())


def test_noise_that_everybody_can_draw_is_refused() -> None:
    """Under a secure sum the clients add it, each from its system's generator."""
    private = "noise(clip(mean, C=1.0), z={z}, c=0.3{seed})"
    made: dict[str, Any] = {"strategy": "cap(FedAvg, 0.3)", "fraction_evaluate": 0.0}
    with pytest.raises(ValueError, match="draws its noise from seed 0, the default"):
        FedAlpha(**made, combine=private.format(z=1, seed=""))
    FedAlpha(**made, combine=private.format(z=1, seed=", seed=system"))
    FedAlpha(**made, combine=private.format(z=1, seed=", seed=7"))
    FedAlpha(**made, combine=private.format(z=0, seed=""))
    FedAlpha(**made, combine=private.format(z=1, seed=""), secure="masked")


def test_an_evaluation_of_its_own_is_called(grid_of: Any) -> None:
    class Counts(FedAvg):
        def aggregate_evaluate(self, server_round: int, replies: Any) -> MetricRecord:
            return MetricRecord({"replies": len(list(replies)), "accuracy": 0.5})

    made = app()

    @made.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        metrics = MetricRecord({"num-examples": 10})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    rule = FedAlpha("FedAvg", over=Counts())
    run(rule, grid_of(made, range(3)))
    assert rule.rows[1]["metrics"]["evaluate"] == {"replies": 3, "accuracy": 0.5}
    assert rule.rows[1]["accuracy"] == 0.5


@pytest.mark.parametrize("apply", [None, "fedadam(lr=0.5)"])
def test_a_run_in_which_nobody_trained_fails(grid_of: Any, tmp_path: Path, apply: str | None) -> None:
    def wrong(id: int, arrays: dict[str, np.ndarray]) -> None:
        raise ZeroDivisionError("boom")

    with pytest.raises(RuntimeError, match=r"no client has trained.*boom"):
        run(FedAlpha("FedAvg", apply=apply, out=tmp_path), grid_of(app(wrong), range(3)), rounds=2)
    rows = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert [row["kept"] for row in rows] == [None] + 2 * ["only 0 of 3 clients delivered, the quorum is 1"]


def test_arguments_that_cannot_be_meant_are_named() -> None:
    for given, message in (
        ({"save": "state"}, r"named by out="),
        ({"apply": "fedadam", "over": FedAdam()}, "apply= and over="),
        ({"select": "uniform(C=0.5)", "fraction_train": 0.5}, "both choose the clients that train"),
        ({"evaluate": Evaluate(reevaluate=2)}, r"validation=evaluate_on"),
        ({"states": "cloud"}, "give server or node"),
        ({"bound": 0.5}, "bound = 0.5"),
        ({"fault": "label_flip(clients=2)"}, "changes the clients' data"),
        ({"combine": "fedlaw"}, "learns on the server's data"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            FedAlpha("FedAvg", **given)  # type: ignore[arg-type]


def test_what_needs_torch_says_so() -> None:
    code = (
        "import importlib.util as u, sys; find = u.find_spec; "
        "u.find_spec = lambda name, *rest: None if name == 'torch' else find(name, *rest); "
        "sys.modules['torch'] = None; from fedalpha.flower import FedAlpha; FedAlpha('FedSoftWorse(T=0.2)'); "
        "FedAlpha('FedAvg', combine='median')"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "combine = median needs PyTorch on the server" in found.stderr


@pytest.mark.parametrize(
    ("update", "more"),
    [
        ("scaffold(lr=0.1, batch=20)", {"select": "uniform(C=0.5)"}),
        ("fedpage(lr=0.05, batch=20, steps=2, p=0.3)", {"select": "fedpage(C=0.5, p=0.3)"}),
        ("sgd(lr=0.1, batch=20)", {"combine": "feddist(spread=1)", "model": "mlp(hidden=[8])"}),
        ("sgd(lr=0.1, batch=20)", {"apply": "fedadam(lr=0.01)", "combine": "trimmed(beta=0.2)"}),
    ],
)
def test_a_killed_run_with_states_goes_on_to_the_same_bytes(
    digits: Pooled, grid_of: Any, tmp_path: Path, update: str, more: dict[str, Any]
) -> None:
    def rule(name: str) -> FedAlpha:
        given = {"update": update} if update.startswith(("scaffold", "fedpage")) else {}
        return FedAlpha("FedAvg", seed=3, fraction_evaluate=0.0, out=tmp_path / name, **given, **more)

    made = client_app(
        "mlp(hidden=[8])", lambda context: digits.client(int(context.node_config["partition-id"])), update, classes=10
    )
    first = initial_arrays("mlp(hidden=[8])", digits.shape, 10)

    def kill(node: int, message: Message, reply: Message) -> Message:
        if message.metadata.message_type == "train" and message.content["config"]["server-round"] == 3:
            raise KeyboardInterrupt
        return reply

    whole = rule("whole")
    expected = whole.start(grid_of(made, range(12)), first, num_rounds=4, timeout=1)
    grid = grid_of(made, range(12))
    grid.spoil = kill
    with pytest.raises(KeyboardInterrupt):
        rule("killed").start(grid, first, num_rounds=4, timeout=1)
    again = rule("killed")
    found = again.start(grid_of(made, range(12), first_node=7), first, num_rounds=4, timeout=1)
    assert again.rounds_done == 2
    assert [row["losses"] for row in again.rows] == [row["losses"] for row in whole.rows]
    for name, array in expected.arrays.items():
        assert found.arrays[name].numpy().tobytes() == array.numpy().tobytes(), name
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "killed")]
    assert files[0] == files[1]


def test_a_node_that_lost_its_state_starts_fresh_and_the_row_says_so(digits: Pooled, grid_of: Any) -> None:
    update = "scaffold(lr=0.1, batch=20)"
    made = client_app("softmax", lambda c: digits.client(int(c.node_config["partition-id"])), update, classes=10)
    grid = grid_of(made, range(4))

    def lose(server_round: int, arrays: ArrayRecord) -> None:
        if server_round == 2:
            next(context for node, context in grid.contexts.items() if grid.client(node) == 1).state.clear()

    rule = FedAlpha("FedAvg", update=update, states="node", fraction_evaluate=0.0)
    rule.start(grid, initial_arrays("softmax", digits.shape, 10), 3, evaluate_fn=lose)
    assert [row["fresh"] for row in rule.rows] == [[], [], [], [1]]
    assert not any(name == "fedalpha.state" for name in grid.contexts)


def test_a_wrapper_is_refused_where_clients_send_more_than_a_model(digits: Pooled, grid_of: Any) -> None:
    """It would clip control variates as if they were models."""
    update = "scaffold(lr=0.1, batch=20)"
    made = client_app("softmax", lambda c: digits.client(int(c.node_config["partition-id"])), update, classes=10)
    first, grid = initial_arrays("softmax", digits.shape, 10), grid_of(made, range(3))
    inner = FedAlpha("FedAvg", update=update, fraction_evaluate=0.0)
    wrapper = flower.DifferentialPrivacyServerSideFixedClipping(inner, 0.1, 1.0, 3)
    with pytest.raises(RuntimeError, match=r"scaffold.* needs FedAlpha.start: its clients send more than a model"):
        wrapper.start(grid, first, num_rounds=1)
    assert not [kind for kind, _ in grid.log if kind == "train"]


def test_states_on_the_nodes_survive_the_server(digits: Pooled, grid_of: Any, tmp_path: Path) -> None:
    """Killed in mid-round: a node holds the state that counts and one that does not; a lost or older one is fresh."""
    update = "scaffold(lr=0.1, batch=20)"
    made = client_app("softmax", lambda c: digits.client(int(c.node_config["partition-id"])), update, classes=10)
    first = initial_arrays("softmax", digits.shape, 10)

    def rule(name: str) -> FedAlpha:
        return FedAlpha("FedAvg", update=update, states="node", fraction_evaluate=0.0, out=tmp_path / name)

    def kill(node: int, message: Message, reply: Message) -> Message:
        if grid.client(node) == 2 and message.content["config"]["server-round"] == 3:
            raise KeyboardInterrupt
        return reply

    whole = rule("whole").start(grid_of(made, range(4)), first, 4, timeout=1).arrays
    grid = grid_of(made, range(4))
    grid.spoil = kill
    with pytest.raises(KeyboardInterrupt):
        rule("killed").start(grid, first, 4, timeout=1)
    grid.spoil = lambda node, message, reply: reply
    again = rule("killed")
    found = again.start(grid, first, 4, timeout=1).arrays
    assert not any(row["fresh"] for row in again.rows)
    for name, array in whole.items():
        assert found[name].numpy().tobytes() == array.numpy().tobytes(), name

    old: dict[str, Any] = {}

    def older(server_round: int, arrays: ArrayRecord) -> None:
        held = next(context for node, context in grid.contexts.items() if grid.client(node) == 1).state
        if server_round == 5:
            old.update(held)
        elif server_round == 7:  # its disk was restored from a backup
            held.clear()
            held.update(old)

    last = rule("killed")
    last.start(grid, first, 8, timeout=1, evaluate_fn=older)
    assert [row["fresh"] for row in last.rows[5:]] == [[], [], [], [1]]


def test_replies_are_pulled_in_the_order_of_ids_and_dropped(grid_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than one reply is held while they are summed."""
    import gc
    import weakref

    alive: list[int] = []
    replies: list[weakref.ref[Message]] = []

    class Slow(grid_of):  # type: ignore[misc]
        order: ClassVar[list[int]] = []

        def pull_messages(self, message_ids: Any) -> Any:
            found = list(super().pull_messages(message_ids))
            for reply in found:
                if reply.metadata.message_type == "train":
                    self.order.append(self.client(reply.metadata.src_node_id))
                    replies.append(weakref.ref(reply))
            return found

    real = Running.add

    def add(self: Running, place: int, model: Any) -> None:
        gc.collect()
        alive.append(sum(reply() is not None for reply in replies))
        real(self, place, model)

    monkeypatch.setattr(Running, "add", add)
    grid = Slow(app(), [5, 3, 8, 1])
    run(FedAlpha("FedAvg"), grid)
    assert grid.order == [1, 3, 5, 8]
    assert alive == [1, 1, 1, 1]


def test_tensors_share_the_memory_of_a_reply() -> None:
    from fedalpha.flower.torch_form import tensors

    value = np.arange(3, dtype=np.float32)
    assert torch.equal(tensors({"w": value})["w"], torch.arange(3.0))
    assert tensors({"w": value})["w"].data_ptr() == value.ctypes.data
