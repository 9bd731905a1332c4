"""Runs through a secure sum: the same model within the stated error, what is refused, and what the rows say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedalpha
from fedalpha.data.federations import Federation
from fedalpha.engine import ENGINES
from fedalpha.engine.backends.veiled import Veiled, difference
from fedalpha.round import ServerState, play
from fedalpha.runs.description import describe
from fedalpha.runs.experiment import Experiment, plan
from fedalpha.secure import rounds
from fedalpha.secure.messages import Masked
from fedalpha.secure.server import Server

PLACE = "embedded(workers=1)"


@pytest.fixture(scope="module")
def digits() -> Federation:
    return fedalpha.federation("digits", partition="shards(size=30)", clients=8, seed=0, validation=0.1)


def planned(digits: Federation, secure: str | None = "masked", **changes: Any) -> Experiment:
    given = {
        "model": "softmax",
        "strategy": "FedSoftWorse(T=0.2)",
        "rounds": 2,
        "seed": 0,
        "select": "uniform",
        "update": "sgd",
        "combine": "mean",
        "apply": "replace",
        "quorum": 1,
        "deadline": None,
        "fault": None,
        "evaluate": 1,
        **dict.fromkeys(("upload", "clock", "availability", "server")),
    }
    return plan(digits, secure=secure, **{**given, **changes})


def furthest(one: fedalpha.History, other: fedalpha.History) -> float:
    """The largest difference of two models."""
    return max(float((one.model[k].double() - v.double()).abs().max()) for k, v in other.model.items())


@pytest.mark.parametrize(
    ("secure", "changes"),
    [
        ("masked", {}),
        ("masked(bits=64, neighbours=4, threshold=1/2)", {"strategy": "FedWorse(k=4)"}),
        ("masked", {"strategy": "unbiased(FedSoftWorse(T=0.2))", "select": "uniform(C=0.6)"}),
        ("masked", {"apply": "fedadam", "evaluate": fedalpha.Evaluate(reevaluate=2)}),
        ("masked(signed=true)", {}),
        ("blind(reference=2.0)", {}),
        ("blind(reference=2.0)", {"strategy": "FedSoftBetter(T=0.5, prior=uniform)"}),
    ],
)
def test_the_model_is_the_plain_one_within_the_stated_error(
    digits: Federation, secure: str, changes: dict[str, Any]
) -> None:
    """After one round; a server optimiser may enlarge the error, so FedAdam has a bound of its own."""
    plain = planned(digits, None, rounds=1, **changes).run(PLACE)
    veiled = planned(digits, secure, rounds=1, **changes).run(PLACE)
    error = veiled.rows[-1]["secure_error"]
    assert 0 < error < 1e-6
    limit = 1e-3 if "apply" in changes else error + 1e-7  # float32 rounds the model itself
    assert furthest(plain, veiled) <= limit
    assert [r["cohort"] for r in plain.rows] == [r["cohort"] for r in veiled.rows]


def test_without_a_secure_sum_nothing_mentions_it(digits: Federation) -> None:
    experiment = planned(digits, None)
    assert "secure" not in describe(experiment)
    assert not [name for name in experiment.run(PLACE).rows[-1] if "secure" in name]
    assert describe(planned(digits))["secure"] == "masked"


def test_a_run_gives_the_same_rows_and_model_again(digits: Federation) -> None:
    """Masks and keys are new each time, and cancel to the last bit."""
    one, two = (planned(digits).run(PLACE) for _ in range(2))
    assert furthest(one, two) == 0
    times = {"seconds", "secure_seconds"}
    assert [{k: v for k, v in row.items() if k not in times} for row in one.rows] == [
        {k: v for k, v in row.items() if k not in times} for row in two.rows
    ]
    row = one.rows[-1]
    assert row["secure_bytes_up"] > 8 * 4 * 650
    assert row["bytes_up"] >= row["secure_bytes_up"]
    assert row["bytes_down"] >= row["secure_bytes_down"] > 0
    assert row["secure_seconds"] > 0


def test_lost_clients_are_left_out_of_the_sum(digits: Federation) -> None:
    changes = {"fault": "drop(clients=[1, 4])", "rounds": 1}
    plain, veiled = (planned(digits, secure, **changes).run(PLACE) for secure in (None, "masked(threshold=1/2)"))
    assert furthest(plain, veiled) <= veiled.rows[-1]["secure_error"] + 1e-7
    assert plain.rows[-1]["alpha"] == veiled.rows[-1]["alpha"]
    assert [r["client"] for r in veiled.rows[-1]["refused"]] == [1, 4]
    blind = planned(digits, "blind(reference=2.0, threshold=1/2)", **changes).run(PLACE)
    assert furthest(plain, blind) <= blind.rows[-1]["secure_error"] + 1e-7


def test_below_the_threshold_the_model_is_kept_and_the_reason_told(digits: Federation) -> None:
    history = planned(digits, fault="drop(clients=[1, 4, 5])", rounds=1).run(PLACE)
    row = history.rows[-1]
    assert row["kept"] == "there is no secure sum: only 5 of 8 clients delivered; a secure sum needs 6"
    assert row["accuracy"] == history.rows[0]["accuracy"]
    assert row["secure_error"] is None


def test_a_lost_client_under_a_cap_keeps_the_model(digits: Federation) -> None:
    history = planned(digits, strategy="cap(FedAvg, 0.2)", fault="drop(clients=[1])", rounds=1).run(PLACE)
    assert "cannot share out its weight" in history.rows[-1]["kept"]


def test_updates_beyond_the_range_are_told_by_their_clients(digits: Federation) -> None:
    row = planned(digits, "masked(range=0.001)", rounds=1).run(PLACE).rows[-1]
    assert "only 0 of 8 clients delivered" in row["kept"]
    assert {r["reason"] for r in row["refused"]} == {
        "its update has a value beyond the range 0.001: give a larger range, or clip"
    }
    clipped = planned(digits, "masked(range=0.001, clip=0.001)", rounds=1).run(PLACE).rows[-1]
    assert clipped["kept"] is None


def test_a_reference_far_from_the_losses_is_told(digits: Federation) -> None:
    below = planned(digits, "blind(reference=-9.0)", rounds=1).run(PLACE).rows[-1]
    assert "too far from the reference -9" in below["refused"][0]["reason"]
    above = planned(digits, "blind(reference=12.0)", rounds=1).run(PLACE).rows[-1]
    assert "losses are too far from the reference 12" in above["kept"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"strategy": "FedSoftWorse(loss=after)"}, r"known after training \(after\)"),
        ({"strategy": "FedNova"}, r"known after training \(steps\)"),
        ({"strategy": "FedExP"}, r"known after training \(gram\)"),
        ({"strategy": "FedWorse(k=2)"}, "gives weight to 2 clients"),
        ({"combine": "median"}, "looks at single models"),
        ({"combine": "clip(mean, C=1.0)"}, "looks at single models"),
        ({"update": "scaffold"}, "sends more than a model"),
        ({"secure": "blind", "strategy": "FedWorse(k=4)"}, "compares the losses of clients"),
        ({"secure": "blind", "strategy": "FedSoftWorse(T=0)"}, "compares the losses of clients"),
        ({"secure": "blind", "strategy": "cap(FedSoftWorse(T=0.2), 0.5)"}, "compares the losses of clients"),
        ({"secure": "blind", "evaluate": fedalpha.Evaluate(reevaluate=1)}, "reevaluate weighs clients by losses"),
        ({"secure": "blind", "select": "power_of_choice(C=0.5, d=6)"}, "learns from the training loss"),
        ({"secure": "blind", "evaluate": fedalpha.Evaluate(shadow=["FedWorse"])}, "shadow rules look at losses"),
        ({"clock": "lognormal(sigma=1)"}, "simulated time does not know"),
        ({"secure": "masked(bits=20)"}, "bits = 20; give one of 16, 32, 64"),
        ({"secure": "masked(neighbours=3)"}, "give all, log or an even number"),
        ({"secure": "masked(threshold=0.3)"}, "give a share of at least 0.5"),
        ({"secure": "masked(least=1)"}, "give a whole number ≥ 2"),
        ({"secure": "masked(least=50)"}, "a sum takes 50 clients, and the federation has [0-9]+; use more clients"),
        ({"secure": "masked(signed=true, neighbours=log)"}, "signed=true protects from a lying server"),
        ({"secure": "masked(effective=0.5)"}, "give a number of clients ≥ 1"),
        ({"secure": "unmasked"}, "unknown secure sum"),
    ],
)
def test_what_does_not_work_is_refused_before_training(
    digits: Federation, changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        planned(digits, **{"select": "uniform", **changes})


def test_weights_that_single_out_a_client_keep_the_model(digits: Federation) -> None:
    changes = {"strategy": "FedSoftWorse(T=0.001)", "rounds": 1}
    row = planned(digits, **changes).run(PLACE).rows[-1]
    assert "its weights count as 1 equal clients" in row["kept"]
    assert planned(digits, "masked(effective=1)", **changes).run(PLACE).rows[-1]["kept"] is None


def test_too_few_clients_with_weight_keep_the_model(digits: Federation) -> None:
    row = planned(digits, select="uniform(count=2)", rounds=1).run(PLACE).rows[-1]
    assert row["kept"] == "a secure sum of 2 clients is refused: it takes 3 with weight (least)"


@pytest.mark.parametrize("secure", ["masked", "blind(reference=2.0)"])
def test_what_the_server_receives_holds_no_model_and_no_loss(
    digits: Federation, secure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every answer of a round, in bytes, against every client's update, model and loss."""
    received: list[tuple[str, bytes]] = []
    conduct = rounds.conduct

    def listening(server: Server, ask: Any) -> Any:
        def heard(step: str, messages: Any) -> Any:
            for id, answer in ask(step, messages):
                received.append((step, answer))
                yield id, answer

        return conduct(server, heard)

    monkeypatch.setattr(rounds, "conduct", listening)
    experiment = planned(digits, secure)
    state: ServerState = experiment.start()
    engine = ENGINES.parse(PLACE).start(digits, digits.task, experiment.algorithm.update, 0)
    kept: dict[str, Any] = {}

    class Listening(Veiled):
        def _trained(self, broadcast: Any, order: Any) -> Any:
            kept["found"], problems = super()._trained(broadcast, order)
            return kept["found"], problems

    try:
        outcome = play(experiment.algorithm, state, Listening(engine, experiment.algorithm, 0, 0), digits, 0)
        losses = engine.losses(state.broadcast, np.arange(8))
    finally:
        engine.close()
    transcript = b"".join(answer for _, answer in received)
    assert len(kept["found"]) == 8
    for id, report in kept["found"].items():
        move = difference(report, state.broadcast)
        for vector in (move, move.astype("<f4"), report.parameters["output.weight"].numpy()):
            assert vector.tobytes()[64:80] not in transcript
        for loss in (losses[id], np.float32(losses[id])):
            assert loss.tobytes() not in transcript
    if secure.startswith("blind"):
        assert outcome.losses == {}
        weights = [np.frombuffer(Masked.read(a).words, "<u8")[0] for step, a in received if step == "masked"]
        assert len({int(w) >> 48 for w in weights}) > 1  # a weight in the clear would leave the top bits alone


def test_costs_grow_with_neighbours(digits: Federation) -> None:
    all_, few = (planned(digits, f"masked(threshold=1/2, neighbours={n})", rounds=1).run(PLACE) for n in ("all", 4))
    assert few.rows[-1]["secure_bytes_up"] < all_.rows[-1]["secure_bytes_up"]
    assert furthest(all_, few) == 0


def test_the_settings_of_the_command_line_describe_it(digits: Federation) -> None:
    found = describe(planned(digits, "masked(clip=1.0)"), ENGINES.parse(PLACE))
    assert found["secure"] == "masked(clip=1.0)"
    assert found["settings"]["secure"] == "masked(clip=1.0)"
