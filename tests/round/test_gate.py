"""The gate: who is refused before weighing is as if absent; who is lost afterwards is renormalised away."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import re
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fedalpha
from fedalpha.combine import COMBINES, Reports, Sum
from fedalpha.data import Pooled
from fedalpha.round import Admission, Algorithm, Gate, Heard, Train
from fedalpha.round.answers import Answers
from fedalpha.round.cohorts import Known
from fedalpha.round.state import Short
from fedalpha.round.weighing import Weighed, admit, share_out
from fedalpha.runs.evaluate import Evaluate
from fedalpha.select import Select
from fedalpha.strategies import STRATEGIES, Array, Cohort, Need, State, Strategy, TooFewError
from fedalpha.update import Broadcast, Report
from histories import same_model


class without(Select):  # noqa: N801
    """Everybody but some."""

    who: tuple[int, ...] = ()

    def select(self, state: Any, population: Any, losses: Any, rng: Any) -> Any:
        return np.array([i for i in range(population.clients) if i not in self.who]), state


def play(digits: Pooled, strategy: str | Strategy, **more: Any) -> Any:
    return fedalpha.run(digits, "softmax", strategy, rounds=2, engine="embedded(workers=1)", **more)


@pytest.mark.parametrize(
    ("strategy", "fault"),
    [
        ("FedSoftWorse(T=0.2)", "nan(clients=[3, 5], where=loss)"),
        ("FedWorse(k=4)", "nan(clients=[3, 5], value=inf, where=loss)"),
        ("FedSoftBetter(T=0.2, optima=estimated)", "lie(loss=-1, clients=[3, 5])"),
        ("FedSoftBetter(T=0.2, loss=after)", "nan(clients=[3, 5], where=model)"),
        ("FedSoftWorse(T=0.2, loss=train)", "malformed(kind=broadcast, clients=[3, 5])"),
        ("FedSoftWorse(T=0.2, loss=train)", "drop(clients=[3, 5])"),
        ("FedSoftWorse(T=0.2, loss=train)", "straggler(clients=[3, 5], delay=9)"),
    ],
)
def test_refused_before_weighing_is_as_if_absent_bit_for_bit(digits: Pooled, strategy: str, fault: str) -> None:
    refused = play(digits, strategy, fault=fault, deadline=5.0)
    absent = play(digits, strategy, select=without((3, 5)))
    assert same_model(refused, absent)
    assert [r["alpha"] for r in refused.rows] == [r["alpha"] for r in absent.rows]
    for row in refused.rows[1:]:
        assert [r["client"] for r in row["refused"]] == [3, 5]
        assert all(r["reason"] for r in row["refused"])


@pytest.mark.parametrize("strategy", ["FedAvg", "FedSoftWorse(T=0.2)"])
@pytest.mark.parametrize("fault", ["drop(clients=[3, 5])", "malformed(kind=dtype, clients=[3, 5])"])
def test_lost_after_weighing_is_renormalised_away(digits: Pooled, strategy: str, fault: str) -> None:
    row = play(digits, strategy, fault=fault).rows[1]
    alpha = np.array(row["alpha"])
    cohort = np.array(row["cohort"])
    assert alpha[3] == alpha[5] == 0
    rule = fedalpha.strategy(strategy)
    losses = None if row["losses"].get("before") is None else np.array(row["losses"]["before"])
    whole, _ = rule.weights(rule.init(), Cohort(cohort, digits.sizes(cohort), before=losses))
    np.testing.assert_allclose(alpha, np.where(alpha > 0, whole, 0) / whole[alpha > 0].sum(), rtol=1e-12)


@pytest.mark.parametrize(
    "strategy",
    ["cap(FedSoftWorse(T=0.2), 0.2)", "cap(clipped(FedAvg), 0.2)", "clipped(cap(FedSoftWorse(T=0.2), 0.2))",
     "switch(cap(FedAvg, 0.2), cap(FedSoftBetter(T=0.2), 0.15), at=1)"],
)  # fmt: skip
def test_a_cap_holds_after_a_loss(digits: Pooled, strategy: str) -> None:
    """Dividing by what is left would lift some above the cap; capped again it is the cap of the others' weights."""
    history = play(
        digits, strategy, fault="drop(clients=[3, 5])", evaluate=Evaluate(liars=2), combine="clip(mean, C=1)"
    )
    for row in history.rows[1:]:
        assert row["alpha"][3] == row["alpha"][5] == 0
        assert sum(row["alpha"]) == pytest.approx(1, abs=1e-14)
        assert max(row["alpha"]) <= 0.2
        assert row["influence"]["mass"] <= row["influence"]["possible"] <= 0.4
        assert row["influence"]["bound"] <= 2 * 0.4
    late = play(digits, "switch(FedAvg, cap(FedAvg, 0.13), at=1)", fault="drop(clients=[3, 5])")
    assert max(late.rows[1]["alpha"]) > 0.13 >= max(late.rows[2]["alpha"])
    kept = play(digits, "cap(FedAvg, 0.1)", fault="drop(clients=4)")
    assert "cannot carry" in kept.rows[1]["kept"]


