"""Apps in the shape of Flower's examples, switched to FedAlpha as docs/deployment.md says, with real messages."""

from __future__ import annotations

import difflib
import importlib
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, RecordDict
from flwr.supercore import logger as flower_logging

from fedalpha import weights
from fedalpha.fast.threads import single_thread
from fedalpha.flower import FedAlpha

APPS = Path(__file__).parent / "apps"
MODULES = ("task", "strategy", "client_app", "server_app")
IMPORT = ("from flwr.serverapp.strategy import FedAvg", "from fedalpha.flower import FedAlpha")


def server(rule: str, more: str = "") -> dict[str, list[tuple[str, str]]]:
    """The two lines of a server app: the import and the strategy."""
    call = ("strategy = FedAvg(", f'strategy = FedAlpha("{rule}", {more}')
    return {"server_app.py": [IMPORT, call]}


def client(line: str) -> dict[str, list[tuple[str, str]]]:
    """The two lines of a client app: the import and, at its end, the query."""
    flowers = "from flwr.clientapp import"
    return {"client_app.py": [(flowers, f"from fedalpha.flower import add_loss_query\n{flowers}"), ("", line)]}


@dataclass
class Played:
    """What a switched app did."""

    rule: FedAlpha | None
    arrays: list[np.ndarray]
    log: list[tuple[str, int]]
    changed: dict[str, int]
    client: Any


Play = Callable[..., Played]


