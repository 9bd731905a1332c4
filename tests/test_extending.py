"""One new file per kind of addition, and no other edit: dropped into a copy of the package, or as a user's plugin.

The files are those of ``docs/extending``; each has the path at which it stands in the package.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

import fedalpha
from commands import fedalpha as on_command_line
from fedalpha.cli.kinds import KINDS
from fedalpha.store import Generations

PACKAGE = Path(fedalpha.__file__).parent
EXAMPLES = Path(__file__).parents[1] / "docs" / "extending"
FILES = sorted(EXAMPLES.rglob("*.py"))
GUIDE = EXAMPLES.with_suffix(".md")


class World:
    """A folder in which the examples can be used from the command line."""

    def __init__(self, folder: Path, plugin: bool) -> None:
        self.folder = folder
        self.plugin = "rules.py" if plugin else None
        if plugin:
            (folder / "rules.py").write_text("\n\n".join(file.read_text() for file in FILES))
        else:
            self.path = folder / "src"
            shutil.copytree(PACKAGE, self.path / "fedalpha", ignore=shutil.ignore_patterns("__pycache__"))
            for file in FILES:
                place = self.path / "fedalpha" / file.relative_to(EXAMPLES)
                assert place.parent.is_dir()
                assert not place.exists()
                shutil.copy(file, place)

    def __call__(self, *command: str) -> str:
        if self.plugin is not None and command[0] in ("run", "report", "list"):
            command = (*command, "--plugin", self.plugin)
        environment = {**os.environ, **({} if self.plugin else {"PYTHONPATH": str(self.path)})}
        done = on_command_line(*command, cwd=self.folder, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module", params=["dropped in", "plugin"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("extending"), request.param == "plugin")


RUN = {
    "dataset": "rings",
    "partition": "dealt",
    "transform": "swap(p=0.3)",
    "clients": "6",
    "model": "tanh_net(hidden=8)",
    "strategy": "ByRank",
    "select": "round_robin(count=3)",
    "update": "heavy_ball(lr=warmup(0.1, over=2), batch=8)",
    "combine": "medoid",
    "apply": "frozen(output)",
    "fault": "half_precision",
    "upload": "feedback(halves)",
    "engine": "ledger(file=orders.jsonl)",
    "log": "milestone(0.01)",
    "rounds": "3",
    "workers": "1",
    "out": "a",
}


@pytest.fixture(scope="module")
def said(world: World) -> str:
    """What a run says that uses thirteen new kinds at once; its folder is ``a``."""
    return world("run", *(word for key, value in RUN.items() for word in (f"--{key}", value)))


@pytest.fixture(scope="module")
def rows(world: World, said: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (world.folder / "a" / "history.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def states(world: World, said: str) -> list[dict[str, Any]]:
    """The server's state before and after the last round."""
    newest = Generations(world.folder / "a" / "checkpoint").load()
    older = world.folder / "older"
    shutil.copytree(world.folder / "a" / "checkpoint", older)
    for file in older.glob("000003.*"):
        file.unlink()
    before = Generations(older).load()
    assert newest is not None
    assert before is not None
    return [before[0], newest[0]]


def test_every_kind_has_an_example() -> None:
    """Whatever `fedalpha list` shows and finds by itself in a folder of the package."""
    registries = [getattr(import_module(module), name) for module, name, _ in KINDS.values()]
    packages = {getattr(registry, "package", None) for registry in registries} - {None}
    folders = {package.removeprefix("fedalpha.").replace(".", "/") for package in packages}
    assert {str(file.parent.relative_to(EXAMPLES)) for file in FILES} == folders - {"theory/problems"}


def test_the_guide_shows_the_files() -> None:
    shown = re.findall(r"\*\*`([^`]*\.py)`\*\*\n\n```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert dict(shown) == {str(file.relative_to(EXAMPLES)): file.read_text() for file in FILES}
    assert len(shown) == len(FILES)


def test_the_strategy_weighs_and_its_bound_is_stated(rows: list[dict[str, Any]]) -> None:
    for row in rows[1:]:
        order = sorted(range(3), key=row["losses"]["before"].__getitem__)
        assert [row["alpha"][i] for i in order] == pytest.approx([1 / 6, 2 / 6, 3 / 6])
        assert row["influence"]["possible"] == pytest.approx(1 / 2)


def test_the_selection_takes_turns(rows: list[dict[str, Any]], states: list[dict[str, Any]]) -> None:
    assert [row["cohort"] for row in rows] == [None, [0, 1, 2], [3, 4, 5], [0, 1, 2]]
    assert [state["select"] for state in states] == [{"next": 0}, {"next": 3}]


def test_the_update_keeps_a_state_per_client(states: list[dict[str, Any]]) -> None:
    before, after = (state["clients"] for state in states)
    assert sorted(before) == sorted(after) == list(range(6))
    for client in range(6):
        same = torch.equal(before[client]["velocity"]["inner.weight"], after[client]["velocity"]["inner.weight"])
        assert same == (client > 2)


def test_the_model_is_one_of_the_rounded_ones(states: list[dict[str, Any]]) -> None:
    """The fault rounds every upload; the combine rule takes one as it is, where a mean would not be rounded."""
    parameters = states[1]["broadcast"]["parameters"]
    assert {name: tuple(p.shape) for name, p in parameters.items()} == {
        "inner.weight": (8, 2),
        "inner.bias": (8,),
        "output.weight": (3, 8),
        "output.bias": (3,),
    }
    for name in ("inner.weight", "inner.bias"):
        assert torch.equal(parameters[name], parameters[name].half().float())


def test_the_apply_rule_keeps_a_part(states: list[dict[str, Any]]) -> None:
    before, after = (state["broadcast"]["parameters"] for state in states)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"inner.weight", "inner.bias"}


