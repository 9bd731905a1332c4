"""The round as a protocol: which orders it gives, and that it is a pure function of what it has heard."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from fedalpha.combine import COMBINES, Reports
from fedalpha.round import Admission, Algorithm, AskLosses, Heard, Measure, Outcome, Train, advance
from fedalpha.select import SELECTIONS
from fedalpha.strategies import STRATEGIES, Array
from fedalpha.update import Broadcast, Report

SENT = Broadcast(None, {"w": torch.zeros(3)})  # type: ignore[arg-type]
LOSSES = np.array([0.5, 2.0, 1.0, 4.0, 3.0])


class People:
    """Five clients with sparse ids, of known or unknown sizes."""

    clients = 5

    def __init__(self, known: bool = True) -> None:
        self.known = known

    def named(self, places: Any) -> Any:
        return 10 * (1 + np.asarray(places))

    def sizes(self, ids: Any) -> Array:
        return np.asarray(ids, dtype=np.float64) if self.known else np.full(len(ids), np.nan)

    def optima(self, ids: Any) -> None:
        return None


def answer(heard: Heard, order: Any) -> Heard:
    """What honest clients and an honest server say."""
    match order:
        case AskLosses():
            return heard.and_losses(order, LOSSES[order.ids // 10 - 1])
        case Train():
            reports = [
                Report(i, {"w": torch.full((3,), float(i))}, {"train": 1.0, "after": 0.5 + i / 100}, 2, i)
                for i in order.ids.tolist()
            ]
            return heard.and_reports(Reports(reports))
        case Measure():
            return heard.and_measured(dict.fromkeys(order.of, 1.5))
    raise AssertionError(order)


def played(algorithm: Algorithm, population: People) -> tuple[list[Any], Outcome]:
    """All orders of a round, each asked for twice, and its outcome."""
    state, heard, orders = algorithm.init(SENT, 5), Heard(), []
    while not isinstance(order := advance(algorithm, state, population, 7, heard), Outcome):  # type: ignore[arg-type]
        again = advance(algorithm, state, population, 7, heard)  # type: ignore[arg-type]
        assert repr(again) == repr(order)
        orders.append(order)
        heard = answer(heard, order)
    return orders, order


@pytest.mark.parametrize(
    ("strategy", "select", "reevaluate", "kinds"),
    [
        ("FedAvg", "uniform", 0, [Train]),
        ("FedWorse(k=2)", "uniform", 0, [AskLosses, Train]),
        ("FedSoftWorse(T=1.0, loss=after)", "uniform", 0, [Train]),
        ("FedAvg", "power_of_choice(count=2, d=4)", 0, [AskLosses, Train]),
        ("FedWorse(k=2)", "power_of_choice(count=3, d=4, batch=8)", 0, [AskLosses, AskLosses, Train]),
        ("FedWorse(k=2)", "loss_proportional(count=3)", 0, [AskLosses, Train]),
        ("FedWorse(k=2)", "uniform", 2, [AskLosses, Measure, Train]),
        ("FedWorse(k=2, loss=after)", "uniform", 2, [Train, Measure]),
    ],
)
def test_the_orders_of_a_round(strategy: str, select: str, reevaluate: int, kinds: list[type]) -> None:
    rule = STRATEGIES.parse(strategy)
    algorithm = Algorithm(SELECTIONS.parse(select), weigh=rule, reevaluate=reevaluate)
    orders, outcome = played(algorithm, People())
    assert [type(order) for order in orders] == kinds
    assert outcome.state.round == 1
    assert outcome.alpha.sum() == pytest.approx(1)


def test_clients_with_alpha_zero_do_not_train() -> None:
    orders, outcome = played(Algorithm(weigh=STRATEGIES.parse("FedWorse(k=2)")), People())
    assert orders[0].ids.tolist() == [10, 20, 30, 40, 50]
    assert orders[1].ids.tolist() == [40, 50]
    np.testing.assert_array_equal(orders[1].alpha, outcome.alpha[outcome.alpha != 0])


def test_weights_are_offered_for_summing_only_to_linear_rules() -> None:
    median = Algorithm(combine=COMBINES.parse("median"))
    assert played(median, People())[0][-1].alpha is None
    assert played(Algorithm(), People())[0][-1].alpha is not None
    clip = Algorithm(combine=COMBINES.parse("clip(clip(mean, C=2), C=3)"))
    order = played(clip, People())[0][-1]
    assert order.alpha is not None
    assert order.alone is not None
    np.testing.assert_allclose(order.alone(np.array([1.0, 4.0])), [1.0, 0.5], rtol=1e-5)
    assert played(Algorithm(combine=COMBINES.parse("clip(median, C=2)")), People())[0][-1].alpha is None
    noise = Algorithm(
        combine=COMBINES.parse("noise(clip(mean, C=2), z=1, c=0.3)"), weigh=STRATEGIES.parse("cap(FedAvg, 0.3)")
    )
    order = played(noise, People())[0][-1]
    assert order.alpha.max() <= 0.3
    assert not order.hold


def test_unknown_sizes_are_learnt_from_the_reports() -> None:
    known, unknown = (played(Algorithm(), People(known)) for known in (True, False))
    assert unknown[0][-1].alpha is None  # weighed after training
    np.testing.assert_allclose(unknown[1].alpha, known[1].alpha)


def test_clients_without_data_keep_the_model() -> None:
    class Empty(People):
        def sizes(self, ids: Any) -> Array:
            return np.zeros(len(ids))

    orders, outcome = played(Algorithm(), Empty())
    assert orders == []
    assert "all sizes are 0" in str(outcome.kept)


def test_a_quorum_of_answers_is_needed_before_training() -> None:
    algorithm = Algorithm(weigh=STRATEGIES.parse("FedWorse"), admission=Admission(quorum=4))
    state, people = algorithm.init(SENT, 5), People()
    order = advance(algorithm, state, people, 7, Heard())
    assert isinstance(order, AskLosses)
    heard = Heard().and_losses(order, np.array([1.0, np.nan, -1.0, 1.0, 1.0]))
    outcome = advance(algorithm, state, people, 7, heard)
    assert isinstance(outcome, Outcome)
    assert outcome.kept == "only 3 of 5 clients delivered, the quorum is 4"
    assert [r.client for r in outcome.refusals] == [20, 30]
    assert outcome.state.broadcast is SENT


def test_the_protocol_needs_no_torch() -> None:
    code = "import sys; import fedalpha.round; assert 'torch' not in sys.modules, 'torch was imported'"
    subprocess.run([sys.executable, "-c", code], check=True)
