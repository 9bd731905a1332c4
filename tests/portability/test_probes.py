"""Each variable of an emulated machine is obeyed by the library that it is meant for."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from portability.machines import HERE, MACHINES, Machine, processor

VENDOR, FEATURES = processor()
SSE, AVX2, BROKEN, INTERPRETED = MACHINES
PROBE = Path(__file__).parent / "probe.py"


@cache
def facts(machine: Machine) -> dict[str, Any]:
    """What `probe` finds on a machine; under "said", what MKL and oneDNN say of themselves."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**machine.environment(Path(folder)), "MKL_VERBOSE": "1", "ONEDNN_VERBOSE": "1"}
        found = subprocess.run([sys.executable, str(PROBE)], env=environment, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    *said, last = sorted(found.stdout.splitlines(), key=lambda line: line.startswith("{"))
    return {**json.loads(last), "said": "\n".join(said)}


def beside(machine: Machine, beyond: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The facts here and on a machine; skipped where this processor has nothing ``beyond`` it to switch off."""
    if machine.needs - FEATURES:
        pytest.skip(f"this processor lacks {', '.join(sorted(machine.needs - FEATURES))}")
    if beyond not in FEATURES:
        pytest.skip(f"nothing to switch off: this processor lacks {beyond}")
    return facts(HERE), facts(machine)


def check(machine: Machine, here: dict[str, Any], there: dict[str, Any], isa: str, registers: str) -> None:
    """The machine does without something that is used here, in every library with a variable of its own."""
    given = machine.variables
    assert there["torch"] == given["ATEN_CPU_CAPABILITY"].upper() != here["torch"]
    assert f"isa:Intel {isa}\n" in there["said"]
    assert f"isa:Intel {isa}\n" not in here["said"]
    assert here["numpy"]
    assert set(there["numpy"]) == set(here["numpy"]) - set(given["NPY_DISABLE_CPU_FEATURES"].split())
    assert there["openblas"] == [given["OPENBLAS_CORETYPE"]] != here["openblas"]
    assert there["numba"] == [given["NUMBA_CPU_NAME"], registers] != here["numba"]
    assert there["threads"] == int(given["OMP_NUM_THREADS"])
    cores = len(os.sched_getaffinity(0))  # OpenBLAS takes no more threads than there are
    assert there["openblas threads"] == [min(int(given["OPENBLAS_NUM_THREADS"]), cores)]


def test_a_processor_without_avx() -> None:
    here, there = beside(SSE, "avx2")
    check(SSE, here, there, "SSE4.1", "xmm")
    assert "CNR:COMPATIBLE" in there["said"]
    assert "CNR:OFF" in here["said"]
    if "fma" in FEATURES and platform.libc_ver()[0] == "glibc":  # its exp then rounds otherwise now and then
        assert there["exp"] != here["exp"]


def test_a_processor_with_avx2_only() -> None:
    here, there = beside(AVX2, "avx512f")
    check(AVX2, here, there, "AVX2", "ymm")
    if VENDOR == "GenuineIntel":  # MKL chooses by itself on other makers' processors
        assert "(Intel(R) AVX2) enabled processors" in there["said"]
        assert "(Intel(R) AVX-512)" in here["said"]


@pytest.mark.parametrize(
    ("machine", "numba"),
    [(BROKEN, "ImportError: Numba needs another NumPy"), (INTERPRETED, None)],
    ids=["not importable", "interpreted"],
)
def test_numba_compiles_nothing(machine: Machine, numba: str | None) -> None:
    there = facts(machine)
    assert there["numba"] == numba
    assert there["threads"] == int(machine.variables["OMP_NUM_THREADS"])