@pytest.fixture
def play(tmp_path: Path, grid_of: Any, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Copy an app, make the edits, and run its server app with its client app on every node."""

    def run(name: str, *edits: dict[str, list[tuple[str, str]]], base: str | None = None, rounds: int = 3) -> Played:
        folder = tmp_path / f"{name}{len(list(tmp_path.iterdir()))}"
        for source in [base, name] if base else [name]:
            shutil.copytree(APPS / str(source), folder, dirs_exist_ok=True)
        changed = {}
        for file, changes in {file: c for edit in edits for file, c in edit.items()}.items():
            text = before = (folder / file).read_text()
            for old, new in changes:
                assert old in text
                text = text.replace(old, new, 1) if old else f"{text}{new}\n"
            (folder / file).write_text(text)
            diff = difflib.ndiff(before.splitlines(), text.splitlines())
            changed[file] = sum(line.startswith("+ ") and bool(line[2:].strip()) for line in diff)
        monkeypatch.syspath_prepend(folder)
        for module in MODULES:
            sys.modules.pop(module, None)
        kept: list[FedAlpha] = []
        monkeypatch.setattr(FedAlpha, "configure_train", _noting(kept))
        module = importlib.import_module("client_app")
        grid = grid_of(module.app, range(3))
        grid.run_config = {"num-server-rounds": rounds, "local-epochs": 1}
        for config in grid.nodes.values():
            config["num-partitions"] = 3
        context = Context(1, 0, {}, RecordDict(), dict(grid.run_config))
        with single_thread():
            importlib.import_module("server_app").app(grid=grid, context=context)
        for name_ in MODULES:
            sys.modules.pop(name_, None)
        arrays = [a.numpy() for a in context.state["result"].values()]
        return Played(kept[0] if kept else None, arrays, grid.log, changed, module)

    return run


_CONFIGURE = FedAlpha.configure_train


def _noting(kept: list[FedAlpha]) -> Any:
    def configure_train(self: FedAlpha, server_round: int, arrays: Any, config: ConfigRecord, grid: Any) -> Any:
        kept.append(self)
        return _CONFIGURE(self, server_round, arrays, config, grid)

    return configure_train


def rows(played: Played) -> list[dict[str, Any]]:
    assert played.rule is not None
    return [row for row in played.rule.rows if row["round"] > 0]


@pytest.mark.parametrize("name", ["quickstart_numpy", "quickstart_sklearn", "quickstart_pytorch", "custom_mods"])
def test_fedavg_on_an_unchanged_app_gives_what_flower_gives(play: Play, name: str, caplog: Any) -> None:
    """Two lines on the server, none on the clients; node ids serve as ids, and the log says so once."""
    flower_logging.FLOWER_LOGGER.propagate = True
    caplog.set_level("INFO", logger="flwr")
    flowers = play(name)
    ours = play(name, server("FedAvg"))
    assert ours.changed == {"server_app.py": 2}
    for found, expected in zip(ours.arrays, flowers.arrays, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)
    assert rows(ours)[0]["cohort"] == [1000, 1037, 1074]
    assert caplog.text.count("take part under their node id") == 1


def test_a_rule_that_weighs_by_loss_on_an_unchanged_app(play: Play) -> None:
    """The losses of the last evaluation, or of the last training: no query, and still nothing on the clients."""
    for source, key in (("evaluate", "test_logloss"), ("train", "train_logloss")):
        more = f'losses="{source}", loss_keys={{"{source}": "{key}"}}, '
        played = play("quickstart_sklearn", server("FedSoftWorse(T=0.2)", more))
        assert played.changed == {"server_app.py": 2}
        assert not [kind for kind, _ in played.log if kind == "query.loss"]
        first, *others = rows(played)
        np.testing.assert_allclose(first["alpha"], [1 / 3] * 3)  # nothing is known yet
        for row in others:
            assert len(set(row["losses"]["before"])) == 3
            np.testing.assert_array_equal(
                row["alpha"], weights("FedSoftWorse(T=0.2)", row["losses"]["before"], [96] * 3)
            )


def readme() -> dict[str, list[tuple[str, str]]]:
    """The two lines of the README, as they stand there."""
    text = (Path(__file__).parents[2] / "README.md").read_text().split("## Real federations")[1]
    (block,) = re.findall(r"```python\n(.*?)```", text, re.S)
    imported, call = block.split("\n\n")
    call = " ".join(line.split("#")[0].strip() for line in call.splitlines())
    return {"server_app.py": [(IMPORT[0], imported), ("strategy = FedAvg(fraction_train=1.0)", call)]}


def test_the_lines_of_the_readme(play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On quickstart-pytorch, whose clients are unchanged; started again with more rounds, it resumes."""
    (place := tmp_path / "server").mkdir()
    monkeypatch.chdir(place)
    begun, done = (play("quickstart_pytorch", readme(), rounds=rounds) for rounds in (2, 3))
    assert begun.changed == {"server_app.py": 2}
    assert done.rule is not None
    assert done.rule.rounds_done == 2
    assert not [kind for kind, _ in done.log if kind == "query.loss"]
    for row in rows(done)[1:]:
        assert len(set(row["losses"]["before"])) == 3
        assert len(set(row["alpha"])) == 3
    assert {"history.jsonl", "model.safetensors", "curves.png"} <= {p.name for p in (place / "runs" / "live").iterdir()}


def test_an_evaluation_without_a_loss_is_named(play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model of quickstart-numpy has none: not all clients weigh the same in silence."""
    monkeypatch.chdir(tmp_path)
    edits = readme()
    edits["server_app.py"][1] = ("strategy = FedAvg()", edits["server_app.py"][1][1])
    with pytest.raises(RuntimeError, match=r"no metric 'eval_loss' among .*random_metric.*loss_keys="):
        play("quickstart_numpy", edits)


def test_the_loss_of_the_clients_own_evaluation(play: Play) -> None:
    """Two lines on the clients. The losses of the evaluation equal those of the query: the same bytes in one phase."""
    query = client("add_loss_query(app)")
    asked = play("quickstart_pytorch", server("FedSoftWorse(T=0.2)"), query)
    assert asked.changed == {"server_app.py": 2, "client_app.py": 2}
    told = play("quickstart_pytorch", server("FedSoftWorse(T=0.2)", 'losses="evaluate", '), query)
    assert [sum(kind == "query.loss" for kind, _ in played.log) for played in (asked, told)] == [9, 3]
    assert [row["losses"]["before"] for row in rows(told)] == [row["losses"]["before"] for row in rows(asked)]
    assert [a.tobytes() for a in told.arrays] == [a.tobytes() for a in asked.arrays]
    assert rows(asked)[0]["cohort"] == [0, 1, 2]
    for row in rows(told):  # each client's own evaluation
        assert row["tested_clients"] == [0, 1, 2]
        assert row["worst_client_accuracy"] == min(row["client_accuracy"])


def test_mods_of_the_whole_app_do_not_meet_the_queries(play: Play) -> None:
    """They are made for training: LocalDpMod refuses a message without arrays; others read the round."""
    query = client("add_loss_query(app, lambda arrays, context: (context.node_config['partition-id'], 10))")
    played = play("custom_mods", server("FedWorse(k=1)"), query)
    assert played.changed == {"server_app.py": 2, "client_app.py": 2}
    assert [row["alpha"] for row in rows(played)] == [[0, 0, 1]] * 3
    assert played.client.SEEN == [1, 2, 3]
    np.testing.assert_allclose(played.arrays[0], 7 * (1 - 0.5**3))


def test_a_strategy_with_a_start_of_its_own(play: Play) -> None:
    flowers = "from flwr.serverapp.strategy import"
    ours = ("(FedAvg)", "(FedAlpha)")
    imports = (f"{flowers} FedAvg, Result", f"from fedalpha.flower import FedAlpha\n{flowers} Result")
    call = ("CustomFedAvg(fr", 'CustomFedAvg("FedSoftWorse(T=0.2)", fr')
    edits = {"strategy.py": [imports, ours], "server_app.py": [call]}
    played = play("advanced_pytorch", edits, client("add_loss_query(app)"), base="quickstart_pytorch")
    assert played.changed == {"strategy.py": 3, "server_app.py": 1, "client_app.py": 2}
    assert [row["round"] for row in rows(played)] == [1, 2, 3]
    assert played.rule is not None
    assert played.rule.best[1] in (1, 2, 3)  # type: ignore[attr-defined]
    asked = play("quickstart_pytorch", server("FedSoftWorse(T=0.2)"), client("add_loss_query(app)"))
    assert [a.tobytes() for a in played.arrays] == [a.tobytes() for a in asked.arrays]


LEGACY = {
    "client_app.py": [
        ("from flwr.clientapp import", "from fedalpha.flower import loss_query_mod\nfrom flwr.clientapp import"),
        ("ClientApp(client_fn)", "ClientApp(client_fn, mods=[loss_query_mod()])"),
    ]
}


def test_an_app_made_with_a_client_fn(play: Play) -> None:
    """One mod; the losses are those of the client's own ``evaluate``."""
    played = play("legacy_client_fn", server("FedSoftWorse(T=9)"), LEGACY)
    assert played.changed == {"server_app.py": 2, "client_app.py": 2}
    model = np.zeros(7)
    for row in rows(played):
        losses = [float(((model - i) ** 2).sum()) for i in range(3)]
        np.testing.assert_allclose(row["losses"]["before"], losses, rtol=1e-3)
        np.testing.assert_allclose(row["losses"]["train"], losses, rtol=1e-3)
        model = sum(a * (model + i) / 2 for i, a in enumerate(row["alpha"]))
    np.testing.assert_allclose(np.concatenate([a.ravel() for a in played.arrays]), model, rtol=1e-5)
    assert rows(played)[-1]["cohort"] == [0, 1, 2]
    assert {a.dtype for a in played.arrays} == {np.dtype(np.float32)}


def test_a_client_fn_without_the_mod_fails_loudly(play: Play) -> None:
    with pytest.raises(RuntimeError, match=r"no client has trained.*fitins\.parameters.*loss_query_mod"):
        play("legacy_client_fn", server("FedAvg"))
    with pytest.raises(RuntimeError, match=r"no evaluation can be used.*evaluateins\.parameters.*add .*loss_query_mod"):
        play("legacy_client_fn", server("FedSoftWorse(T=0.2)", 'losses="evaluate", '))
