"""Code and clusters that a file names need the user's word."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import py_compile
import subprocess
import sys
from pathlib import Path

import pytest

from fedalpha import trust
from fedalpha.fast.compiled import numba_version
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


SECRET = "client,seconds\n0,31337\n"


def files_that_name(text: str) -> dict[str, str]:
    """Settings and studies whose clock, or availability, is this text, by the name of the file."""
    study = 'name = "x"\nstrategies = ["FedAvg", "FedWorse"]\nseeds = 1\n'
    value = json.dumps(text)
    own, more = f"clock = {value}\n", "clients = 4\nrounds = 1\nmodel = 'softmax'\n"
    return {
        "config.json": json.dumps({"clock": text}),
        "settings.toml": f"clock = {value}\n",
        "here.toml": f'availability = {value}\nclock = "constant"\n',
        "settings/study.toml": f"{study}[settings]\n{more}clock = {value}\n",
        "grid/study.toml": f"{study}[settings]\n{more}[grid]\nclock = [{value}]\n",
        "cases/study.toml": f"{study}[settings]\n{more}[[cases]]\nname = 'c'\nclock = {value}\n",
        "methods/study.toml": f"{study}[settings]\n{more}[[methods]]\nname = 'm'\nclock = {value}\n",
        "searched/study.toml": f"{study}[tune]\nbudget = 64\n[[methods]]\nname = 'm'\nclock = {value}\n",
        "space/study.toml": f'{study}[tune]\nbudget = 64\n[tune.space]\nclock = ["constant", {value}]\n',
        "protocols/study.toml": f"{study}protocol = 'printed'\n[settings]\n{more}[protocols.printed]\n{own}",
    }


@pytest.mark.parametrize("name", files_that_name(""))
@pytest.mark.parametrize("form", ["trace({!r})", "rare(trace({!r}))", "trace(choice({!r}, 'b'))"])
def test_a_file_that_a_file_names_is_not_read_unasked(tmp_path: Path, name: str, form: str) -> None:
    """Its numbers and its SHA-256 would come back in rows, errors and ``config.json``."""
    victim = tmp_path / "secret.csv"
    victim.write_text(SECRET)
    if name == "here.toml" and form.startswith("rare"):
        pytest.skip("a rule of clocks")
    if "choice" in form and "searched" not in name:
        pytest.skip("only a search has choices")
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(files_that_name(form.format(str(victim)))[name])
    read = read_study if name.endswith("study.toml") else lambda path: read_settings(path, {})
    with pytest.raises(UntrustedError, match=r"asks to read .*secret.csv as its .*--trust.*name it yourself") as error:
        read(file)
    assert "31337" not in str(error.value)
    assert not trust.trusted_file().exists()


def test_a_file_of_times_that_the_user_names_is_read_and_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim, file = tmp_path / "speeds.csv", tmp_path / "config.json"
    victim.write_text(SECRET)
    text = f"trace({str(victim)!r})"
    file.write_text(json.dumps({"clock": text}))
    named = read_settings(file, {"clock": text}).clock  # the option replaces what the file says
    monkeypatch.setattr(trust, "_allowed", set())  # as in another process
    file.write_text(json.dumps({"clock": named}))
    assert read_settings(file, {}).clock == named
    other = tmp_path / "other.csv"
    other.write_text(SECRET)
    file.write_text(json.dumps({"clock": f"trace({str(other)!r})"}))
    with pytest.raises(UntrustedError):
        read_settings(file, {})
    assert read_settings(file, {}, trust=True).clock is not None


def test_the_link_to_a_file_of_times_is_shown_as_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "speeds.csv").symlink_to(tmp_path / "secret")
    (tmp_path / "config.json").write_text(json.dumps({"clock": f"trace({str(tmp_path / 'speeds.csv')!r})"}))
    with pytest.raises(UntrustedError, match=r"asks to read .*/secret as its clock"):
        read_settings(tmp_path / "config.json", {})


@pytest.mark.parametrize("separator", ["\u2028", "\x0b", "\x1d", "\x85", "\r"])
def test_a_yes_to_one_thing_is_no_yes_to_what_its_name_holds(
    evil: Path, monkeypatch: pytest.MonkeyPatch, separator: str
) -> None:
    """The consent to a logger, whose text has a line separator in it, stood in the file as two lines."""
    digest = hashlib.sha256(evil.read_bytes()).hexdigest()
    trust.need("log", f"csv('x{separator}plugin {digest}{separator}')", "log", "name it")
    monkeypatch.setattr(trust, "_allowed", set())
    (evil.parent / "config.json").write_text(json.dumps({"plugin": str(evil)}))
    with pytest.raises(UntrustedError):
        read_settings(evil.parent / "config.json", {})
    assert not ran(evil)


def test_a_plugin_that_is_no_python_file_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some files of /proc never end, or lose what is read."""
    (tmp_path / "kmsg").write_text("x")
    monkeypatch.setattr(Path, "open", None)
    with pytest.raises(ValueError, match="is not a Python file"):
        load_plugin(str(tmp_path / "kmsg"))


def test_numba_and_matplotlib_take_no_settings_from_the_working_directory(tmp_path: Path) -> None:
    """Settings of numba can name a folder of compiled functions, which are pickles: they run any code when loaded."""
    if numba_version() is None:
        pytest.skip("numba is not used here")
    pytest.importorskip("yaml")
    (tmp_path / ".numba_config.yaml").write_text(f"cache_dir: {tmp_path / 'cache'}\n")
    (tmp_path / "matplotlibrc").write_text("figure.dpi: 33\n")
    script = """if True:
        import os
        from fedalpha import cli
        from fedalpha.fast.compiled import numba_version

        def app():
            import matplotlib
            print(matplotlib.rcParams["figure.dpi"])

        before = os.path.exists
        cli.app = app
        cli.main()
        assert numba_version()  # workers of Ray come by this way only
        assert os.path.exists is before
        import fedalpha.fast.kernels
        from numba import config

        config.reload_config()  # as whenever something is compiled
        print(repr(config.CACHE_DIR), fedalpha.fast.kernels.accumulate.stats.cache_path)
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "MPL", "MATPLOTLIB"))}
    env |= {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    dpi, cache = done.stdout.splitlines()
    assert float(dpi) != 33
    assert cache.startswith("'' ")
    assert str(tmp_path) not in cache
    assert not (tmp_path / "cache").exists()
