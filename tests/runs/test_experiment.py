"""Runs: determinism, pairing, equalities that must hold to the bit."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import fedalpha
from fedalpha.data import Generated, Pooled
from fedalpha.fast.threads import single_thread
from fedalpha.models import initial
from fedalpha.rng import Draws, integer
from fedalpha.runs.callbacks import Callback, StopWhen
from fedalpha.runs.evaluate import Evaluate
from fedalpha.task import Task
from fedalpha.update import sgd
from histories import same_model, without_times

DIAGNOSTICS = ("rho", "pi", "Pi", "effective_clients", "heaviest")


@pytest.mark.parametrize("strategy", ["FedSoftWorse(T=0.2)", "FedSoftBetter(T=0.2, loss=after)", "FedWorse(k=0.3)"])
def test_the_number_of_workers_changes_no_byte(digits: Pooled, strategy: str) -> None:
    runs = [
        fedalpha.run(digits, "mlp", strategy, rounds=4, engine=f"embedded(workers={w})", select="uniform(C=0.7)")
        for w in (1, 2, 3)
    ]
    for other in runs[1:]:
        assert without_times(other) == without_times(runs[0])
        assert same_model(other, runs[0])


def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not(digits: Pooled) -> None:
    first, second, third = (
        fedalpha.run(digits, "softmax", rounds=2, seed=seed, engine="embedded(workers=1)") for seed in (3, 3, 4)
    )
    assert same_model(first, second)
    assert not same_model(first, third)


def test_infinite_temperature_is_fedavg_bit_for_bit(digits: Pooled) -> None:
    soft = fedalpha.run(digits, "mlp", "FedSoftWorse(T=inf)", rounds=3, engine="embedded(workers=1)")
    avg = fedalpha.run(digits, "mlp", "FedAvg", rounds=3, engine="embedded(workers=1)")
    assert same_model(soft, avg)
    assert [r["alpha"] for r in soft.rows] == [r["alpha"] for r in avg.rows]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_one_client_is_plain_training_bit_for_bit(momentum: float) -> None:
    alone = fedalpha.federation("digits", partition="iid", clients=1, seed=1)
    update = sgd(lr="exponential(0.1, rate=0.9)", batch=50, epochs=2, momentum=momentum, weight_decay=0.001)
    history = fedalpha.run(alone, "mlp", rounds=3, seed=7, update=update, engine="embedded(workers=1)")

    architecture, parameters = initial("mlp", alone.shape, alone.classes, integer(7, "model"))
    module = architecture.build()
    module.load_state_dict(parameters)
    data = alone.client(0)
    with single_thread():  # as clients train: torch rounds otherwise with more threads
        for round in range(3):
            optimiser = torch.optim.SGD(module.parameters(), lr=0.1 * 0.9**round, momentum=momentum, weight_decay=0.001)
            rng = Draws(7, round, 0)("batches")
            for _ in range(2):
                for batch in torch.from_numpy(rng.permutation(len(data))).split(50):
                    optimiser.zero_grad()
                    nn.functional.cross_entropy(module(data.x[batch]), data.y[batch]).backward()
                    optimiser.step()
    for name, value in module.state_dict().items():
        assert torch.equal(history.model[name], value), name


def test_strategies_of_one_seed_are_paired(digits: Pooled) -> None:
    """Same initial model, cohorts and batches: the first round's local losses agree."""
    a = fedalpha.run(digits, "mlp", "FedAvg", rounds=2, engine="embedded(workers=1)", select="uniform(C=0.5)")
    b = fedalpha.run(
        digits, "mlp", "FedSoftWorse(T=0.2)", rounds=2, engine="embedded(workers=1)", select="uniform(C=0.5)"
    )
    assert a.rows[0]["loss"] == b.rows[0]["loss"]
    assert [r["cohort"] for r in a.rows] == [r["cohort"] for r in b.rows]
    assert a.rows[1]["losses"]["train"] == b.rows[1]["losses"]["train"]
    assert a.rows[2]["losses"]["train"] != b.rows[2]["losses"]["train"]


def test_clients_without_weight_neither_train_nor_upload(digits: Pooled) -> None:
    worst = fedalpha.run(digits, "mlp", "FedWorse(k=3)", rounds=1, engine="embedded(workers=1)").rows[1]
    average = fedalpha.run(digits, "mlp", "FedAvg", rounds=1, engine="embedded(workers=1)").rows[1]
    assert sum(loss is not None for loss in worst["losses"]["train"]) == 3
    assert [a > 0 for a in worst["alpha"]] == [loss is not None for loss in worst["losses"]["train"]]
    assert worst["bytes_up"] < average["bytes_up"] / 3
    assert worst["bytes_down"] == average["bytes_down"]


