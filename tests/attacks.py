"""Attacks on a user of fedalpha, played on any commit: ``python tests/attacks.py 87cd105 HEAD --out FOLDER``.

Each attack makes a folder or a file as somebody else could, runs the command line of that commit on it, and looks
whether it reached what it was after. The table (docs/attacks.md) names the test that guards against it. Only the
command line is used, so the same attacks run on commits whose code is arranged differently.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GIB = 2**30
MOST_MEMORY = 6 * GIB
"""What a command may take here, so that an attack on memory does not end the machine."""
TOO_MUCH = 1.5 * GIB
EVIL = "=HYPERLINK(0)\x1b]52;c;cm0=\x07 <script>alert(1)</script>"


@dataclass(frozen=True)
class Done:
    """A command that ended; ``seconds`` are processor time."""

    code: int
    out: str
    seconds: float
    memory: float

    @property
    def last(self) -> str:
        """Its last line, without the names of temporary folders."""
        lines = [line for line in self.out.strip().splitlines() if line.strip()]
        found = re.sub(
            r"(/[\w.\-/]*)?/fedalpha-attacks-[\w.\-/]*?([\w.²\-]+)(?=[\s:;,)']|$)", r"\2", (lines or [""])[-1]
        )
        return found.encode("ascii", "backslashreplace").decode()

    @property
    def traceback(self) -> bool:
        return "Traceback" in self.out


@dataclass(frozen=True)
class Box:
    """A scratch folder, the tree that is attacked, and folders that it has made."""

    tree: Path
    place: Path
    run: Path
    study: Path

    def fedalpha(self, *command: object, most_seconds: float = 240) -> Done:
        return _fedalpha(self.tree, self.place, *command, most_seconds=most_seconds)

    def given(self, which: Path) -> Path:
        """A copy of a folder, as somebody else would send it."""
        return Path(shutil.copytree(which, self.place / "given", symlinks=True))

    def victim(self, name: str = "precious") -> Path:
        file = self.place / "elsewhere" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("mine")
        return file


def _fedalpha(tree: Path, place: Path, *command: object, most_seconds: float = 240) -> Done:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))

    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "RAY_ADDRESS")}
    env |= {"PYTHONPATH": str(tree / "src"), "FEDALPHA_STATE": str(place / "state"), "HOME": str(place / "home")}
    (place / "home").mkdir(exist_ok=True)
    words = [sys.executable, "-m", "fedalpha", *map(str, command)]
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(words, stdout=out, stderr=out, cwd=place, env=env, preexec_fn=limit)
        stop = threading.Timer(most_seconds, process.kill)
        stop.start()
        _, status, used = os.wait4(process.pid, 0)
        stop.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read().decode(errors="replace")
    return Done(process.returncode, text, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


@dataclass(frozen=True)
class Attack:
    """``play`` returns what the attack reached, or nothing, and the command that was attacked."""

    title: str
    test: str
    play: Callable[[Box], tuple[str, Done]]


ATTACKS: list[Attack] = []
RUNS, STUDIES, STORE = "runs/test_hostile.py::test_", "study/test_hostile.py::test_", "store/test_inside.py::test_"
TUNING, TRUST = "study/tuning/test_hostile.py::test_", "test_trust.py::test_"


def attack(title: str, test: str) -> Callable[[Callable[[Box], tuple[str, Done]]], Callable[[Box], tuple[str, Done]]]:
    """Register an attack with the test that fails if it succeeds again."""

    def add(play: Callable[[Box], tuple[str, Done]]) -> Callable[[Box], tuple[str, Done]]:
        ATTACKS.append(Attack(title, test, play))
        return play

    return add


# Links


@attack(
    "`figures` of a study is a link; `report`",
    STUDIES + "figures_that_are_a_link_are_refused_and_nothing_is_deleted",
)
def figures(box: Box) -> tuple[str, Done]:
    victim, given = box.victim("precious.png"), box.given(box.study)
    shutil.rmtree(given / "figures", ignore_errors=True)
    (given / "figures").symlink_to(victim.parent)
    done = box.fedalpha("report", given)
    written = len(list(victim.parent.iterdir()))
    return (f"a file elsewhere was deleted, {written} were written there" if not victim.exists() else ""), done


@attack("`lock` of a run is a link; `resume`", RUNS + "links_in_a_run_folder_are_refused[lock]")
def lock(box: Box) -> tuple[str, Done]:
    victim, given = box.victim(), _unfinished(box)
    (given / "lock").unlink(missing_ok=True)
    (given / "lock").symlink_to(victim)
    done = box.fedalpha("resume", given)
    return ("a file elsewhere was truncated" if victim.read_text() != "mine" else ""), done


@attack(
    "`checkpoint` of a run is a link; `resume`",
    RUNS + "links_in_a_run_folder_are_refused[checkpoint]",
)
def checkpoint(box: Box) -> tuple[str, Done]:
    victim, given = box.victim("mine.safetensors"), _unfinished(box)
    shutil.rmtree(given / "checkpoint")
    (given / "checkpoint").symlink_to(victim.parent)
    done = box.fedalpha("resume", given)
    return ("a file elsewhere was deleted" if not victim.exists() else ""), done


@attack(
    "`history.jsonl.tmp` of a run is a link to `~/.bashrc`; `resume`",
    STORE + "temporary_names_cannot_be_prepared",
)
def temporary(box: Box) -> tuple[str, Done]:
    victim, given = box.victim(".bashrc"), _unfinished(box)
    for name in ("history.jsonl.tmp", "config.json.tmp", "model.safetensors.tmp"):
        (given / name).symlink_to(victim)
    done = box.fedalpha("resume", given)
    return ("`~/.bashrc` was overwritten with what the folder holds" if victim.read_bytes() != b"mine" else ""), done


# Code and clusters that a file names


@attack("`plugin` in a `config.json`; `resume`", TRUST + "the_command_line_asks")
def plugin_in_a_run(box: Box) -> tuple[str, Done]:
    given = box.given(box.run)
    (given / "config.json").write_text(json.dumps({"plugin": str(_plugin(box)), "rounds": 1}))
    return _ran(box, box.fedalpha("resume", given))


@attack("`plugin` in a settings file; `run FILE`", TRUST + "a_plugin_in_a_settings_file_is_not_run_unasked")
def plugin_in_settings(box: Box) -> tuple[str, Done]:
    (box.place / "given.toml").write_text(f"plugin = {str(_plugin(box))!r}\nrounds = 1\n")
    return _ran(box, box.fedalpha("run", box.place / "given.toml"))


@attack("`plugin` in a study file; `study FILE`", TRUST + "a_plugin_in_a_study_is_not_run_unasked")
def plugin_in_a_study(box: Box) -> tuple[str, Done]:
    _study_file(box, f"plugin = {str(_plugin(box))!r}\n")
    return _ran(box, box.fedalpha("study", box.place / "given.toml", "--out", box.place / "out"))


@attack("`ray_address` in a `config.json`; `resume`", TRUST + "a_cluster_in_a_file_is_not_joined_unasked")
def cluster(box: Box) -> tuple[str, Done]:
    given = _unfinished(box)
    with socket.create_server(("127.0.0.1", 0)) as server:
        config = json.loads((given / "config.json").read_text())
        config |= {"engine": "ray", "ray_address": f"127.0.0.1:{server.getsockname()[1]}"}
        (given / "config.json").write_text(json.dumps(config))
        server.settimeout(0.1)
        done = box.fedalpha("resume", given, most_seconds=90)
        with contextlib.suppress(TimeoutError):
            server.accept()
            return "a stranger's address was connected to", done
    return "", done


@attack("`--engine ray` without an address", "engine/test_loopback.py")
def ray(box: Box) -> tuple[str, Done]:
    return _listening(box, "ray")


@attack("`--engine flower`", "engine/test_loopback.py")
def flower(box: Box) -> tuple[str, Done]:
    return _listening(box, "flower")


# Files that a file names


def _spies(title: str, where: str) -> None:
    @attack(f"`trace('file')` as the clock, {title}", TRUST + "a_file_that_a_file_names_is_not_read_unasked")
    def spies(box: Box) -> tuple[str, Done]:
        victim = box.victim("speeds.csv")
        victim.write_text("client,seconds\n" + "".join(f"{i},31337.5\n" for i in range(4)))
        value = json.dumps(f"trace({str(victim)!r})")
        out, given = box.place / "out", box.place / "given.toml"
        if where == "config.json":
            given = _unfinished(box)
            config = json.loads((given / "config.json").read_text())
            (given / "config.json").write_text(json.dumps(config | {"clock": json.loads(value)}))
            done = box.fedalpha("resume", given)
        elif where == "settings":
            given.write_text(f"clients = 4\nmodel = 'softmax'\nrounds = 1\nclock = {value}\n")
            done = box.fedalpha("run", given, "--out", out, "--workers", 1)
        elif where == "study":
            _study_file(box, f"clock = {value}\n")
            done = box.fedalpha("study", given, "--out", out, "--jobs", 1)
        else:
            _study_file(box, "partition = 'iid'\n", seeds="2")
            more = f"[tune]\nbudget = 8\n[[methods]]\nname = 'm'\nclock = {value}\n"
            given.write_text(given.read_text() + more)
            done = box.fedalpha("tune", given, "--out", out, "--jobs", 1)
        digest = hashlib.sha256(victim.read_bytes()).hexdigest()
        kept = done.out + "".join(_text(file) for file in out.rglob("*.json*"))
        found = ["its numbers are in the rows"] * ("31337.5" in kept)
        found += ["its SHA-256 is in the output or the folder"] * (digest in kept)
        return " and ".join(found), done


_spies("in a `config.json`; `resume`", "config.json")
_spies("in a settings file; `run FILE`", "settings")
_spies("in a study file; `study FILE`", "study")
_spies("of a method in a study that tunes; `tune FILE`", "tune")


@attack(
    "`trace('file')` of a file that is no table; `run FILE`",
    "clock/test_speeds.py::test_a_bad_trace_is_refused_without_repeating_it",
)
def header(box: Box) -> tuple[str, Done]:
    victim = box.victim("secret")
    victim.write_text("client,hunter2\n0,1\n")
    (box.place / "given.toml").write_text(f'clock = "trace({str(victim)!r})"\n')
    done = box.fedalpha("run", box.place / "given.toml")
    return ("words of it are in the error" if "hunter2" in done.out else ""), done


@attack(
    "consent to a logger whose text contains a line separator; `run FILE`",
    TRUST + "a_yes_to_one_thing_is_no_yes_to_what_its_name_holds",
)
def second_line(box: Box) -> tuple[str, Done]:
    plugin = _plugin(box)
    digest = hashlib.sha256(plugin.read_bytes()).hexdigest()
    small = "clients = 2\nmodel = 'softmax'\nrounds = 0\n"
    logger = json.dumps(f"jsonlog('x\u2028plugin {digest}\u2028')")
    (box.place / "given.toml").write_text(f"{small}log = [{logger}]\n")
    box.fedalpha("run", box.place / "given.toml", "--trust")
    (box.place / "given.toml").write_text(f"{small}plugin = {str(plugin)!r}\n")
    return _ran(box, box.fedalpha("run", box.place / "given.toml"))


@attack(
    "`.numba_config.yaml` in the working directory names a folder of compiled functions; `run`",
    TRUST + "numba_and_matplotlib_take_no_settings_from_the_working_directory",
)
def compiled(box: Box) -> tuple[str, Done]:
    plugin, cache = _plugin(box), box.place / "cache"
    (box.place / ".numba_config.yaml").write_text(f"cache_dir: {cache}\n")
    script = """if True:
        import importlib, pathlib, pickle, sys
        from numba.core.caching import UserProvidedCacheLocator as Locator

        class Evil:
            def __reduce__(self):
                return exec, (open(sys.argv[2]).read(),)

        module = importlib.import_module(sys.argv[3])
        folder = pathlib.Path(sys.argv[1]) / Locator.get_suitable_cache_subpath(module.__file__)
        folder.mkdir(parents=True)
        for function in vars(module).values():
            if hasattr(file := getattr(getattr(function, "_cache", None), "_cache_file", None), "_index_name"):
                (folder / file._index_name).write_bytes(pickle.dumps(Evil()))
    """
    name = "fast.kernels" if (box.tree / "src/fedalpha/fast/kernels.py").exists() else "kernels"
    words = [sys.executable, "-c", script, str(cache), str(plugin), f"fedalpha.{name}"]
    env = {**os.environ, "PYTHONPATH": str(box.tree / "src")}
    subprocess.run(words, check=True, cwd=box.tree, env=env)
    return _ran(box, box.fedalpha("run", "--model", "mlp(2000)", "--rounds", 1, "--clients", 4, "--workers", 1))


@attack(
    "a run of a comparison is a link; `report`",
    "report/test_compared.py::test_the_folder_of_a_run_that_is_a_link_is_not_read",
)
def linked_run(box: Box) -> tuple[str, Done]:
    given = box.place / "given"
    given.mkdir()
    record = {"strategies": ["FedAvg"], "seeds": [0], "target": 0.6}
    (given / "comparison.json").write_text(json.dumps(record))
    (given / "FedAvg-seed0").symlink_to(box.run)
    done = box.fedalpha("report", given)
    return ("a run elsewhere is read and shown" if (given / "report.html").exists() else ""), done


# Time and memory


@attack("16 nested `cap`, `steady` and `per_step`; `run FILE`", "strategies/test_nesting.py")
def nested(box: Box) -> tuple[str, Done]:
    text = "FedAvg"
    for i in range(16):
        text = ("cap({}, 0.5)", "steady({}, 0.5)", "per_step({})")[i % 3].format(text)
    (box.place / "given.toml").write_text(f'strategy = "{text}"\nrounds = 0\nclients = 4\nmodel = "softmax"\n')
    done = box.fedalpha("run", box.place / "given.toml", most_seconds=600)
    least = "at least " * (done.code < 0)  # it was ended
    return (f"{least}{done.seconds:.0f} s of processor time before the first round" if done.seconds > 20 else ""), done


@attack(
    "a checkpoint of some megabytes whose rows decompress to gigabytes; `resume`",
    RUNS + "a_small_checkpoint_cannot_take_all_memory",
)
def checkpoint_bomb(box: Box) -> tuple[str, Done]:
    given = _unfinished(box)
    row = zlib.compress(b'{"round": 0, "x": [' + b"0," * 120_000_000 + b"0]}", 9)
    _forge(given / "checkpoint", '{"map": []}', [row])
    return _memory(box.fedalpha("resume", given))


@attack(
    "a Parquet cell of some kilobytes that decompresses to gigabytes; `report`",
    STUDIES + "a_small_file_of_cells_cannot_take_all_memory",
)
def parquet_bomb(box: Box) -> tuple[str, Done]:
    import numpy as np
    import pyarrow
    from pyarrow import parquet

    given = box.given(box.study)
    key = json.loads((given / "study.json").read_text())["cells"][0]["cell"]
    packed = given / "cells.parquet"
    file = packed if packed.exists() else given / "cells" / f"{key}.parquet"
    known = parquet.read_table(file)
    size = 150_000_000
    columns = {}
    for name in known.column_names:
        kind = known.schema.field(name).type
        if pyarrow.types.is_integer(kind):
            columns[name] = pyarrow.array(np.zeros(size, np.int64))
        elif name == "cell":
            columns[name] = pyarrow.DictionaryArray.from_arrays(np.zeros(size, np.int8), [key])
    table = pyarrow.table(columns).replace_schema_metadata(known.schema.metadata)
    parquet.write_table(table, file, compression="zstd")
    del table, columns
    return _memory(box.fedalpha("report", given))


@attack(
    "a Parquet cell of some kilobytes with gigabytes in one row; `report`",
    STUDIES + "one_row_of_a_small_file_cannot_take_all_memory",
)
def parquet_row(box: Box) -> tuple[str, Done]:
    given = box.given(box.study)
    key = json.loads((given / "study.json").read_text())["cells"][0]["cell"]
    packed = given / "cells.parquet"
    file = packed if packed.exists() else given / "cells" / f"{key}.parquet"
    script = """if True:  # in a process of its own: what this one takes would count as taken by the command
        import sys

        import numpy as np
        import pyarrow
        from pyarrow import parquet

        known, size = parquet.read_schema(sys.argv[1]), 300_000_000
        alpha = pyarrow.ListArray.from_arrays(pyarrow.array([0, size], pyarrow.int32()), np.zeros(size, np.float32))
        columns = {"cell": [sys.argv[2]], "round": pyarrow.array([0], pyarrow.int32()), "alpha": alpha, "about": ["{}"]}
        table = pyarrow.table(columns).replace_schema_metadata(known.metadata)
        parquet.write_table(table, sys.argv[1], compression="zstd")
    """
    subprocess.run([sys.executable, "-c", script, str(file), key], check=True)
    return _memory(box.fedalpha("report", given))


@attack(
    "a grid of 10¹² cases in a `study.json`; `status`",
    STUDIES + "a_stored_grid_is_counted_before_it_is_made",
)
def stored_grid(box: Box) -> tuple[str, Done]:
    given = box.given(box.study)
    plan = json.loads((given / "study.json").read_text())
    plan["study"]["grid"] = {
        key: list(range(1, 100)) for key in ("lr", "epochs", "batch", "liars", "rounds", "clients")
    }
    (given / "study.json").write_text(json.dumps(plan))
    return _memory(box.fedalpha("status", given, most_seconds=60))


@attack(
    "a key of 50,000 parts in a settings file; `run FILE`",
    RUNS + "keys_of_many_parts_are_refused",
)
def parts(box: Box) -> tuple[str, Done]:
    (box.place / "given.toml").write_text("a." * 50_000 + "b = 1\n")
    return _memory(box.fedalpha("run", box.place / "given.toml", most_seconds=60))


@attack(
    '`seeds = "0-9999999999"` in a study file',
    STUDIES + "seeds_and_grids_are_counted_before_they_are_made",
)
def seeds(box: Box) -> tuple[str, Done]:
    _study_file(box, "", seeds='"0-9999999999"')
    return _memory(box.fedalpha("study", box.place / "given.toml", "--out", box.place / "out", most_seconds=120))


# Texts


@attack(
    "`=HYPERLINK(…)` as the name of a case; `report`",
    STUDIES + "names_are_cleaned_for_terminals_tables_and_pages",
)
def formula(box: Box) -> tuple[str, Done]:
    given = box.given(box.study)
    done = box.fedalpha("report", given)
    raw = [
        name for name in ("rounds.csv", "statistics.csv") if re.search(r'(^|,)"?=HYPERLINK', _text(given / name), re.M)
    ]
    return (f"a formula in {', '.join(raw)}" if raw else ""), done


@attack(
    "an escape sequence as the name of a case; `study`",
    STUDIES + "names_are_cleaned_for_terminals_tables_and_pages",
)
def escape(box: Box) -> tuple[str, Done]:
    done = box.fedalpha("study", box.given(box.study))
    return ("the sequence reaches the terminal: it fills the clipboard" if "\x1b]52" in done.out else ""), done


@attack(
    "`<script>` in the note of a study; `report`",
    STUDIES + "names_are_cleaned_for_terminals_tables_and_pages",
)
def script(box: Box) -> tuple[str, Done]:
    given = box.given(box.study)
    done = box.fedalpha("report", given)
    return ("it stands raw in report.md" if "<script>" in _text(given / "report.md") else ""), done


@attack(
    "a picture elsewhere in the title of a study; `report`",
    STUDIES + "names_are_cleaned_for_terminals_tables_and_pages",
)
def picture(box: Box) -> tuple[str, Done]:
    given = box.given(box.study)
    plan = json.loads((given / "study.json").read_text())
    plan["study"]["title"] = "![x](http://example.org/x.png)"
    (given / "study.json").write_text(json.dumps(plan))
    done = box.fedalpha("report", given)
    return ("report.md loads it" if "](http" in _text(given / "report.md") else ""), done


@attack(
    "a model of a dtype that torch does not have; `report` of a comparison",
    RUNS + "a_model_of_a_dtype_that_torch_lacks_is_damaged",
)
def dtype(box: Box) -> tuple[str, Done]:
    given = box.place / "given"
    given.mkdir()
    (given / "comparison.json").write_text(json.dumps({"strategies": ["FedAvg"], "seeds": [0], "target": 0.6}))
    header = json.dumps({"a": {"dtype": "F4", "shape": [2], "data_offsets": [0, 1]}}).encode()
    shutil.copytree(box.run, given / "FedAvg-seed0")
    model = given / "FedAvg-seed0" / "model.safetensors"
    model.write_bytes(len(header).to_bytes(8, "little") + header + b"\0")
    done = box.fedalpha("report", given)
    return ("a traceback" if done.traceback else ""), done


@attack("a setting of 10 MB; `run FILE`", RUNS + "errors_are_short")
def long_text(box: Box) -> tuple[str, Done]:
    (box.place / "given.json").write_text(json.dumps({"strategy": "x" * 10**7}))
    done = box.fedalpha("run", box.place / "given.json")
    return (f"the error has {len(done.out) / 1e6:.0f} MB" if len(done.out) > 10_000 else ""), done


@attack("an escape sequence in the name of a folder; `run`", "test_terminal.py")
def folder_name(box: Box) -> tuple[str, Done]:
    small = ("--rounds", 1, "--clients", 2, "--model", "softmax", "--workers", 1)
    done = box.fedalpha("run", *small, "--out", box.place / "a\x1b]52;c;cm0=\x07")
    return ("the sequence reaches the terminal" if "\x1b]52" in done.out else ""), done


@attack(
    "a line feed in the name of a folder; `run`", "test_terminal.py::test_a_path_with_control_characters_is_refused"
)
def line_feed(box: Box) -> tuple[str, Done]:
    small = ("--rounds", 1, "--clients", 2, "--model", "softmax", "--workers", 1)
    done = box.fedalpha("run", *small, "--out", box.place / "a\nfedalpha: all is well")
    return ("it prints a line that looks like ours" if "\nfedalpha: all" in done.out else ""), done


# Forged folders


def _forged(kind: str, tree: str, rows: list[bytes]) -> None:
    @attack(
        f"a checkpoint with valid checksums: {kind}; `resume`",
        RUNS + "a_forged_checkpoint_falls_back",
    )
    def forged(box: Box) -> tuple[str, Done]:
        given = _unfinished(box)
        _forge(given / "checkpoint", tree, rows)
        return _failed(box.fedalpha("resume", given))


_ROWS = [zlib.compress(json.dumps({"round": r}).encode() + b"\n") for r in range(3)]
_forged("keys are missing", '{"map": [["round", 2]]}', _ROWS)
_forged("another kind of state", '{"list": [1, 2]}', _ROWS)
_forged("nested 200,000 times", "[" * 200_000, _ROWS)


def _in_training(kind: str, change: Callable[[Any], None]) -> None:
    @attack(
        f"a checkpoint of a buffered server with valid checksums: {kind}; `resume`",
        "runs/test_async.py::test_a_forged_state_falls_back_to_the_older_one",
    )
    def in_training(box: Box) -> tuple[str, Done]:
        given = _buffered(box, "softmax")
        if given is None:
            return "", Done(-1, "", 0, 0)
        _change_tree(given / "checkpoint", change)
        done = box.fedalpha("resume", given)
        fell = done.code == 0 and "is damaged" in done.out
        reason = "a short error" if done.code and not done.traceback else done.last[:90] if done.code else "it is used"
        return ("" if fell else f"the older state is not used: {reason}"), done


def _flights(tree: Any) -> list[Any]:
    return _of(_of(tree, "clock")[1], "flights")[1]["map"]


_in_training("a client that does not exist", lambda tree: _flights(tree)[0].__setitem__(0, 99))
_in_training("a missing key", lambda tree: _flights(tree)[0][1]["map"].pop())


@attack("a file `².json` among the checkpoints; `resume`", RUNS + "a_forged_checkpoint_falls_back")
def superscript(box: Box) -> tuple[str, Done]:
    given = _unfinished(box)
    (given / "checkpoint" / "².json").touch()
    return _failed(box.fedalpha("resume", given))


@attack(
    "a damaged `history.jsonl` of a finished run; `resume`",
    RUNS + "a_damaged_history_is_named_and_written_again",
)
def history(box: Box) -> tuple[str, Done]:
    given = box.given(box.run)
    (given / "history.jsonl").write_text("{")
    done = box.fedalpha("resume", given)
    return ("it fails, and the file is not named" if done.code and "history.jsonl" not in done.out else ""), done


@attack("a file of holes that claims terabytes; `report`", RUNS + "a_file_of_holes_does_not_fill_the_memory")
def holes(box: Box) -> tuple[str, Done]:
    given = box.given(box.study)
    with (given / "study.json").open("r+b") as file:
        file.truncate(2**33)
    return _memory(box.fedalpha("report", given))


@attack("`race.png` of a study that tunes is a link; `tune`", TUNING + "a_picture_that_is_a_link_is_replaced")
def race(box: Box) -> tuple[str, Done]:
    victim = box.victim()
    (box.place / "given").mkdir()
    (box.place / "given" / "race.png").symlink_to(victim)
    words = ("--strategy", "FedAvg", "--strategy", "FedWorse", "--budget", 8, "--clients", 4, "--model", "softmax")
    more = ("--rounds", 1, "--seeds", 2, "--space", "lr=[0.1, 0.2]", "--out", box.place / "given")
    done = box.fedalpha("tune", *words, *more)
    return ("a file elsewhere was overwritten" if victim.read_bytes() != b"mine" else ""), done


@attack("a forged `tune.json` with escape sequences; `status`", TUNING + "names_in_a_journal_are_cleaned")
def forged_race(box: Box) -> tuple[str, Done]:
    (box.place / "given").mkdir()
    race = {"seeds": [0], "scores": {"a": [0.5], "b": [0.5]}, "dropped": {}}
    method = {"text": EVIL, "settings": {}, "rounds": 1, "generations": [{**race, "new": []}]}
    case = {"rounds": 1, "methods": {"a": method, "b": method}, "reported": race}
    about = {"format": 1, "study": {}, "name": "x", "complete": False, "reference": "a", "measure": "accuracy"}
    journal = {**about, "error": 0.05, "budget": 1, "cases": {"": case}}
    (box.place / "given" / "tune.json").write_text(json.dumps(journal))
    done = box.fedalpha("status", box.place / "given")
    return ("the sequence reaches the terminal" if "\x1b]52" in done.out else ""), done


# What the attacks are made of


def _unfinished(box: Box) -> Path:
    """A run that has something left to do."""
    given = box.given(box.run)
    (given / "checkpoint" / "finished").unlink()
    (given / "model.safetensors").unlink()
    return given


def _plugin(box: Box) -> Path:
    file = box.place / "evil.py"
    file.write_text(f"open({str(box.place / 'ran')!r}, 'w')\n# {time.time()}\n")
    return file


def _ran(box: Box, done: Done) -> tuple[str, Done]:
    return ("its code was run" if (box.place / "ran").exists() else ""), done


def _memory(done: Done) -> tuple[str, Done]:
    if done.memory > TOO_MUCH or (done.traceback and "Memory" in done.out):
        return f"it takes more than {TOO_MUCH / GIB:.1f} GiB", done
    return "", done


def _failed(done: Done) -> tuple[str, Done]:
    return (f"the older state is not used: {done.last[:90]}" if done.code else ""), done


def _text(file: Path) -> str:
    return file.read_text() if file.exists() else ""


def _study_file(box: Box, settings: str, seeds: str = "1", case: str = "") -> None:
    case = f"[[cases]]\nname = {json.dumps(case)}\n" if case else ""
    text = 'name = "small"\nstrategies = ["FedAvg", "FedSoftWorse(T=0.2)"]\n'
    text += f"note = {json.dumps(EVIL)}\nseeds = {seeds}\n[settings]\nclients = 4\nmodel = 'softmax'\nrounds = 2\n"
    (box.place / "given.toml").write_text(text + settings + case)


def _forge(folder: Path, tree: str, rows: list[bytes]) -> None:
    """A generation with valid checksums, newer than the real ones, in the format of the folder."""
    import numpy as np
    from safetensors.numpy import save

    number, state = 3, np.frombuffer(tree.encode(), dtype=np.uint8)
    files = {}
    if new := (folder / "odd.rows").exists():
        data = save({"tree": state})
        lines = b"".join(len(row).to_bytes(4, "little") + row for row in rows)
        (folder / "odd.rows").write_bytes(lines)
        files["odd.rows"] = _facts(lines)
    else:
        data = save({"history": np.frombuffer(b"".join(rows), dtype=np.uint8)}, metadata={"state": tree})
    (folder / f"{number:06d}.safetensors").write_bytes(data)
    files[f"{number:06d}.safetensors"] = _facts(data)
    facts: dict[str, Any] = {"format": 2, "number": number, "round": 2} if new else {"format": 1, "round": number}
    facts["files"] = files
    body = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    (folder / f"{number:06d}.json").write_text(json.dumps({**facts, "sha256": body}, indent=2) + "\n")


def _buffered(box: Box, model: str) -> Path | None:
    """A run on a server that does not wait, with rounds left to play; None where there is no such server."""
    given = box.place / "given"
    clock = ("--server", "buffered(K=1, concurrency=3)", "--clock", "lognormal(sigma=1)")
    done = box.fedalpha("run", *clock, "--rounds", 2, "--clients", 4, "--model", model, "--workers", 1, "--out", given)
    if done.code:
        assert "No such option" in done.out, done.out
        return None
    (given / "checkpoint" / "finished").unlink()
    config = json.loads((given / "config.json").read_text())
    (given / "config.json").write_text(json.dumps(config | {"rounds": 4}))
    return given


def _of(tree: Any, name: str) -> Any:
    """The pair of a key and its value in a mapping of a stored tree."""
    return next(pair for pair in tree["map"] if pair[0] == name)


def _change_tree(folder: Path, change: Callable[[Any], None]) -> None:
    """A generation with valid checksums, newer than the real ones: the newest one, changed."""
    import numpy as np
    from safetensors.numpy import load, save

    number = max(int(path.stem) for path in folder.glob("*.json"))
    arrays = load((folder / f"{number:06d}.safetensors").read_bytes())
    tree = json.loads(arrays["tree"].tobytes())
    change(tree)
    arrays["tree"] = np.frombuffer(json.dumps(tree).encode(), dtype=np.uint8)
    facts = json.loads((folder / f"{number:06d}.json").read_text())
    names = ("even.rows", "odd.rows")
    rows = (folder / names[number % 2]).read_bytes()[: facts["files"][names[number % 2]]["bytes"]]
    (folder / names[(number + 1) % 2]).write_bytes(rows)
    data = save(arrays)
    (folder / f"{number + 1:06d}.safetensors").write_bytes(data)
    facts = {key: value for key, value in facts.items() if key != "sha256"} | {"number": number + 1}
    facts["files"] = {f"{number + 1:06d}.safetensors": _facts(data), names[(number + 1) % 2]: _facts(rows)}
    body = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    (folder / f"{number + 1:06d}.json").write_text(json.dumps({**facts, "sha256": body}, indent=2) + "\n")


def _facts(content: bytes) -> dict[str, Any]:
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _listening(box: Box, engine: str) -> tuple[str, Done]:
    """Addresses other than loopback on which the processes of a run listen."""
    import psutil
    import ray  # noqa: F401 - it brings psutil

    found: set[str] = set()
    over = threading.Event()

    def look() -> None:
        here = psutil.Process()
        while not over.wait(0.5):
            with contextlib.suppress(psutil.Error):
                for process in here.children(recursive=True):
                    with contextlib.suppress(psutil.Error):
                        sockets = process.net_connections("inet")
                        found.update(s.laddr.ip for s in sockets if s.status == psutil.CONN_LISTEN)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        done = box.fedalpha(
            "run", "--engine", engine, "--rounds", 3, "--clients", 2, "--model", "softmax", "--workers", 1
        )
    finally:
        over.set()
        watcher.join()
    elsewhere = sorted(a for a in found if a.removeprefix("::ffff:") not in ("127.0.0.1", "::1"))
    assert found, f"nothing listens: {done.out[-2000:]}"
    return (
        f"it listens on {'all interfaces' if {'0.0.0.0', '::'} & set(elsewhere) else 'the network'}"
        if elsewhere
        else ""
    ), done


# The command


def play(tree: Path, only: str) -> dict[str, dict[str, Any]]:
    """What each attack reached on the code in ``tree``."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="fedalpha-attacks-") as scratch:
        run, study = _templates(tree, Path(scratch))
        for number, one in enumerate(ATTACKS):
            if only in one.title:
                place = Path(scratch) / f"attack{number}"
                place.mkdir()
                reached, done = one.play(Box(tree, place, run, study))
                shutil.rmtree(place)
                absent = ("No such command", "unknown setting 'clock'")
                killed = done.code < 0 and not reached  # too slow here, or there is no such thing to attack
                missing = killed or any(text in done.out for text in absent)
                found[one.title] = {"reached": reached, "refused": done.code != 0, "missing": missing}
                print(f"{one.title}: {reached or f'nothing (code {done.code}: {done.last[:100]})'}", flush=True)
    return found


