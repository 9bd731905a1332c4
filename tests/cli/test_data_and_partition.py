from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

from commands import fedalpha
from fedalpha.cli.data import app
from fedalpha.cli.partition import partition
from fedalpha.data import PARTITIONS
from fedalpha.data.sets.digits import digits
from fedalpha.rng import generator


@pytest.fixture
def cli() -> typer.Typer:
    main = typer.Typer()
    main.add_typer(app, name="data")
    main.command()(partition)
    return main


def test_partition_command_shows_what_a_run_will_use(cli, tmp_path) -> None:
    plot = tmp_path / "who.png"
    arguments = ["partition", "--partition", "shards(size=30)", "--clients", "20", "--seed", "3", "--plot", str(plot)]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    assert plot.exists()
    parts = PARTITIONS.parse("shards(size=30)").split(digits().load().train_y, 20, generator(3, "partition"))
    assert str(max(len(part) for part in parts)) in result.output


def test_partition_command_raises_what_went_wrong(cli) -> None:
    result = CliRunner().invoke(cli, ["partition", "--partition", "one_label", "--clients", "3"])
    assert isinstance(result.exception, ValueError)
    assert "10 labels" in str(result.exception)


def test_data_commands(cli, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("FEDALPHA_DATA", str(tmp_path))
    listing = CliRunner().invoke(cli, ["data", "list"])
    assert listing.exit_code == 0
    assert all(name in listing.output for name in ("digits", "mnist", "fashion-mnist", "synthetic", "60,000"))
    assert "digits.csv.gz" in CliRunner().invoke(cli, ["data", "get", "digits"]).output
    assert "nothing to fetch" in CliRunner().invoke(cli, ["data", "get", "synthetic(a=1, b=1)"]).output
    wrong = CliRunner().invoke(cli, ["data", "get", "minst"])
    assert isinstance(wrong.exception, ValueError)


def test_a_natural_data_set_shows_its_own_clients(cli) -> None:
    result = CliRunner().invoke(cli, ["partition", "--dataset", "synthetic(a=0, b=0)", "--clients", "4"])
    assert result.exit_code == 0, result.output
    assert "4 clients" in result.output
    assert "clients as given" in result.output


def test_a_data_set_of_a_plugin_works_in_every_command(tmp_path) -> None:
    plugin = tmp_path / "waves.py"
    plugin.write_text(
        '''"""A data set of one's own."""
import numpy as np
from fedalpha.data import DATASETS, Partitioned, Samples


@DATASETS.register()
class waves(Partitioned):
    """Sums of two waves."""

    shape = (8,)
    class_names = ("slow", "fast")
    samples = (80, 20)
    model = "softmax"

    def load(self) -> Samples:
        y = np.arange(100) % 2
        x = np.sin((1 + y)[:, None] * np.arange(8) + np.arange(100)[:, None])
        return Samples(x[:80], y[:80], x[80:], y[80:])
'''
    )

    def said(*arguments: str) -> str:
        done = fedalpha(*arguments, "--plugin", str(plugin))
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "waves" in said("data", "list")
    assert "nothing to fetch" in said("data", "get", "waves")
    shown = said("partition", "--dataset", "waves", "--partition", "iid", "--clients", "3")
    assert "3 clients, 80 samples" in shown
    out = tmp_path / "run"
    options = ("--partition", "iid", "--clients", "3", "--rounds", "1", "--workers", "1", "--out", str(out))
    said("run", "--dataset", "waves", *options)
    assert json.loads((out / "config.json").read_text())["model"] == "softmax"