def test_after_training_weights_equal_a_hand_made_round(digits: Pooled) -> None:
    """FedBetter on the trained losses installs exactly the best client's model."""
    row = fedalpha.run(digits, "softmax", "FedBetter(loss=after)", rounds=1, engine="embedded(workers=1)")
    best = int(np.argmin(row.rows[1]["losses"]["after"]))
    assert row.rows[1]["alpha"][best] == 1
    only = fedalpha.run(
        only_client(digits, best), "softmax", rounds=1, engine="embedded(workers=1)", seed=0, update=_as_client(best)
    )
    assert same_model(row, only)


def only_client(digits: Pooled, client: int) -> Generated:
    data = digits.client(client)
    return Generated(1, lambda _: data, lambda ids: [len(data)], digits.test, classes=10)


def _as_client(client: int) -> sgd:
    """SGD that draws its batches as another client id would."""

    class Renamed(sgd):
        def update(self, site, broadcast, data, state, draws, wanted=frozenset()):  # type: ignore[no-untyped-def]
            other = Draws(draws.seed, draws.round, client)
            return dataclasses.replace(super().update(site, broadcast, data, state, other, wanted), id=draws.client)

    return Renamed()


@pytest.fixture
def three_threads() -> Iterator[None]:
    """A number of threads that is neither fedalpha's nor, on most machines, torch's own."""
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("three_threads")
def test_nothing_global_is_touched(digits: Pooled) -> None:
    torch.manual_seed(5)
    np.random.seed(5)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    fedalpha.run(digits, "mlp", rounds=1, engine="embedded(workers=1)")
    assert torch.get_num_threads() == 3
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()