def _templates(tree: Path, scratch: Path) -> tuple[Path, Path]:
    """A finished run and a finished study with a hostile name, made by the tree itself."""
    box = Box(tree, scratch, scratch, scratch)
    small = ("--rounds", 2, "--clients", 4, "--model", "softmax", "--workers", 1)
    done = box.fedalpha("run", *small, "--out", scratch / "run")
    assert done.code == 0, done.out
    _study_file(box, "", case=EVIL)
    done = box.fedalpha("study", scratch / "given.toml", "--out", scratch / "study", "--jobs", 1)
    assert done.code == 0, done.out
    return scratch / "run", scratch / "study"


def table(record: dict[str, Any]) -> str:
    """The attacks, what each reached on the first commit where it succeeded and on the last one, and their tests."""
    last = list(record)[-1]
    lines = ["| attack | before | commit | now, at " + last + " | test |", "|---|---|---|---|---|"]
    for one in ATTACKS:
        played = {commit: found[one.title] for commit, found in record.items() if one.title in found}
        commit = next((commit for commit, found in played.items() if found["reached"]), "")
        before, now = _cell(played.get(commit)), _cell(played.get(last))
        lines.append("| " + " | ".join([one.title, before, commit, now, f"`{one.test}`"]) + " |")
    return "\n".join(lines)


