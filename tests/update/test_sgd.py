"""Mini-batch SGD and FedProx on a problem that can be computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from fedalpha.data import Examples
from fedalpha.models import Template
from fedalpha.rng import Draws
from fedalpha.task import Task
from fedalpha.update import UPDATES, Broadcast, Site, fedprox, sgd
from fedalpha.update.schedules import SCHEDULES


class Point(nn.Module):
    """One number w; its output does not look at the data."""

    def __init__(self, w: float) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([w], dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w.expand(len(x))


TASK = Task(loss=lambda out, y: 0.5 * ((out - y) ** 2).mean(), correct=None)


def train(update: sgd, w: float = 1.0, targets: tuple[float, ...] = (0.0, 0.0), round: int = 0):  # type: ignore[no-untyped-def]
    module = Point(w)
    y = torch.tensor(targets, dtype=torch.float64)
    broadcast = Broadcast(Template(module), dict(module.state_dict()))
    report = update.update(
        Site(TASK), broadcast, Examples(torch.zeros(len(y), 1), y), {}, Draws(0, round, 5), frozenset({"after"})
    )
    return report, float(report.parameters["w"])


def test_one_full_batch_step_by_hand() -> None:
    report, w = train(sgd(lr=0.1, batch=None))
    assert w == pytest.approx(0.9)
    assert report.losses == {"train": 0.5, "after": pytest.approx(0.405)}
    assert (report.id, report.steps, report.samples) == (5, 1, 2)


def test_momentum_and_weight_decay_by_hand() -> None:
    # g = w + 0.5 w (decay); v1 = 1.5, w1 = 0.85; v2 = 0.75 + 1.275 = 2.025, w2 = 0.6475
    _, w = train(sgd(lr=0.1, batch=None, epochs=2, momentum=0.5, weight_decay=0.5))
    assert w == pytest.approx(0.6475)


def test_fedprox_pulls_back_by_hand() -> None:
    # w1 = 0.9; then g = 0.9 + 2·(0.9 − 1) = 0.7, w2 = 0.83
    _, w = train(fedprox(mu=2.0, lr=0.1, batch=None, epochs=2))
    assert w == pytest.approx(0.83)
    assert train(fedprox(mu=0.0, lr=0.1))[1] == train(sgd(lr=0.1))[1]


def test_the_schedule_follows_the_round() -> None:
    _, w = train(sgd(lr="exponential(0.1, rate=0.5)", batch=None), round=2)
    assert w == pytest.approx(1 - 0.025)


def test_the_train_loss_is_that_of_the_last_epoch() -> None:
    report, _ = train(sgd(lr=0.1, batch=None, epochs=3))
    assert report.losses["train"] == pytest.approx(0.5 * 0.81**2)


def test_a_summed_loss_is_reported_per_sample() -> None:
    module = Point(1.0)
    task = Task(loss=lambda out, y: 0.5 * ((out - y) ** 2).sum(), correct=None, reduction="sum")
    data = Examples(torch.zeros(4, 1), torch.zeros(4, dtype=torch.float64))
    broadcast = Broadcast(Template(module), dict(module.state_dict()))
    report = sgd(lr=0.01, batch=None).update(Site(task), broadcast, data, {}, Draws(0, 0, 0))
    assert report.losses["train"] == pytest.approx(0.5)


@pytest.mark.parametrize(("samples", "batch", "epochs", "steps"), [(10, 4, 2, None), (10, 4, 1, 7), (3, 8, 1, None)])
def test_batches_cover_each_epoch_once(samples: int, batch: int, epochs: int, steps: int | None) -> None:
    update = sgd(batch=batch, epochs=epochs, steps=steps)
    found = [b.tolist() for b in update.batches(samples, np.random.default_rng(0))]
    assert len(found) == update.count(samples)
    per = update.per_epoch(samples)
    for start in range(0, len(found) - per + 1, per):
        assert sorted(i for b in found[start : start + per] for i in b) == list(range(samples))


@pytest.mark.parametrize("registry", [UPDATES, SCHEDULES], ids=["updates", "schedules"])
def test_text_round_trip(registry) -> None:  # type: ignore[no-untyped-def]
    for entry in registry:
        for text in entry.examples:
            assert registry.parse(str(registry.parse(text))) == registry.parse(text)


@pytest.mark.parametrize("text", ["sgd(lr=0)", "sgd(batch=0)", "sgd(epochs=1.5)", "sgd(momentum=1)", "fedprox(mu=-1)"])
def test_wrong_settings_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="give"):
        UPDATES.parse(text)
