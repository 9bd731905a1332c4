"""What the machine can do: the sgemm rate and the bandwidth of a copy, with two processes and with two threads."""

from __future__ import annotations

import argparse
import multiprocessing
import time

import contestant
import torch

CORES = 2


def sgemm(n: int, seconds: float) -> float:
    """GFLOP/s of n × n × n products in float32."""
    a, b, c = torch.rand(n, n), torch.rand(n, n), torch.empty(n, n)
    torch.mm(a, b, out=c)
    done, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        torch.mm(a, b, out=c)
        done += 1
    return done * 2 * n**3 / (time.perf_counter() - started) / 1e9


def copy(nbytes: int, seconds: float) -> float:
    """GB/s of a copy; every byte counts twice, as it is read and written."""
    source, target = torch.ones(nbytes // 4), torch.ones(nbytes // 4)
    done, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        target.copy_(source)
        done += 1
    return done * 2 * source.nbytes / (time.perf_counter() - started) / 1e9


def in_process(pipe, measure, amount: int, seconds: float) -> None:
    torch.set_num_threads(1)
    pipe.recv()  # start together
    pipe.send(measure(amount, seconds))


def together(measure, amount: int, seconds: float) -> float:
    """The sum over processes of one thread each that measure at the same time."""
    context = multiprocessing.get_context("fork")
    pipes = []
    for _ in range(CORES):
        ours, theirs = context.Pipe()
        context.Process(target=in_process, args=(theirs, measure, amount, seconds), daemon=True).start()
        pipes.append(ours)
    for pipe in pipes:
        pipe.send(True)
    return sum(pipe.recv() for pipe in pipes)


parser = argparse.ArgumentParser()
parser.add_argument("--size", type=int, required=True, help="n of the matrices")
parser.add_argument("--bytes", type=int, required=True, help="bytes of the buffer that is copied")
parser.add_argument("--seconds", type=float, required=True, help="how long each measurement lasts")
options = parser.parse_args()
found = {}
torch.set_num_threads(1)  # no pool of threads before the forks
found["sgemm_processes"] = together(sgemm, options.size, options.seconds)
found["copy_processes"] = together(copy, options.bytes // CORES, options.seconds)
found["copy_one_thread"] = copy(options.bytes, options.seconds)
torch.set_num_threads(CORES)
found["sgemm_threads"] = sgemm(options.size, options.seconds)
found["copy_threads"] = copy(options.bytes, options.seconds)
contestant.say("machine", **found)
