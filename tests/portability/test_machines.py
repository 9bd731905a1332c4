"""Part of the suite on emulated machines, and what is equal from one machine to another."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from portability.machines import MACHINES, Machine, processor, threads

ROOT = Path(__file__).parents[2]
ONE = Machine("1 thread", threads(1))
EMULATED = [
    pytest.param(
        machine,
        id=machine.name,
        marks=pytest.mark.skipif(
            bool(machine.needs - processor()[1]), reason=f"the processor lacks {', '.join(sorted(machine.needs))}"
        ),
    )
    for machine in MACHINES
]


def python(machine: Machine, *arguments: str) -> str:
    """The output of Python on a machine."""
    with tempfile.TemporaryDirectory() as folder:
        found = subprocess.run(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=machine.environment(Path(folder)),
            capture_output=True,
            text=True,
        )
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


@cache
def recorded(machine: Machine) -> Any:
    return json.loads(python(machine, str(Path(__file__).parent / "record.py")))


@pytest.mark.parametrize("machine", EMULATED)
def test_a_part_of_the_suite(machine: Machine) -> None:
    python(machine, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", *machine.part)


@pytest.mark.parametrize("count", [2, 4])
def test_the_number_of_threads_changes_no_byte(count: int) -> None:
    assert recorded(Machine(f"{count} threads", threads(count))) == recorded(ONE)


@pytest.mark.parametrize("machine", EMULATED)
def test_another_machine_draws_the_same_and_finds_nearly_the_same(machine: Machine) -> None:
    here, there = recorded(ONE), recorded(machine)
    for drawn in ("partitions", "cohorts", "batches"):
        assert there[drawn] == here[drawn], drawn
    for name in here["initial"]:
        for ours, theirs in zip(here["initial"][name], there["initial"][name], strict=True):
            assert theirs == pytest.approx(ours, abs=1e-7)
        assert there["losses"][name] == pytest.approx(here["losses"][name], rel=1e-4)
        assert there["accuracies"][name] == pytest.approx(here["accuracies"][name], abs=0.02)