class Net(nn.Module):
    """A user's module with dropout and batch norm (an integer buffer)."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 10)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


@pytest.mark.parametrize("strategy", ["FedAvg", "FedAvg(prior=uniform)", "FedSoftWorse(T=0.5, loss=train)"])
def test_a_users_module_keeps_its_integer_buffers(digits: Pooled, strategy: str) -> None:
    runs = [
        fedalpha.run(digits, Net, strategy, rounds=3, engine=f"embedded(workers={w})", update="sgd(batch=20)")
        for w in (1, 2)
    ]
    assert same_model(*runs)
    counter = runs[0].model["body.2.num_batches_tracked"]
    assert counter.dtype == torch.int64
    assert counter > 3
    assert runs[0].accuracy[-1] > runs[0].accuracy[0]


def test_a_module_instance_starts_from_its_own_parameters(digits: Pooled) -> None:
    module = Net()
    with torch.no_grad():
        module.body[1].weight.fill_(0.5)
    history = fedalpha.run(digits, module, rounds=0, engine="embedded(workers=1)")
    assert (history.model["body.1.weight"] == 0.5).all()
    assert (module.body[1].weight == 0.5).all()


def test_accuracy_switches_see_the_validation_part(digits: Pooled) -> None:
    history = fedalpha.run(
        digits, "mlp", "switch(FedWorse(k=4), FedAvg, accuracy=0.3)", rounds=12, engine="embedded(workers=1)"
    )
    first = next(i for i, row in enumerate(history.rows) if row["validation_accuracy"] >= 0.3)
    assert 0 < first < 12
    for row in history.rows[1 : first + 1]:
        assert row["alpha"].count(0.25) == 4
    for row in history.rows[first + 1 :]:
        assert min(row["alpha"]) > 0
    with pytest.raises(ValueError, match="no validation part"):
        fedalpha.run(fedalpha.federation("digits"), "mlp", "switch(FedBetter, FedAvg, accuracy=0.3)", rounds=1)


def test_regression_has_no_accuracy() -> None:
    rng = np.random.default_rng(0)
    parts = []
    for shift in (0.0, 1.0, 2.0):
        x = rng.normal(size=(40, 3)).astype(np.float32)
        parts.append((x, (x @ np.array([1.0, -2.0, 0.5]) + shift).astype(np.float32)[:, None]))
    data = fedalpha.federation(parts, seed=0)
    task = Task(loss=nn.functional.mse_loss, correct=None)
    history = fedalpha.run(
        data.with_task(task), "softmax", "FedSoftWorse(T=1)", rounds=20, engine="embedded(workers=1)"
    )
    assert history.rows[-1]["accuracy"] is None
    assert history.loss[-1] < 0.5 * history.loss[0]


def test_known_optima_reach_the_strategy(digits: Pooled) -> None:
    optima = np.arange(12.0)
    known = fedalpha.federation("digits", partition="shards(size=30)", clients=12, optima=optima)
    row = fedalpha.run(known, "softmax", "FedWorse", rounds=1, engine="embedded(workers=1)").rows[1]
    assert np.argmax(row["alpha"]) == np.argmax(np.array(row["losses"]["before"]) - optima)


def test_every_round_says_how_it_weighed(digits: Pooled) -> None:
    history = fedalpha.run(
        digits, "softmax", "FedSoftWorse(T=0.5)", rounds=2, engine="embedded(workers=1)", select="uniform(C=0.5)"
    )
    start, *rounds = history.rows
    assert [start[name] for name in DIAGNOSTICS] == [None] * 5
    for row in rounds:
        alpha, losses = np.array(row["alpha"]), np.array(row["losses"]["before"])
        sizes = digits.sizes(np.array(row["cohort"]))
        p = sizes / sizes.sum()
        assert row["rho"] == pytest.approx(alpha @ losses / (p @ losses))
        assert row["rho"] > 1
        assert (row["pi"], row["Pi"]) == pytest.approx(((alpha / p).min(), (alpha / p).max()))
        assert row["effective_clients"] == pytest.approx(1 / (alpha @ alpha))
        assert row["heaviest"] == alpha.max()


def test_rho_is_told_only_where_the_losses_before_training_are_known(digits: Pooled) -> None:
    assert fedalpha.run(digits, "softmax", "FedAvg", rounds=1, engine="embedded(workers=1)").rows[1]["rho"] == 1.0
    after = fedalpha.run(digits, "softmax", "FedWorse(loss=after)", rounds=1, engine="embedded(workers=1)").rows[1]
    assert (after["rho"], after["heaviest"], after["effective_clients"]) == (None, 1.0, 1.0)
    kept = fedalpha.run(
        digits, "softmax", rounds=1, engine="embedded(workers=1)", fault="drop(clients=0.5)", quorum=0.9
    ).rows[1]
    assert kept["kept"]
    assert [kept[name] for name in DIAGNOSTICS] == [None] * 5


def test_rho_is_of_the_regrets_where_the_optima_are_known() -> None:
    x = torch.arange(8.0).reshape(8, 1)
    parts = [(x, torch.zeros(8)), (x + 2, torch.ones(8))]
    given = fedalpha.federation(parts, test=parts, optima=[0.25, 0.5])
    task = Task(loss=lambda output, target: (output[:, 0] - target).square().mean(), correct=None)
    row = fedalpha.run(
        given.with_task(task), lambda: nn.Linear(1, 1), "FedWorse", rounds=1, engine="embedded(workers=1)"
    ).rows[1]
    regrets = np.array(row["losses"]["before"]) - [0.25, 0.5]
    assert row["rho"] == pytest.approx(regrets.max() / regrets.mean())


def test_callbacks_see_rows_and_can_stop(digits: Pooled) -> None:
    seen: list[str] = []

    class Watch(Callback):
        def on_start(self, rounds: int) -> None:
            seen.append(f"start {rounds}")

        def on_end(self, history: fedalpha.analysis.history.History) -> None:  # type: ignore[name-defined]
            seen.append(f"end {len(history.rows)}")

    stop = StopWhen(lambda row: row["round"] == 2)
    history = fedalpha.run(digits, "softmax", rounds=9, engine="embedded(workers=1)", callbacks=[Watch(), stop])
    assert [row["round"] for row in history.rows] == [0, 1, 2]
    assert seen == ["start 9", "end 3"]


def test_an_error_in_an_update_names_the_client(digits: Pooled) -> None:
    def broken(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        raise ZeroDivisionError("boom")

    for workers in (1, 2):
        with pytest.raises((ZeroDivisionError, RuntimeError)) as caught:
            fedalpha.run(
                digits.with_task(Task(loss=broken, correct=None)),
                "softmax",
                rounds=1,
                engine=f"embedded(workers={workers})",
            )
        assert "boom" in str(caught.value)


def test_per_client_test_parts_give_the_worst_client() -> None:
    rng = np.random.default_rng(1)
    parts = [(rng.normal(size=(30, 4)).astype(np.float32), rng.integers(0, 3, 30)) for _ in range(5)]
    history = fedalpha.run(fedalpha.federation(parts, test=parts), "softmax", rounds=1, engine="embedded(workers=1)")
    row = history.rows[-1]
    assert len(row["client_accuracy"]) == 5
    assert row["worst_client_accuracy"] == min(row["client_accuracy"])
    assert np.isclose(np.mean(row["client_accuracy"]), row["accuracy"])


def test_a_million_registered_clients_cost_only_the_cohort() -> None:
    def client(id: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(id)
        return rng.normal(size=(6, 5)).astype(np.float32), rng.integers(0, 3, 6)

    crowd = Generated(10**6, client, lambda ids: np.full(len(ids), 6.0), client(10**7), classes=3)
    rule = "FedSoftWorse(T=1, optima=estimated)"
    history = fedalpha.run(crowd, "softmax", rule, rounds=2, select="uniform(count=20)", engine="embedded(workers=1)")
    assert len(history.rows[1]["cohort"]) == 20
    assert history.rows[1]["cohort"] == sorted(history.rows[1]["cohort"])
    assert history.rows[1]["cohort"] != history.rows[2]["cohort"]


class Wild(fedalpha.Strategy):
    """A user's strategy that breaks its promise."""

    def __init__(self, alpha: object) -> None:
        self.alpha = alpha

    def weights(self, state, cohort):  # type: ignore[no-untyped-def]
        return self.alpha, state

    def __str__(self) -> str:
        return "Wild"


