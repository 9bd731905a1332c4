"""Servers on the virtual clock: hand-computed orders of events, conservation of updates, equality with the round."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedalpha import Evaluate, federation, run
from fedalpha.clock import Clock, Pace, Timeline
from fedalpha.clock.speeds import Moment
from fedalpha.combine import COMBINES, Reports
from fedalpha.round import Algorithm, Outcome, ServerState, Train
from fedalpha.round.cohorts import observe
from fedalpha.round.pacing import begin, play_at
from fedalpha.select import SELECTIONS, Select
from fedalpha.strategies import STRATEGIES, Array, Cohort
from fedalpha.update import UPDATES, Broadcast, Report


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
    select: Any = "uniform",
    ledger: Ledger | None = None,
) -> tuple[list[Outcome], Ledger]:
    """Rounds of a server with clients of these speeds."""
    pace = Pace.of(server, Fixed(took=took, gone=gone))
    algorithm = Algorithm(weigh=STRATEGIES.parse(strategy), select=SELECTIONS.parse(select))
    sent = Broadcast(None, {"w": torch.zeros(1, dtype=torch.float64)})  # type: ignore[arg-type]
    state: ServerState = algorithm.init(sent, len(took))
    state = ServerState(**{**vars(state), "clock": begin(pace)})
    ledger, outcomes = ledger or Ledger(), []
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


SPEEDS = st.lists(st.sampled_from([0.5, 1.0, 1.5, 4.0, 9.0]), min_size=3, max_size=8)


@settings(max_examples=40, deadline=None)
@given(took=SPEEDS, k=st.integers(1, 3), gone=st.sets(st.integers(0, 7), max_size=2))
def test_events_are_those_of_a_list_that_is_kept_by_hand(took: list[float], k: int, gone: set[int]) -> None:
    """With a place for everybody nothing is drawn: who delivers when follows from the seconds alone."""
    outcomes, _ = played(f"buffered(K={k}, concurrency={len(took)})", tuple(took), 8, gone=tuple(gone))
    time, training = 0.0, dict[int, tuple[float, int]]()  # client → end, version
    for version, outcome in enumerate(outcomes):
        arrived: dict[int, int] = {}
        lost: set[int] = set()
        while True:
            for end, id in sorted((end, id) for id, (end, _) in training.items()):
                if end <= time and len(arrived) < k:
                    sent = training.pop(id)[1]
                    if id in gone:
                        lost.add(id)
                    else:
                        arrived[id] = version - sent
            if len(arrived) == k:
                break
            for id, seconds in enumerate(took):
                if id not in training and id not in arrived and id not in lost:
                    training[id] = time + seconds * (0.5 if id in gone else 1.0), version
            if not training:
                break
            time = max(time, min(end for end, _ in training.values()))
        assert outcome.state.clock["time"] == time
        assert {r.client for r in outcome.refusals} == lost
        if arrived:
            assert outcome.cohort.staleness is not None
            assert dict(zip(outcome.cohort.ids.tolist(), outcome.cohort.staleness.tolist(), strict=True)) == arrived
        else:
            assert outcome.kept is not None


@settings(max_examples=40, deadline=None)
@given(
    took=SPEEDS,
    k=st.integers(1, 3),
    concurrency=st.integers(1, 9),
    gone=st.sets(st.integers(0, 7), max_size=2),
    count=st.integers(1, 4),
)
def test_updates_are_conserved_and_nobody_trains_twice_at_once(
    took: list[float], k: int, concurrency: int, gone: set[int], count: int
) -> None:
    """Every training that was begun has delivered once, with the right staleness, or was lost, or goes on."""
    begun: dict[tuple[int, int], tuple[float, float]] = {}
    jobs = Timeline.jobs

    def noted(self: Timeline, start: float, round: int, ids: Any) -> Any:
        found = jobs(self, start, round, ids)
        for id, job in found.items():
            assert (round, id) not in begun  # at most once from a version
            begun[round, id] = start, job.end
        return found

    server = f"buffered(K={k}, concurrency={concurrency})"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Timeline, "jobs", noted)
        outcomes, ledger = played(server, tuple(took), 8, gone=tuple(gone), select=f"uniform(count={count})")
    ended: list[tuple[int, int]] = []
    time = 0.0
    for version, outcome in enumerate(outcomes):
        clock = outcome.state.clock
        assert clock["time"] >= time
        time = clock["time"]
        assert len(clock["flights"]) <= concurrency
        assert set(clock["versions"]) == {flight["version"] for flight in clock["flights"].values()}
        before = {id: flight["version"] for id, flight in outcomes[version - 1].state.clock["flights"].items()}
        before = before if version else {}
        lost = {r.client for r in outcome.refusals}
        assert lost <= gone
        ended += [(before.get(id, version), id) for id in lost]
        if outcome.kept is None:
            assert outcome.cohort.staleness is not None
            assert 1 <= len(outcome.cohort) <= k
            late = outcome.cohort.staleness.astype(int).tolist()
            ended += [(version - tau, id) for id, tau in zip(outcome.cohort.ids.tolist(), late, strict=True)]
    going_on = [(flight["version"], id) for id, flight in outcomes[-1].state.clock["flights"].items()]
    assert sorted(ended + going_on) == sorted(begun)
    assert len(set(ended)) == len(ended)
    assert {(version, id) for version, id, _ in ledger.trained} == {pair for pair in ended if pair[1] not in gone}
    for id in range(len(took)):
        times = sorted(span for (_, one), span in begun.items() if one == id)
        assert all(end <= start for (_, end), (start, _) in pairwise(times))
    steps = sorted([(end, -1) for _, end in begun.values()] + [(start, 1) for start, _ in begun.values()])
    assert max(np.cumsum([step for _, step in steps])) <= concurrency


def test_a_client_whose_loss_is_refused_is_not_sent_out_and_another_one_is() -> None:
    class Unsure(Ledger):
        def losses(self, broadcast: Any, ids: Any, sample: Any = None) -> Any:
            return np.where(np.asarray(ids) == 2, math.nan, super().losses(broadcast, ids, sample))

    outcomes, ledger = played(
        "buffered(K=2, concurrency=2)", (1.0, 2.0, 3.0), 3, select="power_of_choice(count=1, d=3)", ledger=Unsure()
    )
    assert {id for _, id, _ in ledger.trained} == {0, 1}
    for outcome in outcomes:
        assert [(r.client, r.reason) for r in outcome.refusals] == [(2, "its loss (before) is nan")]
        assert not outcome.refusals[0].planned
        # two clients train and one is asked in vain; each is sent the model once
        assert outcome.bytes_down == 3 * outcome.state.broadcast.nbytes


def test_a_version_of_fewer_updates_than_a_rule_needs_keeps_the_model() -> None:
    for gone in (), (0,):
        outcomes, _ = played("buffered(K=3, concurrency=3)", (1.0, 2.0, 3.0), 1, "cap(FedAvg, 0.4)", gone)
        assert (outcomes[0].kept is not None) == bool(gone)
    with pytest.raises(ValueError, match="cap"):  # the buffer itself is too small
        played("buffered(K=2, concurrency=3)", (1.0, 2.0, 3.0), 1, "cap(FedAvg, 0.4)")


def test_a_selection_of_nobody_is_named() -> None:
    class Nobody(Select):
        def select(self, state: Any, population: Any, losses: Any, rng: Any) -> Any:
            return np.zeros(0, dtype=np.int64), state

    with pytest.raises(ValueError, match="selects none of 2 clients"):
        played("buffered(K=1, concurrency=1)", (1.0, 2.0), 1, select=Nobody())


def test_steps_count_in_the_version_that_a_client_trained_from() -> None:
    """FedNova under FedProx with a falling rate: η·μ is that of the version, not of the current one."""
    rate = UPDATES.parse("fedprox(mu=1, lr=exponential(0.1, rate=0.5))")
    algorithm = Algorithm(update=rate, weigh=STRATEGIES.parse("FedNova"))
    cohort = Cohort(ids=[0, 1], sizes=[1, 1], round=2, staleness=[0, 2])
    reports = Reports([Report(i, {}, {"train": 1.0}, 4, 1) for i in (0, 1)])
    seen = observe(algorithm, cohort, People(2), None, reports, frozenset({"steps"}))
    assert isinstance(seen, Cohort)
    assert np.asarray(seen.pull).tolist() == [0.025, 0.1]
    fresh = observe(algorithm, cohort.replace(staleness=np.zeros(2)), People(2), None, reports, frozenset({"steps"}))
    assert isinstance(fresh, Cohort)
    assert fresh.pull == 0.025


DIGITS = federation("digits", partition="shards(size=30)", clients=8, validation=0.1)
ORDINARY = {
    "strategy": [
        "FedAvg", "FedSoftWorse(T=0.2)", "FedSoftBetter(T=0.2, loss=after)", "qFedAvg", "FedNova", "cap(FedWorse, 0.5)",
        "stale(FedSoftWorse(T=0.2), polynomial(a=0.5))", "even(FedAvg)", "FedMGDA", "FedPIDAvg", "AAggFF",
        "FedSoftWorse(T=0.2, optima=estimated)", "switch(FedSoftWorse(T=0.2), FedAvg, at=1)", "fade(FedWorse)",
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
        ({"evaluate": Evaluate(reevaluate=2)}, "rebased model"),
        ({"select": "power_of_choice(C=0.5, d=0.7, until=3)"}, "until counts one cohort for each round"),
        ({"select": "poisson(C=0.5)"}, "clients that are away cannot"),
        (
            {"combine": "noise(clip(mean, C=1.0), z=1.0, c=0.5)", "strategy": "cap(FedAvg, 0.5)"},
            "drawn at random|chance",
        ),
        ({"secure": "masked"}, "leave clock out"),
        ({"fault": "together(drop(p=0.1), straggler(p=0.1, delay=9))"}, "its delay would take no simulated time"),
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
    assert refused >= {"pfnm", "feddist"}
    assert not refused & {"mean", "median", "krum", "geomed", "fedlaw"}