def test_the_engine_carries_out_the_orders(world: World, said: str) -> None:
    orders = [json.loads(line) for line in (world.folder / "orders.jsonl").read_text().splitlines()]
    trained = [order["of"] for order in orders if order["order"] == "update"]
    assert trained == [[0, 1, 2], [3, 4, 5], [0, 1, 2]]
    assert {order["order"] for order in orders} == {"losses", "update", "evaluate"}


def test_the_column_stands_before_the_seconds(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        assert list(row)[-2:] == ["weighed_clients", "seconds"]
    assert [row["weighed_clients"] for row in rows] == [None, 3, 3, 3]


def test_the_logger_speaks_once(said: str) -> None:
    assert len(re.findall(r"milestone: accuracy 0\.\d+ after round \d", said)) == 1


def test_the_run_belongs_to_its_texts(world: World, said: str) -> None:
    config = json.loads((world.folder / "a" / "config.json").read_text())
    for key in ("dataset", "partition", "model", "strategy", "select", "combine", "apply", "fault", "upload"):
        assert config[key] == RUN[key]
    assert config["update"].startswith("heavy_ball(lr=warmup(0.1, over=2), batch=8")
    assert "log" not in config
    assert ("plugin" in config) == (world.plugin is not None)


def test_clients_come_and_go_at_their_pace(world: World) -> None:
    pace = {
        "clock": "two_kinds(slow=0.4)",
        "availability": "taking_turns(period=20.0)",
        "server": "growing_buffer(K=1, concurrency=3, most=2)",
        "strategy": "stale(FedAvg, cutoff(most=0))",
    }
    options = {**pace, "dataset": "rings", "clients": "6", "rounds": "4", "workers": "1", "out": "paced"}
    world("run", *(word for key, value in options.items() for word in (f"--{key}", value)))
    rows = [json.loads(line) for line in (world.folder / "paced" / "history.jsonl").read_text().splitlines()]
    assert [len(row["cohort"] or ()) for row in rows] == [0, 1, 2, 2, 2]
    for row in rows[1:]:
        assert row["time"] % 1 == 0
        if row["time"] < 10:
            assert all(client % 2 == 0 for client in row["cohort"])
        if 0 in row["staleness"]:
            assert all(a < 0.1 for a, late in zip(row["alpha"], row["staleness"], strict=True) if late)
    config = json.loads((world.folder / "paced" / "config.json").read_text())
    assert {key: config[key] for key in pace} == pace


def test_updates_are_summed_in_words_of_two_bytes(world: World) -> None:
    options = {"dataset": "rings", "clients": "6", "rounds": "1", "workers": "1", "secure": "short", "out": "summed"}
    world("run", *(word for key, value in options.items() for word in (f"--{key}", value)))
    row = json.loads((world.folder / "summed" / "history.jsonl").read_text().splitlines()[1])
    assert row["kept"] is None
    assert 0 < row["secure_error"] < 0.01
    assert json.loads((world.folder / "summed" / "config.json").read_text())["secure"].startswith("short")


def test_updates_are_sent_in_halves(rows: list[dict[str, Any]], states: list[dict[str, Any]]) -> None:
    parameters = states[1]["broadcast"]["parameters"]
    assert rows[1]["bytes_up"] == 3 * (2 * sum(value.numel() for value in parameters.values()) + 4) + 8 * (3 + 3)
    assert all(0 < abs(state["upload"]).max() < 1e-2 for state in states[1]["clients"].values())


def test_a_study_measures_with_them(world: World) -> None:
    pytest.importorskip("pyarrow")
    plugin = "" if world.plugin is None else f'plugin = "{world.plugin}"\n'
    (world.folder / "study.toml").write_text(
        'name = "mine"\nstrategies = ["FedAvg", "ByRank"]\nseeds = 2\nmeasures = ["late_accuracy", "accuracy"]\n'
        'stop_at = "weighed_clients >= 99"\n'
        f'[settings]\n{plugin}dataset = "rings"\npartition = "dealt"\nmodel = "tanh_net"\nrounds = 3\nclients = 6\n'
    )
    said = world("study", "study.toml", "--jobs", "1", "--trust")
    assert "mean accuracy, second half (%)" in said
    world("report", "runs/mine")
    with (world.folder / "runs" / "mine" / "statistics.csv").open(newline="") as file:
        statistics = list(csv.DictReader(file))
    late = [row for row in statistics if row["measure"] == "late_accuracy"]
    assert [row["strategy"] for row in late] == ["FedAvg", "ByRank"]
    with (world.folder / "runs" / "mine" / "rounds.csv").open(newline="") as file:
        rounds = list(csv.DictReader(file))
    for row in late:
        mine = [r for r in rounds if r["strategy"] == row["strategy"] and r["round"] in ("2", "3")]
        assert float(row["mean"]) == pytest.approx(sum(float(r["accuracy"]) for r in mine) / 4)
    assert [r["weighed_clients"] for r in rounds if r["strategy"] == "ByRank"] == ["", "6", "6", "6"] * 2
