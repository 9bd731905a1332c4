"""Print, as JSON, which instruction sets and threads the libraries take in this process."""

from __future__ import annotations

import hashlib
import json
import math
import types
from typing import Any

import numpy as np
import scipy.linalg
import threadpoolctl
import torch


def compiled() -> Any:
    """The processor that numba compiles for and the widest registers that it uses; None if it compiles nothing."""
    try:
        import numba
    except ImportError as error:
        return f"ImportError: {error}"

    @numba.njit
    def double(values: Any) -> Any:
        out = np.empty_like(values)
        for i in range(len(values)):
            out[i] = 2 * values[i]
        return out

    double(np.ones(64, dtype=np.float32))
    if isinstance(double, types.FunctionType):
        return None
    (code,) = double.inspect_asm().values()
    name = numba.core.registry.cpu_target.target_context.codegen().magic_tuple()[1]
    return [name, next((width for width in ("zmm", "ymm", "xmm") if width in code), "none")]


def facts() -> dict[str, Any]:
    square = np.ones((8, 8))
    scipy.linalg.blas.dgemm(1.0, square, square @ square)
    torch.ones(8, 8) @ torch.ones(8, 8)  # MKL_VERBOSE writes which code MKL takes
    torch.nn.functional.conv2d(torch.ones(2, 3, 9, 9), torch.ones(4, 3, 3, 3))  # and ONEDNN_VERBOSE that of oneDNN
    blas = [found for found in threadpoolctl.threadpool_info() if found["internal_api"] == "openblas"]
    points = np.random.default_rng(0).uniform(-20, 20, 10_000).tolist()
    return {
        "torch": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "numpy": np.show_config(mode="dicts")["SIMD Extensions"].get("found", []),  # type: ignore[call-overload]
        "openblas": sorted({found["architecture"] for found in blas}),
        "openblas threads": sorted({found["num_threads"] for found in blas}),
        "numba": compiled(),
        "exp": hashlib.sha256(np.array([math.exp(x) for x in points]).tobytes()).hexdigest(),
    }


if __name__ == "__main__":
    print(json.dumps(facts()))
