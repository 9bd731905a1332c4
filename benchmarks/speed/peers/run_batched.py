"""Hand-batched for workload B: softmax regressions of 50 clients at a time, gradients written out, two threads.

Every client must hold the same number of samples, a multiple of the batch size.
"""

from __future__ import annotations

import contestant
import torch

CHUNK = 50

options = contestant.arguments()
work = contestant.read(options.work)
contestant.versions("torch", "numpy")
torch.set_num_threads(2)
torch.set_grad_enabled(False)
torch.manual_seed(work.seed)
clients = work.clients
x = torch.from_numpy(work.x).reshape(clients, -1, 784)
y = torch.from_numpy(work.y).reshape(clients, -1)
samples = x.shape[1]
if samples % work.batch:
    raise ValueError(f"{samples} samples per client are not a multiple of the batch size {work.batch}")
onehot = torch.nn.functional.one_hot(y, 10).float()
weight = torch.from_numpy(work.initial["output.weight"]).T.contiguous()
bias = torch.from_numpy(work.initial["output.bias"])
clock = contestant.Clock(options.model)
clock.start()
for _ in range(options.rounds):
    total_weight, total_bias = torch.zeros_like(weight), torch.zeros_like(bias)
    for start in range(0, clients, CHUNK):
        here, targets = x[start : start + CHUNK], onehot[start : start + CHUNK]
        count = len(here)
        rows = torch.arange(count)[:, None]
        orders = torch.rand(count, samples).argsort(1)
        w, b = weight.repeat(count, 1, 1), bias.repeat(count, 1, 1)
        for batch in orders.split(work.batch, dim=1):
            inputs = here[rows, batch]
            error = torch.baddbmm(b, inputs, w).softmax(2).sub_(targets[rows, batch])
            w.baddbmm_(inputs.transpose(1, 2), error, alpha=-work.lr / work.batch)
            b.sub_(error.sum(1, keepdim=True), alpha=work.lr / work.batch)
        total_weight += w.sum(0)
        total_bias += b.sum((0, 1))
    weight, bias = total_weight / clients, total_bias / clients
    clock.stop()
    clock.keep({"output.weight": weight.T, "output.bias": bias})
