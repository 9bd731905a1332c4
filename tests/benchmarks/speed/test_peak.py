"""The peak of fused multiply-adds: what the kernel computes and counts. How fast it is is not judged here."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.speed import peak

needs_numba = pytest.mark.skipif(peak.missing() is not None, reason=str(peak.missing()))


@needs_numba
@pytest.mark.parametrize("sums", peak.SUMS)
@pytest.mark.parametrize("lanes", peak.LANES)
def test_the_sums_count_the_multiply_adds(lanes: int, sums: int) -> None:
    kernel = peak.compiled(lanes, sums)
    for times in (1, 2, 1000, 12345):
        assert kernel.count(times) == times * lanes * sums


@needs_numba
def test_the_longest_call_still_counts_exactly() -> None:
    assert peak.compiled(4, 1).count(peak.LONGEST) == 4 * peak.LONGEST


@needs_numba
def test_a_product_is_not_rounded_before_it_is_added() -> None:
    one = np.float32(1 / 3)
    product = float(one) ** 2  # exact in float64, and so are the sums below
    fused = rounded = np.float32(0)
    for _ in range(3):
        fused, rounded = np.float32(float(fused) + product), rounded + np.float32(product)
    assert fused != rounded
    assert peak.compiled(4, 1).loop(3, one) == 4 * float(fused)


@needs_numba
@pytest.mark.skipif(
    platform.machine() != "x86_64" or any(name.startswith("NUMBA_CPU") for name in os.environ),
    reason="looks at the instructions of this x86 processor",
)
def test_the_kernel_is_vector_instructions_of_the_width_that_was_asked_for() -> None:
    from llvmlite import binding

    features = binding.get_host_cpu_features()
    registers = {4: "xmm", 8: "ymm", 16: "zmm" if features.get("avx512f") else "ymm"}
    if not features.get("fma"):
        pytest.skip("this processor has no fused multiply-add")
    for lanes, register in registers.items():
        (text,) = peak.compiled(lanes, 10).loop.inspect_asm().values()
        assert set(re.findall(r"vfmadd\w+ps\s.*%([xyz]mm)", text)) == {register}


@needs_numba
def test_a_rate_is_the_best_of_what_was_counted() -> None:
    kernel, rate = peak.one_core(0.0)
    assert (kernel.lanes, kernel.sums) in {(lanes, sums) for lanes in peak.LANES for sums in peak.SUMS}
    assert rate > 0
    assert peak.together(kernel, 2, 0.0) > 0


@pytest.mark.parametrize(
    ("variable", "block", "message"),
    [("NUMBA_DISABLE_JIT", "", "NUMBA_DISABLE_JIT is set"), ("X", "sys.modules['numba'] = None; ", "fedalpha[fast]")],
)
def test_where_nothing_is_compiled_the_reason_is_given(variable: str, block: str, message: str) -> None:
    code = f"import sys; {block}from benchmarks.speed import peak; print(peak.missing())"
    if not block:
        pytest.importorskip("numba", exc_type=ImportError)
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {variable: "1"}, capture_output=True, text=True, check=True
    )
    assert message in done.stdout


def test_the_page_states_the_stored_share() -> None:
    docs = Path(__file__).parents[3] / "docs"
    goals = json.loads((docs / "results/speed/peak/results.json").read_text())["goals"]
    (share,) = [goal["value"] for goal in goals if "share of the machine's peak" in goal["text"]]
    assert f"Workload A runs at {share:.2f} of the peak" in (docs / "speed.md").read_text()