class picky(Strategy):  # noqa: N801
    """Raises an error where clients are missing."""

    error: ClassVar[type[Exception]] = ValueError

    @property
    def requires(self) -> frozenset[Need]:
        return frozenset({"before"})

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        if len(cohort) < 12:
            raise self.error("a mistake in the rule, or too few clients")
        return cohort.prior("size"), state


class modest(picky):  # noqa: N801
    """Says that these clients are too few for it."""

    error = TooFewError


def test_a_mistake_in_a_rule_ends_the_run_and_too_few_clients_keep_the_model(digits: Pooled) -> None:
    """Both raise a ValueError after a client was refused; only the rule knows which of them it is."""
    lacking = {"fault": "nan(clients=[3], where=loss)"}
    with pytest.raises(ValueError, match="a mistake in the rule"):
        play(digits, picky(), **lacking)
    history = play(digits, modest(), **lacking)
    assert [row["kept"] for row in history.rows[1:]] == ["a mistake in the rule, or too few clients"] * 2


def known() -> Known:
    one = np.ones((1, 3)), np.zeros(1, dtype=int)
    people, algorithm = fedalpha.federation([one], test=one), Algorithm()
    state = algorithm.init(SENT, 1)
    return Known(algorithm, state, people, Answers(Gate(algorithm.admission, SENT, 0, 0), Heard(), 0), None)


def test_summed_reports_whose_weights_change_are_ordered_again() -> None:
    rule, total = fedalpha.strategy("cap(FedAvg, 0.5)"), Sum()
    total.values = {"w": torch.ones(2, 3, dtype=torch.float64), "n": torch.tensor(1)}
    summed = Reports([report(i, parameters=None) for i in (0, 1, 2)], total)
    alpha, ids = np.array([0.4, 0.1, 0.1, 0.4]), np.arange(4)
    again, _ = share_out(known(), Weighed(alpha, {}), ids, rule, Train(0, ids, alpha), summed)
    assert isinstance(again, Train)
    assert (again.ids.tolist(), again.alpha) == ([0, 1, 2], None)
    weighed, _ = share_out(known(), Weighed(alpha, {}), ids, rule, again, Reports([report(i) for i in (0, 1, 2)]))
    assert isinstance(weighed, Weighed)
    np.testing.assert_allclose(weighed.alpha, [0.5, 0.25, 0.25, 0])
    alpha = np.array([0.2, 0.2, 0.2, 0.4])
    weighed, reports = share_out(known(), Weighed(alpha, {}), ids, rule, Train(0, ids, alpha), summed)
    assert isinstance(weighed, Weighed)
    assert weighed.lost == 1
    np.testing.assert_allclose(reports.total.values["w"], total.values["w"] / 0.6)
    np.testing.assert_allclose(weighed.alpha, [1 / 3, 1 / 3, 1 / 3, 0])


def test_every_refusal_is_logged(digits: Pooled, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="fedalpha.round.driver"):
        rows = play(digits, "FedAvg", fault="nan(clients=2)").rows
    refused = [(row["round"], r["client"]) for row in rows for r in row["refused"]]
    assert len(refused) == 4
    logged = re.findall(r"round (\d+): clients? ([\d, ]+) refused", caplog.text)
    assert [(int(round), int(client)) for round, names in logged for client in names.split(",")] == refused


@pytest.mark.parametrize("workers", [1, 2])
def test_a_client_whose_training_diverges_does_not_spoil_the_sum(digits: Pooled, workers: int) -> None:
    """No injected fault: one client's own data make its model NaN; the engine sums models on the way."""
    poisoned = Pooled(
        dataclasses.replace(digits.data, x=digits.data.x.clone()), digits.offsets, digits.test, classes=digits.classes
    )
    poisoned.client(4).x[:] = 1e30
    history = fedalpha.run(poisoned, "softmax", "FedAvg", rounds=2, engine=f"embedded(workers={workers})")
    assert [r["client"] for r in history.rows[1]["refused"]] == [4]
    assert all(torch.isfinite(v).all() for v in history.model.values())
    assert history.accuracy[-1] > history.accuracy[0]


