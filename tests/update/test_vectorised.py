"""Many clients at a time: the plain path's model up to rounding, the same bytes for any number of workers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import fedalpha
from fedalpha.data import Examples, Pooled
from fedalpha.engine.backends.embedded import Embedded
from fedalpha.models import initial
from fedalpha.task import Task
from fedalpha.update import Broadcast, fedprox, sgd, vectorised
from fedalpha.update.vectorised import stackable
from histories import same_model

TOLERANCE = 1e-6
"""Largest difference of any parameter after two rounds between the paths."""


@pytest.fixture(scope="module", params=["iid", "quantity(a=2.0)"])
def crowd(request: pytest.FixtureRequest) -> Pooled:
    return fedalpha.federation("digits", partition=request.param, clients=280, seed=0)


@pytest.mark.parametrize(
    ("model", "update"),
    [
        ("softmax", "sgd(lr=0.1, batch=3, epochs=2)"),
        ("mlp(hidden=8)", "fedprox(mu=0.1, lr=0.1, batch=2, momentum=0.5, weight_decay=0.01)"),
        ("softmax", "sgd(lr=0.1, batch=2, steps=3)"),
    ],
)
def test_it_agrees_with_the_plain_path_and_workers_change_nothing(crowd: Pooled, model: str, update: str) -> None:
    plain, one, two = (
        fedalpha.run(
            crowd, model, "FedSoftWorse(T=0.2)", rounds=2, update=update, engine=f"embedded(workers={w}, vectorise={v})"
        )
        for w, v in ((2, False), (1, True), (2, None))
    )
    assert same_model(one, two)
    for name, value in plain.model.items():
        assert (value - one.model[name]).abs().max() < TOLERANCE
    for a, b in zip(plain.rows[1:], one.rows[1:], strict=True):
        assert b["losses"]["train"] == pytest.approx(a["losses"]["train"], abs=1e-5)
        assert a["steps"] == b["steps"]


def test_losses_after_training_agree(crowd: Pooled) -> None:
    plain, many = (
        fedalpha.run(
            crowd, "softmax", "FedSoftWorse(T=0.2, loss=after)", rounds=1, engine=f"embedded(workers=1, vectorise={v})"
        )
        for v in (False, None)
    )
    assert many.rows[1]["losses"]["after"] == pytest.approx(plain.rows[1]["losses"]["after"], abs=1e-5)


def test_a_loss_that_is_not_separable_is_stacked_only_for_equal_batches() -> None:
    """A loss over the whole batch (here: with the batch's own mean) must not be taken sample by sample."""

    def odd(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(output - output.mean(dim=0), target)

    ragged = fedalpha.federation("digits", partition="quantity(a=2.0)", clients=260, seed=1)
    runs = [
        fedalpha.run(
            ragged.with_task(Task(loss=odd)),
            "softmax",
            rounds=1,
            update="sgd(batch=4)",
            engine=f"embedded(workers=1, vectorise={v})",
        )
        for v in (False, None)
    ]
    for name, value in runs[0].model.items():
        assert (value - runs[1].model[name]).abs().max() < TOLERANCE


@pytest.mark.parametrize(
    ("model", "fits"),
    [("softmax", True), ("mlp", True), ("mlp(hidden=2000)", False), ("cnn", False)],
)
def test_small_dense_models_are_stacked(model: str, fits: bool) -> None:
    architecture, _ = initial(model, (1, 28, 28), 10, seed=0)
    assert stackable(architecture.build(), sgd()) is fits


def test_what_draws_or_remembers_is_not_stacked() -> None:
    assert not stackable(nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)), sgd())
    assert not stackable(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), sgd())
    assert stackable(nn.Sequential(nn.Linear(3, 3)), fedprox())


def test_forcing_it_where_it_cannot_be_is_refused(digits: Pooled) -> None:
    big = fedalpha.federation("digits", partition="iid", clients=280, seed=0)
    with pytest.raises(ValueError, match="leave vectorise out"):
        fedalpha.run(big, "mlp(hidden=2000)", rounds=1, engine="embedded(workers=1, vectorise=true)")


@pytest.mark.parametrize("model", ["softmax", "mlp(hidden=[8, 6])"])
def test_a_recording_gives_the_bytes_of_what_was_recorded(
    crowd: Pooled, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = fedalpha.run(crowd, model, rounds=2, update="sgd(batch=3)", engine="embedded(workers=1)")
    monkeypatch.setattr(vectorised, "RECORDINGS", 0)
    direct = fedalpha.run(crowd, model, rounds=2, update="sgd(batch=3)", engine="embedded(workers=1)")
    assert same_model(recorded, direct)


def test_small_clients_share_a_pass_for_their_losses(crowd: Pooled) -> None:
    """The losses of a crowd agree with those of the same clients asked in small cohorts, one by one."""
    architecture, parameters = initial("mlp", crowd.shape, crowd.classes, seed=0)
    engine = Embedded(crowd, Task(), sgd(), seed=0, workers=1)
    broadcast = Broadcast(architecture, parameters)
    everyone = np.arange(crowd.clients)
    single = np.concatenate([engine.losses(broadcast, part) for part in np.array_split(everyone, 4)])
    assert engine.losses(broadcast, everyone) == pytest.approx(single, abs=1e-6)


def test_labels_that_are_ignored_and_soft_labels_train_as_on_the_plain_path() -> None:
    drawn = torch.Generator().manual_seed(0)
    x = torch.randn(900, 6, generator=drawn)
    hard = torch.randint(3, (900,), generator=drawn)
    hard[::7] = -100
    soft = torch.rand(900, 3, generator=drawn).softmax(1)
    for y in (hard, soft):
        people = Pooled(Examples(x, y), np.arange(0, 901, 3), Examples(x[:9], y[1:10]), classes=3)
        model = nn.Sequential(nn.Linear(6, 3))
        plain, many = (
            fedalpha.run(
                people.with_task(Task(correct=None)),
                model,
                rounds=1,
                update="sgd(batch=3)",
                engine=f"embedded(workers=1, vectorise={v})",
            )
            for v in (False, None)
        )
        for name, value in plain.model.items():
            assert (value - many.model[name]).abs().max() < TOLERANCE
