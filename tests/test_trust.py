"""Code and clusters that a file names need the user's word."""

from __future__ import annotations

import importlib.util
import json
import os
import py_compile
import subprocess
import sys
from pathlib import Path

import pytest

from fedalpha import trust
from fedalpha.plugins import load_plugin
from fedalpha.runs.reading import read_settings
from fedalpha.study import read_study
from fedalpha.trust import UntrustedError


@pytest.fixture(autouse=True)
def nothing_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who has allowed nothing yet."""
    monkeypatch.setenv("FEDALPHA_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(trust, "_allowed", set())


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    """A plugin that leaves a trace when it is run."""
    file = tmp_path / "evil.py"
    file.write_text(f"import pathlib\npathlib.Path({str(tmp_path / 'ran')!r}).touch()\n# {tmp_path}\n")
    return file


def ran(evil: Path) -> bool:
    return evil.with_name("ran").exists()


@pytest.mark.parametrize("ending", ["json", "toml"])
def test_a_plugin_in_a_settings_file_is_not_run_unasked(evil: Path, ending: str) -> None:
    file = evil.with_name(f"config.{ending}")
    file.write_text(json.dumps({"plugin": str(evil)}) if ending == "json" else f"plugin = {str(evil)!r}\n")
    with pytest.raises(UntrustedError, match=r"asks to run .*evil.py \(3 lines of Python.*--trust.*--plugin .*evil.py"):
        read_settings(file, {})
    assert not ran(evil)
    read_settings(file, {}, trust=True)
    assert ran(evil)


@pytest.mark.parametrize(
    "where", ["[settings]\nplugin = {}\n", "[grid]\nplugin = [{}]\n", "[[cases]]\nname = 'x'\nplugin = {}\n"]
)
def test_a_plugin_in_a_study_is_not_run_unasked(evil: Path, where: str) -> None:
    file = evil.with_name("study.toml")
    file.write_text('name = "x"\nstrategies = ["FedAvg"]\nseeds = 1\n' + where.format(repr(str(evil))))
    for place in (file, file.parent):
        with pytest.raises(UntrustedError, match=r"asks to run .*evil.py"):
            read_study(place)
    assert not ran(evil)
    read_study(file, trust=True)
    assert ran(evil)


def test_a_yes_is_remembered_for_this_content_alone(evil: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = evil.with_name("config.json")
    file.write_text(json.dumps({"plugin": str(evil)}))
    read_settings(file, {}, trust=True)
    monkeypatch.setattr(trust, "_allowed", set())  # as in another process
    read_settings(file, {})
    evil.with_name("other.py").write_text(evil.read_text() + "# other\n")
    file.write_text(json.dumps({"plugin": str(evil.with_name("other.py"))}))
    with pytest.raises(UntrustedError):
        read_settings(file, {})
    assert oct(trust.trusted_file().parent.stat().st_mode)[-3:] == "700"


def test_a_plugin_that_the_user_names_is_the_users_word_for_resuming_too(
    evil: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = evil.with_name("config.json")
    file.write_text("{}")
    named = read_settings(file, {"plugin": str(evil)}).plugin
    monkeypatch.setattr(trust, "_allowed", set())
    file.write_text(json.dumps({"plugin": named}))
    read_settings(file, {})


def test_compiled_code_beside_a_plugin_is_not_run(tmp_path: Path) -> None:
    """The hash that the user allowed is that of the source; Python would run a ``.pyc`` that claims to be as old."""
    plugin = tmp_path / "rules.py"
    plugin.write_text(f"open({str(tmp_path / 'evil')!r}, 'w')\n")
    cached = importlib.util.cache_from_source(str(plugin))
    py_compile.compile(str(plugin), cached)
    stamp = plugin.stat()
    plugin.write_text("#" * (stamp.st_size - 1) + "\n")
    os.utime(plugin, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    load_plugin(str(plugin))
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    "given", [{"engine": "ray", "ray_address": "evil:6379"}, {"engine": "ray(address='evil:6379')"}]
)
def test_a_cluster_in_a_file_is_not_joined_unasked(tmp_path: Path, given: dict[str, str]) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(given))
    with pytest.raises(UntrustedError, match=r"asks to join the Ray cluster at evil:6379.*--trust.*--ray-address"):
        read_settings(file, {})
    study = tmp_path / "study.toml"
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in given.items())
    study.write_text('name = "x"\nstrategies = ["FedAvg"]\nseeds = 1\n[settings]\n' + lines)
    with pytest.raises(UntrustedError, match="Ray cluster at evil:6379"):
        read_study(study)
    assert read_settings(file, {"ray_address": "evil:6379", "engine": "ray"}).ray_address == "evil:6379"
    assert read_settings(file, {}).place().address == "evil:6379"  # type: ignore[attr-defined]


def test_the_command_line_asks(evil: Path) -> None:
    """``resume`` of a folder that somebody else made: refused before anything is run."""
    folder = evil.with_name("given")
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"plugin": str(evil), "rounds": 1}))
    command = [sys.executable, "-m", "fedalpha", "resume", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert "asks to run" in done.stderr
    assert not ran(evil)
