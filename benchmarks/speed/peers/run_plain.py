"""The loop that a researcher would write: one process, two threads, one client after the other."""

from __future__ import annotations

import contestant
import torch
from torch.nn.functional import cross_entropy
from torch_models import build, with_parameters

options = contestant.arguments()
work = contestant.read(options.work)
contestant.versions("torch", "numpy")
torch.set_num_threads(2)
torch.manual_seed(work.seed)
x, y = torch.from_numpy(work.x), torch.from_numpy(work.y)
model = with_parameters(build(work.model), work.initial)
optimizer = torch.optim.SGD(model.parameters(), lr=work.lr)
weights = {name: value.clone() for name, value in model.state_dict().items()}
clock = contestant.Clock(options.model)
clock.start()
for _ in range(options.rounds):
    total = {name: torch.zeros_like(value) for name, value in weights.items()}
    for client in range(work.clients):
        part = work.part(client)
        here, labels = x[part], y[part]
        model.load_state_dict(weights)
        for batch in torch.randperm(len(here)).split(work.batch):
            optimizer.zero_grad()
            cross_entropy(model(here[batch]), labels[batch]).backward()
            optimizer.step()
        for name, value in model.state_dict().items():
            total[name].add_(value, alpha=len(here) / len(x))
    weights = total
    clock.stop()
    clock.keep(weights)