def test_below_the_quorum_the_model_is_kept_and_the_row_says_so(digits: Pooled) -> None:
    history = play(digits, "FedAvg", fault="drop(clients=0.5)", quorum=0.6)
    assert history.rows[0]["loss"] == history.rows[2]["loss"]
    assert history.rows[1]["kept"] == "only 6 of 12 clients delivered, the quorum is 0.6"
    assert history.rows[1]["alpha"] == [0.0] * 12
    assert play(digits, "FedAvg", fault="drop(clients=0.5)", quorum=0.5).rows[1]["kept"] is None
    nobody = play(digits, "FedSoftWorse(T=0.2)", fault="nan")
    assert nobody.rows[2]["kept"] is not None
    assert len(nobody.rows[2]["refused"]) == 12


def test_replays_and_duplicates_change_nothing_and_are_named(digits: Pooled) -> None:
    for strategy in ("FedAvg", "FedSoftBetter(T=0.2, loss=after)"):
        plain, replayed = play(digits, strategy, fault="drop(p=0)"), play(digits, strategy, fault="replay(clients=2)")
        assert same_model(plain, replayed)
        reasons = [r["reason"] for r in replayed.rows[2]["refused"]]
        assert sum("belongs to run 0, round 0" in reason for reason in reasons) == 2
        assert sum("again" in reason for reason in reasons) == 2


def test_free_riders_are_legal_and_flagged(digits: Pooled) -> None:
    row = play(digits, "FedAvg", fault="free_rider(clients=[2, 7])").rows[1]
    assert row["idle"] == [2, 7]
    assert row["refused"] == []


@pytest.mark.parametrize("quorum", [0, -1, 1.5, float("nan")])
def test_a_senseless_quorum_is_refused(quorum: float) -> None:
    with pytest.raises(ValueError, match="quorum"):
        Admission(quorum=quorum)


SENT = Broadcast(None, {"w": torch.zeros(2, 3), "n": torch.tensor(4)})  # type: ignore[arg-type]


def report(id: int, /, **changes: Any) -> Report:
    good = Report(id, {"w": torch.full((2, 3), float(id)), "n": torch.tensor(5)}, {"train": 0.5}, 1, 10)
    return dataclasses.replace(good, **changes)


def gate(**settings: Any) -> Gate:
    return Gate(Admission(**settings), SENT, run=7, round=3)


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (None, "class counts are missing"),
        ([], "counts for 0 classes"),
        ([1, -1], "not whole numbers"),
        ([1, 0.5], "not whole numbers"),
        ([True], "not whole numbers"),
        ([2**60], "not whole numbers"),
    ],
)
def test_class_counts_are_checked_where_they_are_wanted(labels: Any, reason: str) -> None:
    asked, here = np.array([0, 1]), gate()
    reports = [report(0, labels=[3, 0]), report(1, labels=labels)]
    assert [r.id for r in here.admit(reports, asked, frozenset({"labels"}))] == [0]
    assert reason in here.refusals[0].reason
    assert [r.id for r in gate().admit(reports, asked)] == [0, 1]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"losses": {"train": float("nan")}}, r"its loss \(train\) is nan"),
        ({"losses": {"after": -0.1}}, "cannot be negative"),
        ({"parameters": None}, "missing"),
        ({"parameters": {"w": torch.zeros(2, 3)}}, "'n' is missing"),
        ({"parameters": {"w": torch.zeros(1), "n": torch.tensor(1)}}, r"shape \(1,\) instead of \(2, 3\)"),
        ({"parameters": {"w": torch.zeros(2, 3), "n": torch.tensor(1.0)}}, "float32 instead of torch.int64"),
        ({"parameters": {"w": torch.full((2, 3), torch.inf), "n": torch.tensor(1)}}, "not finite"),
        ({"parameters": {"w": torch.zeros(2, 3), "n": torch.tensor(1), "x": torch.zeros(1)}}, "not part of the model"),
        ({"extras": {"c": torch.tensor(torch.nan)}}, "extra 'c' is not finite"),
        ({"origin": (7, 2)}, "belongs to run 7, round 2"),
        ({"origin": (8, 3)}, "belongs to run 8, round 3"),
        ({"delay": 11.0}, "deadline"),
        ({"id": 9}, "was not asked"),
    ],
)
def test_what_is_wrong_is_said(changes: dict[str, Any], reason: str) -> None:
    import re

    opened = gate(deadline=10.0)
    admitted = opened.admit([report(0), report(1, **changes)], np.array([0, 1]))
    assert [r.id for r in admitted] == [0]
    assert any(re.search(reason, r.reason) for r in opened.refusals), opened.refusals
    assert gate(signed=True).fault(report(0, losses={"train": -3.0}, origin=(7, 3)), {0}) is None


