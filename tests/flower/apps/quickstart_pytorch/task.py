"""A small network on digits, two labels per client."""

from functools import cache

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10))

    def forward(self, x):
        return self.body(x)


@cache
def load_data(partition_id, num_partitions):
    X, y = load_digits(return_X_y=True)
    mine = np.flatnonzero(y % num_partitions == partition_id)[:120]
    X, y = torch.tensor(X[mine] / 16, dtype=torch.float32), torch.tensor(y[mine])
    return (X[:96], y[:96]), (X[96:], y[96:])


def train(net, data, epochs, lr):
    X, y = data
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    net.train()
    running = 0.0
    for _ in range(epochs):
        for start in range(0, len(X), 32):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(X[start : start + 32]), y[start : start + 32])
            loss.backward()
            optimizer.step()
            running += loss.item()
    return running / (epochs * (len(X) // 32))


def test(net, data):
    X, y = data
    net.eval()
    with torch.no_grad():
        output = net(X)
    return nn.functional.cross_entropy(output, y).item(), (output.argmax(1) == y).float().mean().item()
