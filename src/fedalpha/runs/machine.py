"""What the bytes of a result depend on besides its settings: the packages, and the arithmetic of the processor.

Sums and products of floating-point numbers are rounded in the order in which vector instructions form them, so
torch, NumPy, BLAS and numba give different last bits with different instruction sets.
"""

from __future__ import annotations

import os
import platform
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from fedalpha.fast.compiled import numba_version

PACKAGES = ("fedalpha", "torch", "numpy", "scipy", "scikit-learn")
LIMITS = (
    "ATEN_CPU_CAPABILITY",
    "DNNL_MAX_CPU_ISA",
    "GLIBC_TUNABLES",
    "MKL_CBWR",
    "MKL_DEBUG_CPU_TYPE",
    "MKL_ENABLE_INSTRUCTIONS",
    "NPY_DISABLE_CPU_FEATURES",
    "NPY_ENABLE_CPU_FEATURES",
    "NUMBA_CPU_FEATURES",
    "NUMBA_CPU_NAME",
    "NUMBA_DISABLE_JIT",
    "ONEDNN_MAX_CPU_ISA",
    "OPENBLAS_CORETYPE",
)
"""Environment variables that choose instructions; oneDNN and MKL do not report what they chose in any other way."""


def versions() -> dict[str, str]:
    """The versions and the arithmetic that a result depends on, as ``config.json`` and cells keep them."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found | {
        "numba": numba_version() or "not used",
        "processor": processor(),
        "instruction_sets": instruction_sets(),
    }


@cache
def processor() -> str:
    """The processor's own name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()


def instruction_sets() -> str:
    """The instructions that the libraries choose here, and the variables that limit them.

    >>> instruction_sets().split(",")[0].split()[0]
    'torch'
    """
    import numpy as np
    from threadpoolctl import threadpool_info

    simd = np.show_config(mode="dicts")["SIMD Extensions"]
    # NumPy leaves a key out if it is empty: "found" on a processor with nothing beyond the baseline.
    vectors = [*simd.get("baseline", []), *simd.get("found", [])] or ["no vectors"]
    torch = sys.modules.get("torch")  # a Flower server with a plain mean does without it
    found = [
        f"torch {torch.backends.cpu.get_cpu_capability() if torch else 'not used'}",
        f"NumPy {vectors[-1]}",
    ]
    blas = {info["architecture"] for info in threadpool_info() if info.get("architecture")}
    found += [f"BLAS {name}" for name in sorted(blas)]
    # An empty value counts for numba: it then uses no feature beyond those of NUMBA_CPU_NAME.
    found += [f"{name}={value}" for name in LIMITS if (value := os.environ.get(name)) is not None]
    return ", ".join(found)
