"""The machine's limits: the peak of fused multiply-adds, the libraries' sgemm, and the bandwidth of a copy.

This is a separate program, because its processes must be forked before any library starts threads. It prints
the rates as one line of JSON. Rates of several cores are measured twice: with a process of one thread per core, and
with one process of many threads.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from benchmarks.speed import peak

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
Measure = Callable[[int, float], float]
"""(amount, seconds) → 10⁹ per second."""


def sgemm_torch(n: int, seconds: float) -> float:
    """GFLOP/s of n × n × n products in float32."""
    a, b, c = torch.rand(n, n), torch.rand(n, n), torch.empty(n, n)
    return _per_second(lambda: torch.mm(a, b, out=c), 2 * n**3, seconds)


def sgemm_numpy(n: int, seconds: float) -> float:
    """The same with the library that NumPy was built with."""
    a, b = np.random.default_rng(0).random((2, n, n), dtype=np.float32)
    c = np.empty_like(a)
    return _per_second(lambda: np.matmul(a, b, out=c), 2 * n**3, seconds)


def copy(nbytes: int, seconds: float) -> float:
    """GB/s of a copy; every byte counts twice, as it is read and written."""
    source, target = torch.ones(nbytes // 4), torch.ones(nbytes // 4)
    return _per_second(lambda: target.copy_(source), 2 * source.nbytes, seconds)


def _per_second(work: Callable[[], object], amount: float, seconds: float) -> float:
    """``amount`` per call, in 10⁹ per second, over ``seconds``; the first call warms up."""
    work()
    done, started = 0, time.perf_counter()
    while not done or time.perf_counter() - started < seconds:
        work()
        done += 1
    return done * amount / (time.perf_counter() - started) / 1e9


def in_processes(measure: Measure, amount: int, seconds: float) -> float:
    """The sum over processes of one thread each that measure at the same time."""
    context = multiprocessing.get_context("fork")
    pipes = []
    for _ in range(CORES):
        ours, theirs = context.Pipe()
        context.Process(target=_in_process, args=(theirs, measure, amount, seconds), daemon=True).start()
        pipes.append(ours)
    for pipe in pipes:
        pipe.send(True)
    return sum(float(pipe.recv()) for pipe in pipes)


def _in_process(pipe: Connection, measure: Measure, amount: int, seconds: float) -> None:
    pipe.recv()  # start together
    pipe.send(measure(amount, seconds))


def main() -> None:
    """Measure everything, and print it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, required=True, help="n of the matrices")
    parser.add_argument("--bytes", type=int, required=True, help="bytes of the buffer that is copied")
    parser.add_argument("--seconds", type=float, required=True, help="how long each measurement lasts")
    options = parser.parse_args()
    size, nbytes, seconds = options.size, options.bytes, options.seconds
    found = {}
    torch.set_num_threads(1)  # no threads may exist before the forks
    with threadpool_limits(1):
        found["sgemm_torch_processes"] = in_processes(sgemm_torch, size, seconds)
        found["sgemm_numpy_processes"] = in_processes(sgemm_numpy, size, seconds)
        found["copy_processes"] = in_processes(copy, nbytes // CORES, seconds)
        found["copy_one_thread"] = copy(nbytes, seconds)
    torch.set_num_threads(CORES)
    with threadpool_limits(CORES):
        found["sgemm_torch_threads"] = sgemm_torch(size, seconds)
        found["sgemm_numpy_threads"] = sgemm_numpy(size, seconds)
        found["copy_threads"] = copy(nbytes, seconds)
    no_peak = peak.missing()
    if no_peak is None:
        kernel, found["fma_one_core"] = peak.one_core(seconds)
        found["fma_together"] = peak.together(kernel, CORES, seconds)
    print(json.dumps({"event": "machine", "no_peak": no_peak, **found}), flush=True)


if __name__ == "__main__":
    main()