@pytest.mark.parametrize(
    ("alpha", "said"),
    [
        ([np.nan] * 12, "not finite"),
        ([0.5] * 12, "off the simplex"),
        ([2, -1] + [0] * 10, "off the simplex"),
        ([1], "shape"),
    ],
)
def test_weights_that_break_their_promise_are_named(digits: Pooled, alpha: list[float], said: str) -> None:
    with pytest.raises(ValueError, match=f"Wild gave weights.*{said}"):
        fedalpha.run(digits, "softmax", Wild(alpha), rounds=1, engine="embedded(workers=1)")


def test_batch_norm_can_leave_out_a_lone_last_sample() -> None:
    rng = np.random.default_rng(0)
    parts = [(rng.normal(size=(17, 64)).astype(np.float32), rng.integers(0, 10, 17)) for _ in range(3)]
    data = fedalpha.federation(parts, test=parts)
    with pytest.raises(ValueError, match="more than 1 value") as caught:
        fedalpha.run(data, Net, rounds=1, engine="embedded(workers=1)", update="sgd(batch=16)")
    assert "drop_last" in "".join(caught.value.__notes__)
    row = fedalpha.run(data, Net, rounds=1, engine="embedded(workers=1)", update="sgd(batch=16, drop_last=true)").rows[
        1
    ]
    assert row["steps"] == 3


def test_what_is_no_federation_or_callback_is_refused_at_once(digits: Pooled) -> None:
    with pytest.raises(TypeError, match=r"fedalpha\.federation"):
        fedalpha.run("digits", "mlp")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="is not a callback"):
        fedalpha.run(digits, "mlp", rounds=1, callbacks=[print])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"is a class; give an object of a subclass of fedalpha\.Callback"):
        fedalpha.run(digits, "mlp", rounds=1, callbacks=[fedalpha.Callback])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="callbacks = 3; give a list of callbacks"):
        fedalpha.run(digits, "mlp", rounds=1, callbacks=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="out = 5; give the path of a folder"):
        fedalpha.run(digits, "mlp", rounds=1, out=5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cannot be used here"):
        fedalpha.run(digits, "mlp", rounds=1, engine="embedded(device='cuda:97')")


def test_a_folder_knows_its_data_task_and_model(tmp_path: Path) -> None:
    drawn = torch.Generator().manual_seed(0)
    x, y = torch.rand(60, 4, generator=drawn), torch.randint(3, (60,), generator=drawn)

    def run(features: torch.Tensor, model: str = "mlp", task: Task | None = None) -> fedalpha.History:
        data = fedalpha.federation((features, y), clients=3, task=task)
        return fedalpha.run(data, model, rounds=1, engine="embedded(workers=1)", out=tmp_path / "run")

    first = run(x)
    assert same_model(run(x), first)
    for changed in ({"features": x + 1}, {"task": fedalpha.task.task("summed")}, {"model": "mlp(hidden=[16])"}):
        with pytest.raises(ValueError, match="another configuration"):
            run(**{"features": x, **changed})  # type: ignore[arg-type]


def test_an_accuracy_switch_needs_an_accuracy(digits: Pooled) -> None:
    with pytest.raises(ValueError, match="the task has none"):
        fedalpha.run(
            digits.with_task(Task(correct=None)),
            "softmax",
            "switch(FedSoftBetter, FedAvg, accuracy=0.6)",
            evaluate=Evaluate(signal="test"),
        )


def test_nobody_who_moves_leaves_the_model_as_it_is(digits: Pooled) -> None:
    history = fedalpha.run(
        digits, "softmax", "FedMGDA(epsilon=0.1)", rounds=2, fault="free_rider", engine="embedded(workers=1)"
    )
    assert history.loss[0] == history.loss[-1]
    assert history.rows[1]["alpha"] == [0.0] * digits.clients


@pytest.mark.parametrize("every", [0, "5", True, 2.5])
def test_how_often_to_evaluate_is_a_number_of_rounds(every: int) -> None:
    with pytest.raises(ValueError, match=r"evaluate: every = .*whole number ≥ 1"):
        Evaluate(every)
