"""Hand-tuned for workload A: two processes of one thread, channels last, pooling before ReLU, mallopt."""

from __future__ import annotations

import ctypes
import multiprocessing

import contestant
import torch
from torch.nn.functional import cross_entropy
from torch_models import arrays, build, with_parameters

PROCESSES = 2


def keep_freed_memory() -> None:
    """Let malloc serve activations from memory it keeps, instead of mapping and faulting new pages each step."""
    libc = ctypes.CDLL(None)
    for option, value in ((-3, 1 << 30), (-1, 2**31 - 1), (-2, 1 << 26)):  # mmap threshold, trim threshold, top pad
        libc.mallopt(option, value)


def train(process: int, pipe, weights: torch.Tensor, total: torch.Tensor) -> None:
    """Train every second client in each round; weights and sums are in shared memory."""
    torch.set_num_threads(1)
    torch.manual_seed(work.seed + process)
    model = build(work.model, pool_first=True).to(memory_format=torch.channels_last)
    parameters = list(model.parameters())
    sizes = [p.numel() for p in parameters]
    optimizer = torch.optim.SGD(parameters, lr=work.lr)
    while pipe.recv():
        total.zero_()
        for client in range(process, work.clients, PROCESSES):
            part = work.part(client)
            here, labels = x[part].contiguous(memory_format=torch.channels_last), y[part]
            with torch.no_grad():
                for p, value in zip(parameters, weights.split(sizes), strict=True):
                    p.copy_(value.view(p.shape))
            for batch in torch.randperm(len(here)).split(work.batch):
                optimizer.zero_grad()
                cross_entropy(model(here[batch]), labels[batch]).backward()
                optimizer.step()
            with torch.no_grad():
                flat = torch.cat([p.reshape(-1) for p in parameters])
                total.add_(flat, alpha=len(here) / len(x))
        pipe.send(True)


options = contestant.arguments()
work = contestant.read(options.work)
contestant.versions("torch", "numpy")
keep_freed_memory()
x, y = torch.from_numpy(work.x), torch.from_numpy(work.y)
model = with_parameters(build(work.model), work.initial)
weights = torch.nn.utils.parameters_to_vector(model.parameters()).detach().share_memory_()
totals = [torch.zeros_like(weights).share_memory_() for _ in range(PROCESSES)]
context = multiprocessing.get_context("fork")
pipes = []
for process in range(PROCESSES):
    ours, theirs = context.Pipe()
    context.Process(target=train, args=(process, theirs, weights, totals[process]), daemon=True).start()
    pipes.append(ours)

clock = contestant.Clock(options.model)
clock.start()
for _ in range(options.rounds):
    for pipe in pipes:
        pipe.send(True)
    for pipe in pipes:
        pipe.recv()
    weights.copy_(torch.stack(totals).sum(0))
    clock.stop()
    torch.nn.utils.vector_to_parameters(weights.clone(), model.parameters())
    clock.keep(arrays(model))
for pipe in pipes:
    pipe.send(False)