def _cell(found: dict[str, Any] | None) -> str:
    if found is None:
        return ""
    if found["missing"]:
        return "–"
    if found["reached"]:
        return f"**{found['reached']}**"
    return "refused" if found["refused"] else "nothing"


def main() -> None:
    parser = argparse.ArgumentParser(prog="attacks", description="Play attacks on the code of commits.")
    parser.add_argument("commits", nargs="+", help="commits, or folders that hold a tree")
    parser.add_argument("--only", default="", help="attacks whose titles contain this")
    parser.add_argument("--out", type=Path, help="keep what was reached here, beside what is stored there")
    options = parser.parse_args()
    stored = options.out / "attacks.json" if options.out else None
    record = json.loads(stored.read_text()) if stored and stored.exists() else {}
    for commit in options.commits:
        with contextlib.ExitStack() as stack:
            tree, name = Path(commit).resolve(), commit
            if not (tree / "src").is_dir():
                tree = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fedalpha-tree-"))) / "tree"
                subprocess.run(["git", "worktree", "add", "-q", "--detach", str(tree), commit], check=True)
                short = ["git", "rev-parse", "--short", commit]
                name = subprocess.run(short, check=True, capture_output=True, text=True).stdout.strip()
                stack.callback(subprocess.run, ["git", "worktree", "remove", "--force", str(tree)], check=True)
            print(f"== {name}", flush=True)
            record[name] = record.get(name, {}) | play(tree, options.only)
    if stored:
        stored.parent.mkdir(parents=True, exist_ok=True)
        stored.write_text(json.dumps(record, indent=1) + "\n")
    print(table(record))
    last = list(record.values())[-1]
    sys.exit(any(found["reached"] for found in last.values()))


if __name__ == "__main__":
    main()
