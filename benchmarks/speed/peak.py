"""The machine's peak of fused multiply-adds in float32: what no program can exceed.

A library's matrix product is no such limit: it may be tuned for another vendor's processors. The kernel here keeps
vectors of sums in registers and adds 1·1 to each of them, so it touches no memory, and its result is the number of
multiply-adds that were executed. The vectors are written in LLVM's intermediate language, because LLVM's own
vectoriser prefers narrow vectors on processors that have wide ones. Needs numba (``fedalpha[fast]``).
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier
from typing import Any

import numpy as np

LANES = (4, 8, 16)
"""float32 values in a vector: 128, 256 and 512 bits. The compiler splits a vector that the processor lacks."""
SUMS = (10, 16)
"""Independent vectors: enough to hide the latency of a multiply-add, few enough to stay in registers."""
LONGEST = 1 << 24
"""The most turns of a loop: a float32 counts exactly up to here."""
LASTS = 0.02
"""Seconds of one call: long compared with the start of a thread, short compared with another process's time slice."""


@dataclass(frozen=True)
class Kernel:
    """A compiled loop over ``sums`` vectors of ``lanes`` values."""

    lanes: int
    sums: int
    loop: Any
    """(times, one) → the sum of all values after ``times`` turns of value = fma(one, one, value), from 0."""

    def count(self, times: int) -> float:
        """Do ``times`` turns and return the number of multiply-adds, times·lanes·sums, as the sums counted it."""
        return float(self.loop(times, np.float32(1)))


def missing() -> str | None:
    """Why the peak cannot be measured here; None where it can."""
    try:
        from numba import config
    except Exception as error:  # a numba that is not made for this NumPy raises various errors
        return f'numba cannot be imported ({error}); pip install "fedalpha[fast]" installs it'
    interpreted: bool = config.DISABLE_JIT  # type: ignore[attr-defined]
    return "NUMBA_DISABLE_JIT is set, so nothing is compiled" if interpreted else None


def one_core(seconds: float) -> tuple[Kernel, float]:
    """The fastest kernel on one core, and its best GFLOP/s in ``seconds``; a multiply-add is two operations."""
    kernels = [compiled(lanes, sums) for lanes in LANES for sums in SUMS]
    found = [(kernel, together(kernel, 1, seconds / len(kernels))) for kernel in kernels]
    return max(found, key=lambda pair: pair[1])


def together(kernel: Kernel, threads: int, seconds: float) -> float:
    """The best GFLOP/s of ``threads`` threads that call ``kernel`` at the same time, again and again for ``seconds``.

    The rate of one repetition is all its operations over the time from the first start to the last end.
    """
    times = _turns(kernel)
    barrier = Barrier(threads)

    def call(_: int) -> tuple[float, float, float]:
        barrier.wait()
        started = time.perf_counter()
        done = kernel.count(times)
        return started, time.perf_counter(), done

    best, until = 0.0, time.perf_counter() + seconds
    with ThreadPoolExecutor(threads) as pool:
        while not best or time.perf_counter() < until:
            starts, ends, counts = zip(*pool.map(call, range(threads)), strict=True)
            best = max(best, 2 * sum(counts) / (max(ends) - min(starts)) / 1e9)
    return best


def compiled(lanes: int, sums: int) -> Kernel:
    """Compile the kernel for this processor."""
    from llvmlite import ir
    from numba import njit, types
    from numba.extending import intrinsic

    vector = ir.VectorType(ir.FloatType(), lanes)
    i32, i64, f64 = ir.IntType(32), ir.IntType(64), ir.DoubleType()

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        times, one = arguments
        fma = ir.Function(builder.module, ir.FunctionType(vector, [vector] * 3), f"llvm.fma.v{lanes}f32")
        ones = ir.Constant(vector, ir.Undefined)
        for lane in range(lanes):
            ones = builder.insert_element(ones, one, i32(lane))
        before, body, after = builder.block, builder.append_basic_block(), builder.append_basic_block()
        builder.branch(body)
        builder.position_at_end(body)
        turn, values = builder.phi(i64), [builder.phi(vector) for _ in range(sums)]
        next_turn, added = builder.add(turn, i64(1)), [builder.call(fma, [ones, ones, value]) for value in values]
        turn.add_incoming(i64(0), before)
        turn.add_incoming(next_turn, body)
        for value, new in zip(values, added, strict=True):
            value.add_incoming(vector([0.0] * lanes), before)
            value.add_incoming(new, body)
        builder.cbranch(builder.icmp_signed("<", next_turn, times), body, after)
        builder.position_at_end(after)
        total = f64(0.0)
        for value in added:
            for lane in range(lanes):
                total = builder.fadd(total, builder.fpext(builder.extract_element(value, i32(lane)), f64))
        return total

    @intrinsic
    def vectors(typing: Any, times: Any, one: Any) -> Any:
        return types.float64(types.int64, types.float32), generate

    body: Any = vectors

    @njit("float64(int64, float32)", nogil=True)
    def loop(times: int, one: float) -> Any:
        return body(times, one)

    return Kernel(lanes, sums, loop)


def _turns(kernel: Kernel) -> int:
    """As many turns as last `LASTS` seconds, at most `LONGEST`."""
    times = 1 << 10
    while times < LONGEST:
        started = time.perf_counter()
        kernel.count(times)
        if time.perf_counter() - started >= LASTS:
            break
        times *= 2
    return times