def test_two_different_updates_of_one_client_are_both_refused_whatever_their_order() -> None:
    items = [report(0), report(1), report(1, losses={"train": 0.1})]
    for order in itertools.permutations(items):
        assert [r.id for r in gate().admit(order, np.array([0, 1]))] == [0]
    few = admit(gate(quorum=2), Train(3, np.array([0, 1])), Heard(reports=Reports(items)))
    assert few == Short("only 1 of 2 clients delivered, the quorum is 2")


@settings(max_examples=200, deadline=None)
@given(st.permutations(range(6)))
def test_two_hundred_arrival_orders_one_hash(order: list[int]) -> None:
    """For every strategy kind that sees reports, and every combine rule: the bytes do not depend on arrival."""
    items = [report(i, parameters={"w": VALUES[i], "n": torch.tensor(i)}) for i in order]
    admitted = Reports(gate().admit(items, np.arange(6)))
    alpha = ALPHA[np.argsort(admitted.ids)]
    for text, (rule, expected) in RULES.items():
        aggregate, _ = rule.combine(rule.init(), SENT, admitted, alpha, True)
        assert {k: v.numpy().tobytes() for k, v in aggregate.parameters.items()} == expected, text


VALUES = torch.from_numpy(np.random.default_rng(0).normal(size=(6, 2, 3)).astype(np.float32))
ALPHA = np.array([0.3, 0.1, 0.05, 0.25, 0.2, 0.1])


def _in_order(rule: Any) -> dict[str, bytes]:
    items = [report(i, parameters={"w": VALUES[i], "n": torch.tensor(i)}) for i in range(6)]
    aggregate, _ = rule.combine(rule.init(), SENT, Reports(items), ALPHA, True)
    return {k: v.numpy().tobytes() for k, v in aggregate.parameters.items()}


ROBUST = ("mean", "median", "trimmed", "geomed", "centred", "krum", "clip", "nnm")
RULES = {
    text: (rule, _in_order(rule))
    for text, rule in ((t, COMBINES.parse(t)) for e in COMBINES if e.name in ROBUST for t in e.examples)
}


@pytest.mark.parametrize("strategy", [t for e in STRATEGIES for t in e.examples if e.name in ("FedSoftWorse", "cap")])
def test_reevaluated_losses_replace_a_lie(digits: Pooled, strategy: str) -> None:
    lied = play(digits, strategy, fault="lie(loss=1000000000.0, clients=[1])")
    checked = play(digits, strategy, fault="lie(loss=1000000000.0, clients=[1])", evaluate=Evaluate(reevaluate=2))
    assert checked.rows[1]["alpha"][1] < 0.6 * lied.rows[1]["alpha"][1]
    assert checked.rows[1]["losses"]["before"][1] == 1e9  # the history keeps what was said


def test_a_cap_that_the_clients_left_cannot_carry_keeps_the_model(digits: Pooled) -> None:
    kept = play(digits, "cap(FedSoftWorse(T=0.2), 0.1)", fault="nan(clients=4)")
    assert "below 1/n" in kept.rows[1]["kept"]
    with pytest.raises(ValueError, match="below 1/n"):
        play(digits, "cap(FedSoftWorse(T=0.2), 0.05)")


@pytest.mark.parametrize(("share", "asked", "need"), [(0.55, 100, 55), (0.28, 25, 7), (0.07, 100, 7), (0.5, 5, 3)])
def test_a_share_of_the_cohort_is_rounded_up_once(share: float, asked: int, need: int) -> None:
    assert Admission(quorum=share).enough(need, asked)
    assert not Admission(quorum=share).enough(need - 1, asked)


def test_weights_of_zero_are_no_loss() -> None:
    """Nobody who counts is missing: the weights stay as they were, to the last bit."""
    alpha = np.array([0.1, 0.2, 0.7 - 2**-53, 0.0])
    reports = Reports([report(i) for i in (0, 1, 2)])
    ids = np.arange(4)
    weighed, kept = share_out(known(), Weighed(alpha, {}), ids, fedalpha.strategy("FedAvg"), Train(0, ids[:3]), reports)
    assert isinstance(weighed, Weighed)
    assert kept is reports
    assert weighed.alpha.tolist() == alpha.tolist()


def test_of_two_different_updates_none_counts() -> None:
    here, other = gate(), report(1, parameters={"w": torch.full((2, 3), 7.0), "n": torch.tensor(5)})
    assert [r.id for r in here.admit([report(0), report(1), other], np.arange(2))] == [0]
    assert [r.reason for r in here.refusals] == ["sent 2 different updates for one round"]
