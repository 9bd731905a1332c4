"""What is trained: the workloads, their sizes, and the files that every contestant reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedalpha.rng import generator, integer

if TYPE_CHECKING:
    from fedalpha.data import Pooled

WORKLOADS: Mapping[str, str] = {
    "A": "the paper's CNN, all clients take part, one epoch, batch 64, SGD, FedAvg",
    "B": "softmax regression 784→10, many small clients, all take part, one epoch, batch 20",
    "C": "workload B's client in ever larger populations, cohorts of one size",
    "D": "workload A with FedWorse(k=0.1), loss=before: one pass for the losses, then a tenth trains",
    "E": "combine rules alone, over updates that lie in memory",
    "start": "start-up: import, --help, and a run of one round on digits, as whole processes",
}


@dataclass(frozen=True)
class Sizes:
    """How large everything is; `FULL` are the sizes of the goals."""

    a: tuple[int, int] = (100, 600)
    """Clients, and samples per client."""
    b: tuple[int, int] = (1000, 60)
    registered: tuple[int, ...] = (10**4, 10**5, 10**6)
    updates: int = 1000
    parameters: int = 10**6
    rounds: int = 3
    """Rounds per process, twice as many for the short rounds of B and C. The first one warms up, reported apart."""
    repetitions: int = 3
    data: str = "fashion-mnist"
    """A data set's name, or ``synthetic``."""
    tolerance: float = 0.05
    """How far a contestant's progress in two rounds may be from the reference's, as a share of it."""
    matrix: int = 2048
    copied: int = 2**30
    seconds: float = 2.0
    """The order of the sgemm, the bytes of the copy, and how long each rate of the machine is measured."""

    @property
    def cohort(self) -> int:
        return self.b[0]

    def rounds_of(self, workload: str) -> int:
        return 2 * self.rounds if workload in "BC" else self.rounds


FULL = Sizes()
QUICK = Sizes(
    a=(4, 128),
    b=(40, 60),
    registered=(100, 1000, 10_000),
    updates=20,
    parameters=10_000,
    rounds=2,
    repetitions=1,
    data="synthetic",
    tolerance=0.5,
    matrix=256,
    copied=2**24,
    seconds=0.1,
)
"""Every step of the bench in a minute or so. It checks that everything works; it does not measure speed."""

SEED = 0
SHAPE, CLASSES = (1, 28, 28), 10


def flops(sizes: Sizes) -> float:
    """Floating-point operations of a round of workload A.

    Multiply-adds of the layers, and twice as many for the gradients; the first layer needs no input gradient.

    >>> round(flops(FULL) / 1e9)
    855
    """
    conv1, conv2, output = 26 * 26 * 32 * 9, 11 * 11 * 64 * 32 * 9, 1600 * 10
    clients, samples = sizes.a
    return 2.0 * (3 * (conv1 + conv2 + output) - conv1) * clients * samples


def prepare(workload: str, sizes: Sizes, folder: Path) -> Path:
    """Write the files of workload A or B; C and D use those of B and A."""
    from fedalpha.models import initial

    clients, samples = sizes.a if workload == "A" else sizes.b
    model, batch, lr = ("cnn", 64, 0.1) if workload == "A" else ("softmax", 20, 0.01)
    folder.mkdir(parents=True, exist_ok=True)
    data = _data(sizes.data, clients, samples)
    np.save(folder / "x.npy", data.data.x.numpy())
    np.save(folder / "y.npy", data.data.y.numpy())
    np.save(folder / "offsets.npy", data.offsets)
    np.savez(folder / "test.npz", x=data.test.x.numpy(), y=data.test.y.numpy())
    _, parameters = initial(model, SHAPE, CLASSES, integer(SEED, "model"))
    arrays: dict[str, Any] = {name: value.numpy() for name, value in parameters.items()}
    np.savez(folder / "initial.npz", **arrays)
    (folder / "work.json").write_text(json.dumps({"model": model, "batch": batch, "lr": lr, "seed": SEED}))
    return folder


def loss(folder: Path, parameters: Mapping[str, Any]) -> float:
    """The mean cross-entropy of a contestant's model on the test samples of a work folder."""
    import torch
    from torch.nn.functional import cross_entropy

    from fedalpha.models import MODELS, BuiltIn

    settings = json.loads((folder / "work.json").read_text())
    module = BuiltIn(MODELS.parse(settings["model"]), SHAPE, CLASSES).build()
    module.load_state_dict({name: torch.as_tensor(np.asarray(value)) for name, value in parameters.items()})
    module.eval()
    test = np.load(folder / "test.npz")
    x, y = torch.from_numpy(test["x"]), torch.from_numpy(test["y"])
    with torch.no_grad():
        total = sum(
            float(cross_entropy(module(x[i : i + 1000]), y[i : i + 1000], reduction="sum"))
            for i in range(0, len(x), 1000)
        )
    return total / len(x)


def _data(name: str, clients: int, samples: int) -> Pooled:
    """``clients`` times ``samples`` images, stratified."""
    from fedalpha.data import federation

    if name == "synthetic":
        rng = generator(SEED, "images")
        prototypes = rng.random((CLASSES, *SHAPE), dtype=np.float32)

        def draw(count: int) -> tuple[Any, Any]:
            y = rng.permutation(np.arange(count) % CLASSES)
            x = 0.5 * prototypes[y] + 0.5 * rng.random((count, *SHAPE), dtype=np.float32)
            return x, y

        return federation(draw(clients * samples), clients=clients, seed=SEED, test=draw(500))
    made = federation(name, clients=clients, seed=SEED)
    found = set(np.diff(made.offsets).tolist())
    if found != {samples}:
        raise ValueError(f"{name} over {clients} clients gives parts of {sorted(found)} samples, not {samples} each")
    return made
