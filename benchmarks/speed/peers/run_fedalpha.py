"""This library, through its public function: `fedalpha.run` as a user calls it.

The federation's test part is one sample, so that evaluation takes almost no time. With ``--registered`` the
clients are described, not stored: each draws its samples from the pool when it takes part.
"""

from __future__ import annotations

import contestant
import numpy as np
import torch

import fedalpha
from fedalpha.data import Examples, Generated, Pooled
from fedalpha.rng import generator
from fedalpha.runs.callbacks import Callback


class Laps(Callback):
    def on_round(self, row, state) -> None:
        if row["round"]:
            clock.stop(row["seconds"])
            clock.keep(state.broadcast.parameters)


options = contestant.arguments("strategy", "registered", "cohort")
work = contestant.read(options.work)
contestant.versions("torch", "numpy")
contestant.say("versions", fedalpha=fedalpha.__version__)
x, y = torch.from_numpy(work.x), torch.from_numpy(work.y)
if options.registered:
    pool, size = len(x), len(x) // work.clients

    def client(id: int) -> Examples:
        chosen = torch.from_numpy(generator(work.seed, "pool", client=id).integers(pool, size=size))
        return Examples(x[chosen], y[chosen])

    federation = Generated(
        int(options.registered), client, lambda ids: np.full(len(ids), float(size)), (x[:1], y[:1]), classes=10
    )
else:
    federation = Pooled(Examples(x, y), work.offsets, Examples(x[:1], y[:1]), classes=10)
clock = contestant.Clock(options.model)
fedalpha.run(
    federation,
    work.model,
    options.strategy or "FedAvg",
    rounds=options.rounds,
    seed=work.seed,
    select=f"uniform(count={options.cohort})" if options.cohort else "uniform",
    update=f"sgd(lr={work.lr}, batch={work.batch})",
    evaluate=10**9,
    callbacks=[Laps()],
)
