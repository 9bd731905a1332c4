"""Emulated machines: environments in which the libraries use fewer instruction sets or threads than they could.

Each library has a variable of its own, and `test_probes` checks that it is obeyed. Some need company:
``NUMBA_CPU_NAME`` leaves this processor's features switched on unless ``NUMBA_CPU_FEATURES`` is given too, and torch
takes no more threads than there are cores unless ``MKL_DYNAMIC`` is off.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

PART = (
    "tests/combine/test_sums.py",
    "tests/engine/test_pool.py::test_a_run_survives_a_killed_worker_to_the_same_bytes",
    "tests/flower/test_equality.py::test_reevaluation_on_the_servers_data",
    "tests/flower/test_sums.py",
    "tests/runs/test_machine.py::test_versions_name_packages_processor_and_instructions",
    "tests/runs/test_rounds.py",
    "tests/runs/test_experiment.py::test_after_training_weights_equal_a_hand_made_round",
    "tests/runs/test_experiment.py::test_every_round_says_how_it_weighed",
    "tests/runs/test_experiment.py::test_infinite_temperature_is_fedavg_bit_for_bit",
    "tests/runs/test_experiment.py::test_one_client_is_plain_training_bit_for_bit",
    "tests/runs/test_experiment.py::test_strategies_of_one_seed_are_paired",
    "tests/runs/test_experiment.py::test_the_number_of_workers_changes_no_byte",
    "tests/fast/test_layers.py",
    "tests/models",
    "tests/theory/test_diagnostics.py",
    "tests/update/test_vectorised.py::test_a_recording_gives_the_bytes_of_what_was_recorded[iid-softmax]",
    "tests/update/test_vectorised.py::test_it_agrees_with_the_plain_path_and_workers_change_nothing"
    "[quantity(a=2.0)-softmax-sgd(lr=0.1, batch=2, steps=3)]",
)
"""The tests that are run again on every machine: determinism, engines, sums, layers, diagnostics."""


def processor() -> tuple[str, frozenset[str]]:
    """Vendor and features of this processor, as Linux names them; empty elsewhere."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return "", frozenset()
    found = {key: re.search(rf"^{key}\s*: (.*)$", text, re.MULTILINE) for key in ("vendor_id", "flags")}
    vendor, flags = ("" if match is None else match[1] for match in found.values())
    return vendor, frozenset(flags.split())


def numpys(*kinds: str) -> str:
    """The features of this processor, of these kinds, for which NumPy has loops."""
    found = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])  # type: ignore[call-overload]
    return " ".join(feature for feature in found if feature.startswith(kinds))


def threads(count: int) -> dict[str, str]:
    """So many threads, also where there are fewer cores."""
    return {"OMP_NUM_THREADS": str(count), "OPENBLAS_NUM_THREADS": str(count), "MKL_DYNAMIC": "FALSE"}


@dataclass(frozen=True, eq=False)
class Machine:
    """Variables that stand for a machine, the features that this processor must have to play it, and tests for it.

    Without ``numba`` there is a package of that name that cannot be imported, as where its version and NumPy's do
    not go together.
    """

    name: str
    variables: dict[str, str]
    needs: frozenset[str] = frozenset()
    numba: bool = True
    part: tuple[str, ...] = PART

    def environment(self, folder: Path) -> dict[str, str]:
        """This process's environment with the machine's variables in place of all of their kind.

        What is compiled for another processor is kept in ``folder``.
        """
        kept = {k: v for k, v in os.environ.items() if k not in VARIABLES and not k.startswith("PYTEST_")}
        found = {**kept, **self.variables}
        if "NUMBA_CPU_NAME" in found:
            found["NUMBA_CACHE_DIR"] = str(folder / "compiled")
        if not self.numba:
            package = folder / "broken" / "numba"
            package.mkdir(parents=True)
            (package / "__init__.py").write_text('raise ImportError("Numba needs another NumPy")\n')
            paths = [str(package.parent), os.environ.get("PYTHONPATH", "")]
            found["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        return found


HERE = Machine("this machine", {})
MACHINES = (
    Machine(
        "no AVX, 2 threads",
        {
            "ATEN_CPU_CAPABILITY": "default",
            "ONEDNN_MAX_CPU_ISA": "SSE41",
            "MKL_CBWR": "COMPATIBLE",
            "NPY_DISABLE_CPU_FEATURES": numpys("AVX", "FMA", "F16C", "X86_V3", "X86_V4"),
            "OPENBLAS_CORETYPE": "Nehalem",
            "NUMBA_CPU_NAME": "nehalem",
            "NUMBA_CPU_FEATURES": "",
            "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4",
            **threads(2),
        },
        frozenset({"sse4_2"}),
    ),
    Machine(
        "AVX2, 4 threads",
        {
            "ATEN_CPU_CAPABILITY": "avx2",
            "ONEDNN_MAX_CPU_ISA": "AVX2",
            "MKL_ENABLE_INSTRUCTIONS": "AVX2",
            "NPY_DISABLE_CPU_FEATURES": numpys("AVX512", "X86_V4"),
            "OPENBLAS_CORETYPE": "Haswell",
            "NUMBA_CPU_NAME": "haswell",
            "NUMBA_CPU_FEATURES": "",
            **threads(4),
        },
        frozenset({"avx2", "fma"}),
    ),
    Machine("numba not importable, 4 threads", threads(4), numba=False),
    Machine("numba interpreted, 1 thread", {"NUMBA_DISABLE_JIT": "1", **threads(1)}, part=(PART[0], PART[3])),
)
VARIABLES = {name for machine in MACHINES for name in machine.variables}
