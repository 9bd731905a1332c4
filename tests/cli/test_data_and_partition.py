from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from fedalpha.cli.data import app
from fedalpha.cli.partition import partition
from fedalpha.data import PARTITIONS, load
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
    parts = PARTITIONS.parse("shards(size=30)").split(load("digits").train_y, 20, generator(3, "partition"))
    assert str(max(len(part) for part in parts)) in result.output


def test_partition_command_raises_what_went_wrong(cli) -> None:
    result = CliRunner().invoke(cli, ["partition", "--partition", "one_label", "--clients", "3"])
    assert isinstance(result.exception, ValueError)
    assert "10 labels" in str(result.exception)


def test_data_commands(cli, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("FEDALPHA_DATA", str(tmp_path))
    listing = CliRunner().invoke(cli, ["data", "list"])
    assert listing.exit_code == 0
    assert all(name in listing.output for name in ("digits", "mnist", "fashion-mnist", "60,000"))
    assert "digits.csv.gz" in CliRunner().invoke(cli, ["data", "get", "digits"]).output
    wrong = CliRunner().invoke(cli, ["data", "get", "minst"])
    assert isinstance(wrong.exception, ValueError)
