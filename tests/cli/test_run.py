"""The command line as a user calls it: real processes, real folders."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from commands import fedalpha
from fedalpha import __version__

PNG = b"\x89PNG\r\n\x1a\n"

RUN = ("run", "--dataset", "digits", "--partition", "shards(size=30)", "--clients", "10", "--rounds", "3")


def test_a_run_folder_holds_what_it_should(tmp_path: Path) -> None:
    out = tmp_path / "a"
    done = fedalpha(*RUN, "--strategy", "FedSoftWorse(T=0.2)", "--seed", "0", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "round 3/3" in done.stdout
    rows = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == [0, 1, 2, 3]
    assert rows[0]["alpha"] is None
    for row in rows[1:]:
        assert len(row["alpha"]) == len(row["cohort"]) == len(row["losses"]["before"]) == 10
        assert abs(sum(row["alpha"]) - 1) < 1e-12
        assert row["bytes_down"] > 0
        assert row["bytes_up"] > 0
    assert {"round", "accuracy", "loss", "seconds"} <= rows[0].keys()
    config = json.loads((out / "config.json").read_text())
    assert config["strategy"] == "FedSoftWorse(T=0.2)"
    assert "torch" in config["versions"]
    assert (out / "curves.png").read_bytes().startswith(PNG)
    from safetensors.numpy import load_file

    assert load_file(out / "model.safetensors")["output.bias"].shape == (10,)


def test_the_same_command_gives_the_same_bytes_and_config_json_repeats_it(tmp_path: Path) -> None:
    first, second, third = tmp_path / "1", tmp_path / "2", tmp_path / "3"
    fedalpha(*RUN, "--workers", "1", "--out", str(first))
    fedalpha(*RUN, "--workers", "2", "--out", str(second))
    repeated = fedalpha("run", str(first / "config.json"), "--out", str(third))
    assert repeated.returncode == 0, repeated.stderr
    for name in ("model.safetensors", "config.json"):
        assert (first / name).read_bytes() == (second / name).read_bytes() == (third / name).read_bytes()


def test_what_torch_writes_into_the_environment_needs_no_new_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    fedalpha("--version")  # starts the server
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "elsewhere")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a new interpreter"))
    assert fedalpha("--version").stdout.strip() == __version__


def test_a_toml_file_is_overridden_by_options(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(
        'dataset = "digits"\nrounds = 9\nclients = 5\npartition = "iid"\nlr = "exponential(0.1, rate=0.9)"\n'
    )
    out = tmp_path / "out"
    done = fedalpha("run", str(file), "--rounds", "1", "--epochs", "2", "--out", str(out))
    assert done.returncode == 0, done.stderr
    config = json.loads((out / "config.json").read_text())
    assert (config["rounds"], config["clients"]) == (1, 5)
    assert config["update"] == "sgd(lr=exponential(0.1, rate=0.9), batch=16, epochs=2)"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("run", "--strategy", "FedSoftWors"), "did you mean 'FedSoftWorse'"),
        (("run", "--strategy", "FedSoftWorse(t=1)"), "did you mean 'T'"),
        (("run", "--dataset", "digit"), "digits"),
        (("run", "--partition", "shard"), "did you mean 'shards'"),
        (("run", "--partition", "shards(size=500)", "--clients", "50"), "shards"),
        (("run", "--model", "cnn"), "use mlp or softmax"),
        (("run", "--lr", "-1"), "positive"),
        (("run", "--rounds", "-1"), "rounds"),
        (("run", "--update", "fedprx"), "did you mean 'fedprox'"),
        (("run", "--signal", "tests"), "signal"),
        (("run", "--epochs", "2", "--steps", "5"), "epochs and steps exclude each other"),
        (("run", "--epochs", "2", "--update", "sgd(steps=5)"), "give epochs or steps"),
        (("run", "--ratio", "0.1", "--select", "uniform(count=5)"), "exclude each other"),
        (("run", "--quorum", "2.5"), "quorum = 2.5"),
        (("run", "--plugin", "no-such-rules.py"), "no-such-rules.py"),
        (("run", "no-such-file.toml"), "no-such-file.toml"),
        (("compare", "--seeds", "x"), "seeds"),
        (("compare", "--strategy", "FedAvgg"), "did you mean 'FedAvg'"),
    ],
)
def test_wrong_input_ends_with_2_and_a_clear_word(arguments: tuple[str, ...], named: str) -> None:
    done = fedalpha(*arguments)
    assert done.returncode == 2
    assert named in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_that_holds_no_settings_is_named(tmp_path: Path) -> None:
    from fedalpha.runs.reading import read_settings

    script = tmp_path / "train.sh"
    script.write_text("make demo")
    with pytest.raises(ValueError, match=r"train.sh is not valid TOML: .*; texts stand in quotes"):
        read_settings(script, {})
    with pytest.raises(ValueError, match=f"{tmp_path} is a folder; give a file of settings$"):
        read_settings(tmp_path, {})
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match=rf"settings: {tmp_path}/config.json; `fedalpha resume {tmp_path}` resumes"):
        read_settings(tmp_path, {})


def test_an_unknown_setting_in_a_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("round = 3\n")
    done = fedalpha("run", str(file))
    assert done.returncode == 2
    assert "did you mean 'rounds'" in done.stderr
    file.write_text('name = "a"\nstrategies = ["FedAvg"]\n')
    assert "this is a study: fedalpha study FILE runs it" in fedalpha("run", str(file)).stderr


def test_ctrl_c_leaves_a_readable_folder(tmp_path: Path) -> None:
    out = tmp_path / "a"
    command = [sys.executable, "-c", "from fedalpha.cli import main; main()", *RUN[:-1], "100000", "--out", str(out)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a suite in the background ignores it
    )
    history = out / "history.jsonl"
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline and not (history.exists() and history.read_text().count("\n") > 3):
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the workers get it too
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 130
    assert "Traceback" not in errors
    rows = [json.loads(line) for line in history.read_text().splitlines()]
    assert [row["round"] for row in rows] == list(range(len(rows)))
    from fedalpha.analysis.history import read

    assert read(out).model
    assert (out / "curves.png").read_bytes().startswith(PNG)


def test_compare_prints_a_table_and_draws(tmp_path: Path) -> None:
    out = tmp_path / "c"
    done = fedalpha(
        "compare", *RUN[1:], "--strategy", "FedAvg", "--strategy", "FedSoftWorse", "--seeds", "2", "--out", str(out)
    )
    assert done.returncode == 0, done.stderr
    assert "FedSoftWorse(T=0.2)" in done.stdout
    assert "±" in done.stdout
    record = json.loads((out / "comparison.json").read_text())
    assert record["seeds"] == [0, 1]
    last = json.loads((out / "FedAvg-seed1" / "history.jsonl").read_text().splitlines()[-1])
    assert record["table"][0]["accuracy"][1] == last["accuracy"]
    assert (out / "curves.png").read_bytes().startswith(PNG)
    again = fedalpha(
        "compare", *RUN[1:], "--strategy", "FedAvg", "--strategy", "FedSoftWorse", "--seeds", "2", "--out", str(out)
    )
    assert again.returncode == 0, again.stderr
    assert json.loads((out / "comparison.json").read_text()) == record


def test_the_table_of_a_comparison_fits_a_terminal_of_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedalpha import Comparison
    from fedalpha.analysis.history import History
    from fedalpha.cli.compare import _show

    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    rules = "FedAvg", "switch(FedSoftWorse(T=0.2), FedAvg, at=10)"
    ends = {rule: {seed: 0.5 + seed / 10 for seed in range(3)} for rule in rules}
    _show(
        Comparison(
            {rule: {s: History([{"round": 0, "accuracy": a}], {}) for s, a in e.items()} for rule, e in ends.items()}
        )
    )
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in capsys.readouterr().out.splitlines()]
    rows = [line for line in lines if line.startswith("│")]
    assert len(rows) >= 2
    assert all(line.endswith("│") and len(line) <= 80 for line in rows)
    assert "reference" in " ".join(rows)


def test_the_version_and_helpful_help() -> None:
    assert fedalpha("--version").stdout.strip() == __version__
    module = subprocess.run([sys.executable, "-m", "fedalpha", "--version"], capture_output=True, text=True)
    assert module.stdout.strip() == __version__
    shown = " ".join(fedalpha("run", "--help").stdout.split())
    assert "FedSoftWorse(T=0.2)" in shown
    assert "\\[" not in shown


def test_a_folder_in_which_nothing_was_done_is_free_again(tmp_path: Path) -> None:
    out = tmp_path / "a"
    failed = fedalpha(*RUN, "--strategy", "cap(FedAvg, 0.01)", "--out", str(out))
    assert failed.returncode == 2
    assert "below 1/n" in failed.stderr
    assert fedalpha(*RUN, "--out", str(out)).returncode == 0


def test_strategies_are_listed_with_formulas() -> None:
    done = fedalpha("list", "strategies")
    assert done.returncode == 0
    assert "FedSoftWorse(T=0.2, prior=size" in done.stdout
    assert "exp(+x_i/T)" in done.stdout


def test_help_needs_no_torch() -> None:
    script = """
import sys
from fedalpha.cli import app
try:
    app(["--help"])
except SystemExit:
    print("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600)
    assert "compare" in done.stdout
    assert done.stdout.rstrip().endswith("False")


def test_resume_in_a_folder_of_another_kind_says_what_to_do(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from fedalpha.cli import app

    run = tmp_path / "FedAvg-seed0"
    run.mkdir()
    (run / "config.json").write_text("{}")
    found = CliRunner().invoke(app, ["resume", str(tmp_path)])
    assert f"the same `fedalpha compare … --out {tmp_path}` resumes it" in str(found.exception)
    assert f"`fedalpha resume {run}` one of its runs" in str(found.exception)
    (tmp_path / "study.json").write_text("{}")
    assert f"`fedalpha study {tmp_path}` resumes it" in str(
        CliRunner().invoke(app, ["resume", str(tmp_path)]).exception
    )
    several = tmp_path / "several"
    (several / "a").mkdir(parents=True)
    (several / "a" / "config.json").write_text("{}")
    found = CliRunner().invoke(app, ["resume", str(several)])
    assert f"name one of the runs in it: `fedalpha resume {several / 'a'}`" in str(found.exception)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "starts one" in str(CliRunner().invoke(app, ["resume", str(empty)]).exception)
