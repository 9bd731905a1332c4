"""Servers on the virtual clock: hand-computed orders of events, conservation of updates, equality with the round."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedalpha import federation, run
from fedalpha.clock import Clock, Pace
from fedalpha.clock.speeds import Moment
from fedalpha.combine import COMBINES, Reports
from fedalpha.round import Algorithm, Outcome, ServerState, Train
from fedalpha.round.pacing import begin, play_at
from fedalpha.select import SELECTIONS
from fedalpha.strategies import STRATEGIES, Array
from fedalpha.update import Broadcast, Report


class Fixed(Clock):
    """The seconds of each client, and who is lost after half of its time."""

    took: tuple[float, ...] = ()
    gone: tuple[int, ...] = ()

    def seconds(self, moment: Moment, ids: Any) -> Any:
        return np.array([self.took[i] for i in ids.tolist()])

    def drops(self, moment: Moment, ids: Any) -> Any:
        return np.array([0.5 if i in self.gone else math.nan for i in ids.tolist()])


class People:
    """Clients 0 … n − 1 of equal size."""

    def __init__(self, clients: int) -> None:
        self.clients = clients

    def named(self, places: Any) -> Any:
        return np.asarray(places)

    def sizes(self, ids: Any) -> Array:
        return np.ones(len(ids))

    def optima(self, ids: Any) -> None:
        return None


class Ledger:
    """An engine whose clients add 1 + id to what they are sent; it notes what was ordered."""

    def __init__(self) -> None:
        self.trained: list[tuple[int, int, float]] = []

    def losses(self, broadcast: Any, ids: Any, sample: Any = None) -> Any:
        return np.array([1.0 + i + broadcast.parameters["w"].item() for i in ids.tolist()])

    def update(self, broadcast: Any, order: Train) -> Reports:
        old = broadcast.parameters["w"]
        self.trained += [(order.round, i, old.item()) for i in order.ids.tolist()]
        return Reports([Report(i, {"w": old + 1 + i}, {"train": 1.0}, 1, 1) for i in order.ids.tolist()])

    def evaluate(self, broadcast: Any, part: Any) -> Any:
        raise AssertionError

    def close(self) -> None:
        raise AssertionError


def played(
    server: str,
    took: tuple[float, ...],
    rounds: int,
    strategy: str = "FedAvg",
    gone: tuple[int, ...] = (),
    select: str = "uniform",
) -> tuple[list[Outcome], Ledger]:
    """Rounds of a server with clients of these speeds."""
    pace = Pace.of(server, Fixed(took=took, gone=gone))
    algorithm = Algorithm(weigh=STRATEGIES.parse(strategy), select=SELECTIONS.parse(select))
    sent = Broadcast(None, {"w": torch.zeros(1, dtype=torch.float64)})  # type: ignore[arg-type]
    state: ServerState = algorithm.init(sent, len(took))
    state = ServerState(**{**vars(state), "clock": begin(pace)})
    ledger, outcomes = Ledger(), []
    for _ in range(rounds):
        outcomes.append(play_at(pace, algorithm, state, lambda version: ledger, People(len(took)), 1))  # type: ignore[arg-type]
        state = outcomes[-1].state
    return outcomes, ledger


def test_an_order_of_events_by_hand() -> None:
    """Clients of 1, 2 and 5 s, all in training, every 2 updates a version.

    1 s: client 0 arrives and waits in the buffer. 2 s: client 1; version 1, both are sent it. 3 s: client 0.
    4 s: client 1; version 2. 5 s: clients 0 (τ = 0) and 2 (sent version 0, τ = 2); version 3.
    """
    outcomes, ledger = played("buffered(K=2, concurrency=3)", (1.0, 2.0, 5.0), 3)
    assert [o.state.clock["time"] for o in outcomes] == [2, 4, 5]
    assert [o.cohort.ids.tolist() for o in outcomes] == [[0, 1], [0, 1], [0, 2]]
    assert [o.cohort.staleness.tolist() for o in outcomes] == [[0, 0], [0, 0], [0, 2]]  # type: ignore[union-attr]
    # each version adds the mean of 1 + id: 1.5, 1.5, 2, also where the update is stale and was rebased
    assert [o.state.model["w"].item() for o in outcomes] == [1.5, 3.0, 5.0]
    assert ledger.trained == [(0, 0, 0), (0, 1, 0), (1, 0, 1.5), (1, 1, 1.5), (0, 2, 0), (2, 0, 3)]
    assert {id: flight["version"] for id, flight in outcomes[0].state.clock["flights"].items()} == {2: 0}
    assert list(outcomes[-1].state.clock["versions"]) == [2]


def test_without_rebasing_the_stale_model_itself_is_averaged() -> None:
    outcomes, _ = played("buffered(K=2, concurrency=3, rebase=false)", (1.0, 2.0, 5.0), 3)
    assert outcomes[-1].state.model["w"].item() == (4 + 3) / 2  # 3 + 1 from version 2, 0 + 3 from version 0


def test_arrivals_of_one_instant_are_taken_by_id_and_before_anybody_is_sent_out() -> None:
    outcomes, ledger = played("buffered(K=2, concurrency=4)", (1.0,) * 4, 3)
    assert [o.cohort.ids.tolist() for o in outcomes] == [[0, 1], [2, 3], [0, 1]]
    assert [o.state.clock["time"] for o in outcomes] == [1, 1, 2]
    assert [o.cohort.staleness.tolist() for o in outcomes] == [[0, 0], [1, 1], [0, 0]]  # type: ignore[union-attr]
    assert [version for version, _, _ in ledger.trained] == [0, 0, 0, 0, 2, 2]


def test_fedasync_by_its_formula() -> None:
    """w ← (1 − α_τ)·w + α_τ·w_i, α_τ = mix·(1 + τ)^(−a)."""
    outcomes, _ = played("fedasync(concurrency=3)", (1.0, 1.5, 3.5), 6, "FedAsync(mix=0.6)")
    w, sent = 0.0, dict.fromkeys(range(3), 0.0)
    for outcome in outcomes:
        (id,), (late,) = outcome.cohort.ids.tolist(), outcome.cohort.staleness.tolist()  # type: ignore[union-attr]
        alpha = 0.6 * (1 + late) ** -0.5
        w = (1 - alpha) * w + alpha * (sent[id] + 1 + id)
        sent[id] = w
        assert outcome.state.model["w"].item() == pytest.approx(w, rel=1e-14)
    assert max(o.cohort.staleness.max() for o in outcomes) == 5  # type: ignore[union-attr]


def test_fedbuff_by_its_formula() -> None:
    """w ← w + (lr/K)·Σ s(τ_i)·(w_i − w_{t−τ_i}), s(τ) = (1 + τ)^(−1/2)."""
    outcomes, _ = played("fedbuff(K=2, concurrency=4)", (1.0, 1.25, 3.0, 4.5), 6, "FedBuff(lr=0.5)")
    w = 0.0
    for outcome in outcomes:
        late = outcome.cohort.staleness
        assert late is not None
        w += 0.5 / 2 * math.fsum(((1 + late) ** -0.5 * (1 + outcome.cohort.ids)).tolist())
        assert outcome.state.model["w"].item() == pytest.approx(w, rel=1e-14)
    assert any(o.cohort.staleness.any() for o in outcomes)  # type: ignore[union-attr]


def test_a_client_that_delivers_less_often_counts_more() -> None:
    """The share of each client in many versions: weights sum to 1 in each, so `even` takes part of the advantage."""
    shares = {}
    for rule in ("FedAvg", "even(FedAvg)"):
        outcomes, _ = played("buffered(K=2, concurrency=3)", (1.0, 1.0, 4.0), 40, rule)
        total = np.zeros(3)
        for outcome in outcomes:
            total[outcome.cohort.ids] += outcome.alpha
        shares[rule] = total / total.sum()
    assert shares["FedAvg"][2] < 0.15
    assert shares["even(FedAvg)"][2] > 1.4 * shares["FedAvg"][2]


def test_lost_clients_free_their_place_and_are_named() -> None:
    outcomes, _ = played("buffered(K=2, concurrency=2)", (1.0, 2.0, 3.0), 2, gone=(0,))
    for outcome in outcomes:
        assert 0 not in outcome.cohort.ids
    reasons = [(r.client, r.reason, r.planned) for o in outcomes for r in o.refusals]
    assert set(reasons) == {(0, "dropped out after 0.5 s", True)}


def test_a_version_without_a_single_update_keeps_the_model() -> None:
    outcomes, ledger = played("buffered(K=1, concurrency=2)", (1.0, 2.0), 2, gone=(0, 1))
    assert [o.kept for o in outcomes] == ["only 0 of 2 clients delivered, the quorum is 1"] * 2
    assert not ledger.trained
    assert [o.state.clock["time"] for o in outcomes] == [1, 2]


@settings(max_examples=40, deadline=None)
@given(
    took=st.lists(st.sampled_from([0.5, 1.0, 1.5, 4.0, 9.0]), min_size=3, max_size=8),
    k=st.integers(1, 3),
    concurrency=st.integers(1, 9),
    gone=st.sets(st.integers(0, 7), max_size=2),
    count=st.integers(1, 4),
)
def test_updates_are_conserved_and_nobody_trains_twice_at_once(
    took: list[float], k: int, concurrency: int, gone: set[int], count: int
) -> None:
    server = f"buffered(K={k}, concurrency={concurrency})"
    outcomes, ledger = played(server, tuple(took), 8, gone=tuple(gone), select=f"uniform(count={count})")
    busy: dict[int, dict[str, Any]] = {}
    delivered, time = 0, 0.0
    for version, outcome in enumerate(outcomes):
        clock = outcome.state.clock
        assert clock["time"] >= time
        time = clock["time"]
        assert len(clock["flights"]) <= concurrency
        assert set(clock["versions"]) == {flight["version"] for flight in clock["flights"].values()}
        assert outcome.cohort.staleness is not None
        for id, late in zip(outcome.cohort.ids.tolist(), outcome.cohort.staleness.tolist(), strict=True):
            if id in busy:  # its update is the one of the training that was under way
                assert late == version - busy[id]["version"]
                assert id not in clock["flights"] or clock["flights"][id]["version"] >= version
        for id, flight in busy.items():  # a training under way goes on, or it has ended
            if id in clock["flights"] and flight["end"] > time:
                assert clock["flights"][id] == flight
        delivered += 0 if outcome.kept else len(outcome.cohort)
        busy = clock["flights"]
    assert len(ledger.trained) == delivered
    assert len(set(ledger.trained)) == delivered  # a client trains from a version once


DIGITS = federation("digits", partition="shards(size=30)", clients=8, validation=0.1)
ORDINARY = {
    "strategy": [
        "FedAvg", "FedSoftWorse(T=0.2)", "FedSoftBetter(T=0.2, loss=after)", "qFedAvg", "FedNova", "cap(FedWorse, 0.5)",
        "stale(FedSoftWorse(T=0.2), polynomial(a=0.5))", "even(FedAvg)", "FedMGDA",
    ],
    "combine": ["median", "clip(mean, C=0.1)", "krum", "fedlaw"],
    "apply": ["fedadam(lr=0.01)", "fedavgm(lr=1, beta=0.9)"],
    "update": ["scaffold(lr=0.1)", "fedprox(mu=0.1)"],
    "select": ["power_of_choice(count=5, d=7)", "loss_proportional(count=5)", "by_size(count=5)"],
    "fault": ["drop(p=0.3)", "sign_flip(clients=2)"],
}  # fmt: skip
CASES = [(kind, text) for kind, texts in ORDINARY.items() for text in texts]


@pytest.mark.parametrize(("kind", "text"), CASES)
def test_equal_speeds_and_one_cohort_in_training_are_the_synchronous_server_to_the_bit(kind: str, text: str) -> None:
    options: dict[str, Any] = {"select": "uniform(count=5)", "strategy": "FedSoftWorse(T=0.2)", kind: text}
    common = {"rounds": 3, "engine": "embedded(workers=1)", **options}
    plain = run(DIGITS, "softmax", **common)
    timed = run(DIGITS, "softmax", **common, clock="constant(each=2)")
    buffered = run(DIGITS, "softmax", **common, clock="constant(each=2)", server="buffered(K=5, concurrency=5)")
    own = {"seconds", "time", "staleness", "worst_tenth_accuracy"}
    for found in (timed, buffered):
        for one, other in zip(plain.rows, found.rows, strict=True):
            assert {k: v for k, v in one.items() if k not in own} == {k: v for k, v in other.items() if k not in own}
        assert all(torch.equal(value, found.model[name]) for name, value in plain.model.items())
        assert [row["time"] for row in found.rows] == [0, 2, 4, 6]


def test_over_selection_takes_the_first() -> None:
    outcomes, ledger = played("synchronous(take=2)", (3.0, 1.0, 2.0, 9.0), 2)
    assert [o.state.clock["time"] for o in outcomes] == [2, 4]
    assert ledger.trained == [(0, 1, 0), (0, 2, 0), (1, 1, 2.5), (1, 2, 2.5)]
    assert {(r.client, r.reason) for r in outcomes[0].refusals} == {
        (0, "came after the first 2, which end the round (synchronous(take=2))"),
        (3, "came after the first 2, which end the round (synchronous(take=2))"),
    }


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"server": "buffered(K=2, concurrency=3)"}, "server = 'buffered.*needs simulated time"),
        ({"availability": "diurnal(share=0.3)"}, "availability = .*needs simulated time"),
        ({"server": "buffered(K=9, concurrency=3)", "clock": "constant"}, "needs 9 updates, but there are 8 clients"),
        ({"server": "synchronous(take=9)", "clock": "constant"}, "needs 9 updates"),
        ({"combine": "pfnm"}, r"pfnm\(.* does not work with .*cannot be rebased"),
        ({"combine": "feddist"}, "feddist.* does not work"),
        ({"select": "fedpage(C=0.5, p=0.1)"}, "all clients take part"),
        ({"strategy": "unbiased(FedAvg)"}, "chance to be in a cohort"),
        ({"reevaluate": 2}, "rebased model"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_trained(options: dict[str, Any], reason: str) -> None:
    given = {"server": "buffered(K=2, concurrency=3)", "clock": "constant"} if "server" not in options else {}
    if "availability" in options or (options.get("server", "").startswith("buffered(K=2")):
        given = {}
    with pytest.raises(ValueError, match=reason):
        run(DIGITS, "softmax", rounds=1, **{**given, **options})


def test_every_combine_rule_says_whether_it_works_with_stale_updates() -> None:
    refused = {entry.name for entry in COMBINES if COMBINES.parse(entry.examples[0]).against_stale}
    assert refused == {"pfnm", "feddist"}
