"""What results depend on besides their settings, and what is said when it changes under a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from commands import fedalpha
from fedalpha.fast.compiled import numba_version
from fedalpha.runs.machine import LIMITS, versions

RUN = """
import sys
from contextlib import suppress
import torch
import fedalpha
from fedalpha.runs.callbacks import Callback

class Interrupt(Callback):
    def on_round(self, row, state):
        if row["round"] == int(sys.argv[2]):
            raise KeyboardInterrupt

drawn = torch.Generator().manual_seed(0)
images = torch.rand(160, 1, 12, 12, generator=drawn), torch.randint(10, (160,), generator=drawn)
data = fedalpha.federation(images, clients=4, seed=0)
with suppress(KeyboardInterrupt):
    fedalpha.run(
        data, sys.argv[3], rounds=4, update="sgd(steps=2)", engine="embedded(workers=1)",
        out=sys.argv[1], callbacks=[Interrupt()],
    )
"""


def run(folder: Path, stop: int, model: str = "mlp", **environment: str) -> str:
    """Run four rounds in a process of its own, stopped after round ``stop``; what it wrote to its error stream."""
    clean = {name: value for name, value in os.environ.items() if name not in LIMITS}
    command = [sys.executable, "-c", RUN, str(folder), str(stop), model]
    done = subprocess.run(command, env=clean | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_versions_name_packages_processor_and_instructions() -> None:
    found = versions()
    assert {"python", "torch", "numpy", "numba", "processor", "instruction_sets"} <= found.keys()
    assert all(isinstance(value, str) and value for value in found.values())


def test_a_run_that_goes_on_under_other_instructions_says_so(tmp_path: Path) -> None:
    assert run(tmp_path, 1, ATEN_CPU_CAPABILITY="default") == ""
    assert run(tmp_path, 2, ATEN_CPU_CAPABILITY="default") == ""  # resumed where it was begun: nothing to say
    said = run(tmp_path, 9)
    assert "run so far on another machine or with other versions: instruction_sets is torch DEFAULT" in said
    assert "ATEN_CPU_CAPABILITY=default there" in said
    assert len((tmp_path / "history.jsonl").read_text().splitlines()) == 5  # it went on to its end
    stored = json.loads((tmp_path / "config.json").read_text())
    assert "ATEN_CPU_CAPABILITY=default" in stored["versions"]["instruction_sets"]
    (resumed,) = stored["resumed_with"]
    assert "ATEN_CPU_CAPABILITY" not in resumed["instruction_sets"]


@pytest.mark.skipif(numba_version() is None, reason="numba is not used here, so there is no difference")
def test_a_resumed_command_names_each_difference_once(tmp_path: Path) -> None:
    """Begun with plain instructions, resumed without numba by `fedalpha resume`, then as at first."""
    clean = {name: value for name, value in os.environ.items() if name not in LIMITS}
    begin = ["run", "--rounds", "3", "--clients", "4", "--model", "softmax", "--out", str(tmp_path)]
    assert fedalpha(*begin, env=clean).returncode == 0
    (tmp_path / "checkpoint" / "finished").unlink()  # as after a kill between the last round and the end
    resume = ["resume", str(tmp_path), "--workers", "1"]
    said = fedalpha(*resume, env=clean | {"NUMBA_DISABLE_JIT": "1"})
    assert said.returncode == 0
    told = " ".join((said.stdout + said.stderr).split())
    assert "numba is" in told
    assert "and not used here" in told
    (tmp_path / "checkpoint" / "finished").unlink()
    said = fedalpha(*resume, env=clean)
    assert said.returncode == 0
    assert "numba is not used there" in " ".join((said.stdout + said.stderr).split())
    assert len(json.loads((tmp_path / "config.json").read_text())["resumed_with"]) == 2


@pytest.mark.parametrize("kind", ["broken", "switched off"])
def test_a_numba_that_cannot_be_used_is_as_if_it_were_missing(tmp_path: Path, kind: str) -> None:
    environment = {"NUMBA_DISABLE_JIT": "1"}
    if kind == "broken":
        (tmp_path / "path" / "numba").mkdir(parents=True)
        (tmp_path / "path" / "numba" / "__init__.py").write_text("raise ImportError('Numba needs another NumPy')\n")
        path = os.pathsep.join(filter(None, [str(tmp_path / "path"), os.environ.get("PYTHONPATH")]))
        environment = {"PYTHONPATH": path}
    run(tmp_path / "out", 9, "cnn", **environment)
    assert json.loads((tmp_path / "out" / "config.json").read_text())["versions"]["numba"] == "not used"
