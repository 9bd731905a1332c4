"""Studies as files: what they lay out, and what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedalpha.analysis.conditions import condition
from fedalpha.strategies import strategy
from fedalpha.study import Study, read_study, study
from fedalpha.study.cells import Cell

BASE: dict[str, Any] = {"name": "x", "strategies": ["FedAvg", "FedSoftWorse(T=0.2)"], "seeds": 2}


def cell(strategy: str, **changes: Any) -> Cell:
    values = {**BASE, "strategies": [strategy], "seeds": 1, "settings": {"rounds": 30}, **changes}
    return study(values).cells()[0]


def test_a_grid_and_cases_multiply() -> None:
    cases = [{"name": "few", "clients": 5}, {"clients": 50}]
    found = study({**BASE, "grid": {"lr": [0.1, 0.2], "epochs": [1, 2]}, "cases": cases})
    assert list(found.variations())[:2] == ["few, lr=0.1, epochs=1", "few, lr=0.1, epochs=2"]
    assert list(found.variations())[-1] == "clients=50, lr=0.2, epochs=2"
    cells = found.cells()
    assert len(cells) == 8 * 2 * 2
    assert len({c.key for c in cells}) == len(cells)
    assert "lr=0.2" in cells[-1].settings.update


def test_strategies_of_a_seed_share_everything_but_the_strategy() -> None:
    by_seed: dict[int, set[str]] = {}
    accuracy = "switch(FedSoftBetter(T=0.2), FedAvg, accuracy=0.6)"
    for c in study({**BASE, "strategies": ["FedAvg", accuracy]}).cells():
        assert c.settings.validation == 0.1  # for FedAvg too, since the other looks at accuracy
        by_seed.setdefault(c.seed, set()).add(c.group)
    assert all(len(groups) == 1 for groups in by_seed.values())


def test_data_for_a_reevaluation_are_set_aside() -> None:
    found = study({**BASE, "settings": {"reevaluate": 3}}).cells()
    assert {c.settings.validation for c in found} == {0.1}


def test_methods_are_compared_with_the_strategies() -> None:
    methods = [{"name": "SCAFFOLD", "update": "scaffold"}, {"name": "slow", "strategy": "FedWorse", "lr": 0.01}]
    found = study({**BASE, "methods": methods, "settings": {"lr": 0.5}, "reference": "slow", "seeds": 1})
    by_name = {cell.strategy: cell.settings for cell in found.cells()}
    assert list(by_name) == [*found.strategies, "SCAFFOLD", "slow"] == list(found.names)
    assert by_name["SCAFFOLD"].update.startswith("scaffold(lr=0.5")
    assert by_name["SCAFFOLD"].strategy == "FedAvg"
    assert "lr=0.01" in by_name["slow"].update
    assert by_name["slow"].strategy == str(strategy("FedWorse"))


def test_a_method_that_sets_data_aside_does_so_for_all() -> None:
    found = study({**BASE, "methods": [{"name": "learned", "combine": "fedlaw"}]})
    assert {cell.settings.validation for cell in found.cells()} == {0.1}


def test_rounds_are_those_of_every_case() -> None:
    values = {**BASE, "cases": [{"name": "a"}, {"name": "b", "rounds": 100}], "grid": {"lr": [0.1], "rounds": [7, 8]}}
    assert {c.settings.rounds for c in study(values).cells()} == {7, 8}
    assert {c.settings.rounds for c in study(values).with_changes(rounds=5).cells()} == {5}


def test_the_key_follows_the_configuration_and_nothing_else() -> None:
    assert cell("FedAvg").key == cell("FedAvg", title="another title", measures=["R_75"]).key
    assert cell("FedAvg").key == cell("FedAvg", settings={"rounds": 30, "combine": "mean"}).key
    others = [cell("FedAvg", stop_at="accuracy >= 0.6"), cell("FedAvg", settings={"rounds": 31}), cell("FedWorse")]
    assert len({cell("FedAvg").key, *(c.key for c in others)}) == 4


@pytest.mark.parametrize(
    ("a", "b", "rounds"),
    [
        ("FedSoftBetter(T=0.2)", "FedSoftBetterAvg(T=0.2, at=20)", 20),
        ("FedSoftBetterAvg(T=0.2, at=20)", "FedSoftBetterAvg(T=0.2, at=25)", 20),
        ("FedSoftBetter(T=0.2)", "FedSoftBetterAvg(T=0.2, at=99)", 30),
        ("FedSoftBetter(T=0.2)", "FedSoftBetterAvg(T=0.3, at=20)", 0),
        ("FedAvg", "switch(FedSoftBetter, FedAvg, at=0)", 30),
        ("FedSoftBetterAvg(at=15)", "FedSoftBetterAvgSoftWorse(at=[15, 28])", 28),
        ("FedSoftBetter(T=0.2)", "switch(FedSoftBetter(T=0.2), FedAvg, accuracy=0.6)", 0),
        ("FedAvg", "anneal(FedAvg, FedWorse, rounds=10)", 0),
        ("FedAvg", "switch(FedAvg, cap(switch(FedWorse, FedSoftWorse, accuracy=0.3), 0.5), at=3)", 0),
    ],
)
def test_rounds_that_two_strategies_share(a: str, b: str, rounds: int) -> None:
    one, other = study({**BASE, "strategies": [a, b], "seeds": 1, "settings": {"rounds": 30}}).cells()
    assert one.shared(other) == other.shared(one) == rounds


def test_nothing_is_shared_between_seeds() -> None:
    one, other = study({**BASE, "strategies": ["FedAvg"], "seeds": 2}).cells()
    assert one.shared(other) == 0


def test_the_authors_protocol_changes_the_rules_and_the_loss() -> None:
    values = {**BASE, "protocol": "authors", "protocols": {"authors": {"T": 0.5}}, "settings": {"dataset": "mnist"}}
    average, soft = study({**values, "seeds": 1}).cells()
    assert average.settings.strategy == "FedAvg"
    assert soft.settings.strategy == "FedSoftWorse(T=0.5, prior=uniform, loss=train)"
    assert soft.strategy == "FedSoftWorse(T=0.2)"
    assert (soft.settings.pixels, soft.settings.task) == ("raw", "batch_softmax")


def test_settings_beat_the_protocol_and_the_grid_beats_settings() -> None:
    found = study({**BASE, "protocol": "printed", "settings": {"lr": 0.5}}).cells()[0]
    assert "lr=0.5" in found.settings.update
    found = study({**BASE, "settings": {"lr": 0.5}, "grid": {"lr": [0.7], "protocol": ["printed"]}}).cells()[0]
    assert "lr=0.7" in found.settings.update


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"strategys": []}, "did you mean 'strategies'"),
        ({"rounds": 3}, r"put it under \[settings\]"),
        ({"strategy": "FedAvg"}, "did you mean 'strategies'"),
        ({"settings": {"seed": 3}}, "list seeds at the top"),
        ({"grid": {"strategy": ["FedAvg"]}}, "list strategies at the top"),
        ({"settings": {"dataset": "digit"}}, "did you mean 'digits'"),
        ({"settings": {"partition": "shard"}}, "did you mean 'shards'"),
        ({"settings": {"model": "cn"}}, "did you mean 'cnn'"),
        ({"grid": {"combine": ["mean", "medin"]}}, "did you mean 'median'"),
        ({"settings": {"dataset": "synthetic(c=1)"}}, "no argument 'c'"),
        ({"seeds": 1.5}, "give a count"),
        ({"measures": []}, "measures is empty; give at least one"),
        ({"measures": "R_60"}, r"measures: 'R_60' is not a list; put it in \[ \]"),
        ({"strategies": "FedAvg"}, r"'FedAvg' is not a list"),
        ({"seeds": []}, "seeds is empty"),
        ({"settings": 3}, "settings: 3 is not a table"),
        ({"grid": {"lr": 0.1}}, r"grid.lr: 0.1 is not a list"),
        ({"zoom": [{"rounds": [5]}]}, r"zoom.0.rounds: \[5\] is too short; give 2 values"),
        ({"zoom": [{"rounds": [5, 6, 7]}]}, r"too long; give 2 values"),
        ({"calibration": {"measure": "R_60"}}, "calibration.target is missing"),
        ({"published": [{"strategy": "FedAvg", "measur": "R_60", "mean": 6}]}, "unknown key 'measur'; did you mean 'm"),
        (
            {"claims": [{"text": "a", "measure": "auc", "better": "FedAvg", "than": "FedAvg"}]},
            "'FedAvg' is compared with itself",
        ),
        ({"strategies": ["FedSoftWorse", "FedSoftWorse()"]}, "are the same strategy"),
        ({"settings": {"rouds": 3}}, "did you mean 'rounds'"),
        ({"strategies": ["FedAvgg"]}, "did you mean 'FedAvg'"),
        ({"strategies": ["FedAvg", "FedAvg"]}, "given twice"),
        ({"seeds": "many"}, "give a count"),
        ({"reference": "FedWorse"}, "is not one of the strategies"),
        (
            {"published": [{"strategy": "FedWorse", "measure": "R_60", "mean": 6}]},
            "published: .FedWorse. is not",
        ),
        ({"published": [{"strategy": "FedAvg", "measure": "R60", "mean": 6}]}, "R_60"),
        ({"measures": ["R60"]}, "did you mean 'R_60'"),
        ({"grid": {"lr": []}}, "at least one"),
        ({"protocols": {"print": {}}}, "did you mean 'printed'"),
        ({"protocols": {"printed": {"lrr": 1}}}, "protocols.printed: unknown setting 'lrr'; did you mean 'lr'"),
        ({"protocols": {"printed": {"log": ["csv(x)"]}}}, "protocols.printed: log belongs to a single run"),
        ({"protocols": {"printed": {"stop_at": "loss < 1"}}}, "protocols.printed: unknown setting 'stop_at'"),
        ({"name": "a/b"}, "name: 'a/b' cannot be the name of a folder"),
        ({"seeds": "3-0"}, "rising range"),
        ({"methods": [{"lr": 1}]}, "has no name"),
        ({"methods": [{"name": "FedAvg"}]}, "methods: FedAvg is given twice"),
        ({"methods": [{"name": "m", "lrr": 1}]}, "method m: unknown setting 'lrr'; did you mean 'lr'"),
        ({"methods": [{"name": "m", "rounds": 1}]}, "rounds is the same for all methods"),
        ({"methods": [{"name": "m", "lr": "log(0.1, 1)"}]}, r"m is searched; add a \[tune\] table"),
        ({"strategies": ["FedAvg", "FedSoftWorse(T=[1, 2])"]}, r"searched; add a \[tune\] table"),
        ({"published": [{"strategy": "FedAvg", "measure": "R_60", "mean": 6, "case": "x"}]}, "unknown case 'x'"),
        ({"grid": {"lr": [0.1, -0.1]}}, "case 'lr=-0.1': .*positive"),
    ],
)
def test_a_mistake_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        study({**BASE, **changes}).cells()


def test_measures_without_an_answer_are_known_before_the_study_is_run() -> None:
    measures = ["accuracy@3", "accuracy@9", "accuracy", "auc", "R_60", "R_80"]
    values = {**BASE, "measures": measures, "settings": {"rounds": 5}}
    assert study(values).unanswered() == ["accuracy@9: runs end at round 5"]
    assert study({**values, "settings": {"rounds": 9}}).unanswered() == []
    assert study({**values, "stop_at": "accuracy >= 0.6"}).unanswered() == [
        "accuracy@9: runs end at round 5",
        "accuracy: runs that stop at accuracy >= 0.6 have no final round",
        "auc: runs that stop at accuracy >= 0.6 have no final round",
        "R_80: runs stop at accuracy >= 0.6",
    ]
    tight = {**BASE, "measures": ["R_57", "R_58"], "stop_at": "accuracy >= 0.57"}
    assert study(tight).unanswered() == ["R_58: runs stop at accuracy >= 0.57"]
    sparse = {**BASE, "measures": ["accuracy@3", "accuracy@5", "accuracy@8"], "settings": {"rounds": 8}}
    assert study({**sparse, "grid": {"evaluate_every": [5]}}).unanswered() == [
        "accuracy@3 (evaluate_every=5): runs are evaluated every 5 rounds"
    ]
    assert study({**values, "measures": ["accuracy@3", "accuracy@4", "auc"], "stop_at": "round >= 3"}).unanswered() == [
        "accuracy@4: runs stop at round >= 3",
        "auc: runs that stop at round >= 3 have no final round",
    ]
    assert study({**values, "measures": ["accuracy@3", "loss", "R_60"], "stop_at": "loss <= 0.1"}).unanswered() == [
        "loss: runs that stop at loss <= 0.1 have no final round"
    ]
    assert study({**values, "settings": {}, "grid": {"rounds": [5, 9]}}).unanswered() == [
        "accuracy@9 (rounds=5): runs end at round 5"
    ]


def test_conditions_that_differ_in_the_seventh_digit_are_two() -> None:
    keys = {study({**BASE, "stop_at": f"loss <= 0.123456{digit}"}).cells()[0].key for digit in (7, 9)}
    assert len(keys) == 2


@pytest.mark.parametrize("text", ["accuracy > 60", "acuracy >= 0.6", "accuracy", "accuracy == 0.6", "loss <= many"])
def test_a_condition_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="stop_at"):
        condition(text, "stop_at")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="No such file"):
        read_study(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("name = ")
    with pytest.raises(ValueError, match="not valid TOML"):
        read_study(tmp_path / "bad.toml")
    (tmp_path / "bad.toml").write_text('name = "x"\nstrategies = ["FedAvg"]\nseeds = 1\nstop_at = "now"')
    with pytest.raises(ValueError, match=r"bad\.toml: stop_at"):
        read_study(tmp_path / "bad.toml")


def test_a_study_survives_toml() -> None:
    import tomllib

    from fedalpha.study.runner import to_toml

    values = {
        **BASE,
        "published": [{"strategy": "FedAvg", "measure": "R_60", "mean": 5.9}],
        "zoom": [{"rounds": [0, 9]}],
    }
    found = study(values)
    assert Study(**tomllib.loads(to_toml(found))) == found


def test_the_learning_rate_is_not_given_twice() -> None:
    base = {"name": "a", "strategies": ["FedAvg"], "seeds": 1}

    def updates(**values: Any) -> list[str]:
        return [cell.settings.update for cell in study({**base, **values}).cells()]

    with pytest.raises(ValueError, match="lr is given twice"):
        updates(settings={"lr": 0.1, "update": "sgd(lr=0.5)"})
    with pytest.raises(ValueError, match="lr is given twice"):
        updates(cases=[{"name": "b", "lr": 0.1, "update": "sgd(lr=0.5)"}])
    # A case says more than the settings of all cases, in either form.
    assert updates(settings={"lr": 0.1}, cases=[{"name": "b", "update": "sgd(lr=0.5)"}])[0].startswith("sgd(lr=0.5")
    assert updates(settings={"update": "sgd(lr=0.5)"}, grid={"lr": [0.1]})[0].startswith("sgd(lr=0.1")
