"""Faults: text, seeds, and each attack's formula."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import fedalpha
from fedalpha.data import Pooled
from fedalpha.defence.faults import FAULTS, Scene
from fedalpha.update import Broadcast, Report
from histories import same_model, without_times

SENT = Broadcast(None, {"w": torch.tensor([1.0, 2.0]), "n": torch.tensor(3)})  # type: ignore[arg-type]
SCENE = Scene(seed=0, round=4, clients=4, broadcast=SENT)


def reports() -> list[Report]:
    """Clients 0 to 3 with moves (1, 0), (3, 0), (0, 2), (0, 4); client 3 is the attacker."""
    moves = [(1.0, 0.0), (3.0, 0.0), (0.0, 2.0), (0.0, 4.0)]
    return [
        Report(i, {"w": SENT.parameters["w"] + torch.tensor(m), "n": torch.tensor(i)}, {"train": 1.0}, 1, 1)
        for i, m in enumerate(moves)
    ]


def move(fault: str) -> list[float]:
    """What client 3 sends."""
    found = FAULTS.parse(fault).reports(SCENE, reports())
    assert [r.id for r in found] == [0, 1, 2, 3]
    for before, after in zip(reports()[:3], found[:3], strict=True):
        assert torch.equal(before.parameters["w"], after.parameters["w"])  # type: ignore[index]
    assert found[3].parameters["n"] == 3  # type: ignore[index]
    return (found[3].parameters["w"] - SENT.parameters["w"]).tolist()  # type: ignore[index]


def test_attacks_by_hand() -> None:
    mean, deviation = np.array([4 / 3, 2 / 3]), np.sqrt(np.array([14 / 9, 8 / 9]))
    np.testing.assert_allclose(move("sign_flip(clients=[3])"), [0, -4])
    np.testing.assert_allclose(move("sign_flip(clients=[3], factor=3)"), [0, -12])
    np.testing.assert_allclose(move("scale(factor=10, clients=[3])"), [0, 40])
    np.testing.assert_allclose(move("free_rider(clients=[3])"), [0, 0])
    np.testing.assert_allclose(move("mimic(clients=[3])"), [1, 0])
    np.testing.assert_allclose(move("ipm(epsilon=0.5, clients=[3])"), -0.5 * mean, rtol=1e-6)
    np.testing.assert_allclose(move("alie(z=1.5, clients=[3])"), mean - 1.5 * deviation, rtol=1e-6)
    assert np.std(move("gaussian(sigma=1000.0, clients=[3])")) > 10


ATTACKS = ("sign_flip({})", "scale(factor=10, {})", "gaussian(sigma=1.0, {})", "free_rider({})")
COLLUDERS = ("alie({})", "alie(z=1.5, {})", "ipm(epsilon=0.5, {})", "mimic({})")
ACCIDENTS = [f"malformed(kind={kind}, {{}})" for kind in ("shape", "broadcast", "dtype", "missing", "extra")]


@pytest.mark.parametrize("attack", ATTACKS + COLLUDERS)
@pytest.mark.parametrize("accident", [*ACCIDENTS, "nan(where=model, {})"])
def test_reports_that_do_not_fit_are_neither_attacked_nor_counted(accident: str, attack: str) -> None:
    """Of the honest clients 0 and 1 and the attackers 2 and 3, one each is broken: as if it were not there."""
    broken = accident.format("clients=[0, 3]")
    alone = FAULTS.parse(broken).reports(SCENE, reports())
    expected = FAULTS.parse(attack.format("clients=[2]")).reports(SCENE, reports()[1:3])
    found = FAULTS.parse(f"together({broken}, {attack.format('clients=[2, 3]')})").reports(SCENE, reports())
    for one, other in zip(found, [alone[0], *expected, alone[3]], strict=True):
        assert one.parameters is not None
        assert other.parameters is not None
        assert one.parameters.keys() == other.parameters.keys()
        for name, value in other.parameters.items():
            torch.testing.assert_close(one.parameters[name], value, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("attack", ["sign_flip({})", "alie({})"])
@pytest.mark.parametrize("accident", ACCIDENTS)
def test_accidents_and_attacks_together_end_at_the_gate(digits: Pooled, accident: str, attack: str) -> None:
    fault = f"together({accident.format('clients=1')}, {attack.format('clients=2')})"
    row = fedalpha.run(digits, "softmax", rounds=1, engine="embedded(workers=1)", fault=fault).rows[-1]
    assert len(row["refused"]) == 1
    assert "tensor" in row["refused"][0]["reason"]


@pytest.mark.parametrize("text", [t for e in FAULTS for t in e.examples])
def test_every_fault_has_a_text_that_parses_back_and_is_seeded(text: str, digits: Pooled) -> None:
    fault = FAULTS.parse(text)
    assert FAULTS.parse(str(fault)) == fault
    runs = [
        fedalpha.run(
            digits, "softmax", "FedSoftWorse(T=0.5, loss=train)", rounds=1, engine=f"embedded(workers={w})", fault=fault
        )
        for w in (1, 2)
    ]
    assert same_model(*runs)
    assert without_times(runs[0]) == without_times(runs[1])
    assert all(torch.isfinite(v).all() for v in runs[0].model.values())


def test_who_is_faulty_depends_on_the_seed_and_sets_are_nested() -> None:
    one, two = (FAULTS.parse(f"drop(clients={n})") for n in (1, 2))
    assert one.members(0, 50) < two.members(0, 50)
    assert two.members(0, 50) != two.members(1, 50)
    assert len(FAULTS.parse("drop(clients=0.2)").members(0, 50)) == 10
    assert FAULTS.parse("drop(clients=[4, 9])").members(0, 50) == {4, 9}
    dropped = [len(FAULTS.parse("drop(p=0.3)").acting(Scene(0, r, 100, SENT), range(100))) for r in range(30)]
    assert abs(np.mean(dropped) - 30) < 4 * math.sqrt(21 / 30)
    assert len(set(dropped)) > 3


def test_flipped_labels_raise_the_loss_of_those_clients_only(digits: Pooled) -> None:
    fault = FAULTS.parse("label_flip(clients=[2])")
    flipped = fault.poison(digits, 0)
    assert torch.equal(flipped.client(2).y, 9 - digits.client(2).y)
    assert torch.equal(flipped.client(1).y, digits.client(1).y)


def test_unknown_faults_and_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="did you mean 'drop'"):
        FAULTS.parse("dropp")
    with pytest.raises(ValueError, match="probability"):
        FAULTS.parse("drop(p=2)")
    with pytest.raises(ValueError, match="where"):
        FAULTS.parse("nan(where=x)")
    with pytest.raises(ValueError, match="kind"):
        FAULTS.parse("malformed(kind=x)")
    with pytest.raises(ValueError, match="at least one"):
        FAULTS.parse("together()")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("sign_flip(clients=50)", "the federation has 12 clients; give at most that many"),
        ("together(drop(p=0.1), sign_flip(clients=13))", "the federation has 12 clients; give at most that many"),
        ("drop(clients=[0, 12])", "there is no client 12; the federation has the clients 0 to 11"),
        ("drop(clients=1.5)", "give a number, a share"),
    ],
)
def test_clients_that_the_federation_does_not_have_are_named(digits: Pooled, fault: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fedalpha.run(digits, "softmax", rounds=1, fault=fault)


def test_a_lie_is_a_number() -> None:
    found = FAULTS.parse("lie(loss=nan, clients=1)")
    assert math.isnan(found.loss)  # type: ignore[attr-defined]
    assert FAULTS.parse(str(found)) == found
    for text in ("lie(loss=drop)", "lie(loss=huge)"):
        with pytest.raises(ValueError, match=r"lie: loss = .*; give a number"):
            FAULTS.parse(text)
