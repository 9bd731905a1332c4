"""Play two short runs and print, as JSON, what they drew and what they found."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import torch

import fedalpha
from fedalpha.models import initial
from fedalpha.rng import Draws


def digest(tensors: dict[str, torch.Tensor]) -> str:
    return hashlib.sha256(b"".join(tensors[name].numpy().tobytes() for name in sorted(tensors))).hexdigest()


def record() -> dict[str, Any]:
    drawn = torch.Generator().manual_seed(0)
    images = (torch.rand(200, 1, 12, 12, generator=drawn), torch.randint(10, (200,), generator=drawn))
    shards = fedalpha.federation("digits", partition="shards(size=30)", clients=12, seed=0)
    crowds = {"mlp": shards, "cnn": fedalpha.federation(images, partition="iid", clients=6, seed=0)}
    runs = {
        name: fedalpha.run(
            crowd, name, "FedSoftWorse(T=0.2)", rounds=2, select="uniform(C=0.5)", engine="embedded(workers=2)"
        )
        for name, crowd in crowds.items()
    }
    return {
        "partitions": {name: digest(_samples(crowd)) for name, crowd in crowds.items()},
        "cohorts": {name: [row["cohort"] for row in run.rows] for name, run in runs.items()},
        "batches": Draws(0, 1, 2)("batches").permutation(50).tolist(),
        "initial": {
            name: [p.flatten().tolist() for p in initial(name, crowd.shape, 10, seed=1)[1].values()]
            for name, crowd in crowds.items()
        },
        "losses": {name: run.loss.tolist() for name, run in runs.items()},
        "accuracies": {name: run.accuracy.tolist() for name, run in runs.items()},
        "models": {name: digest(run.model) for name, run in runs.items()},
        "rows": {name: [{**row, "seconds": 0} for row in run.rows] for name, run in runs.items()},
    }


def _samples(crowd: Any) -> dict[str, torch.Tensor]:
    return {f"{i:03}": crowd.client(i).x for i in range(crowd.clients)}


if __name__ == "__main__":
    np.seterr(all="raise", under="ignore")
    print(json.dumps(record()))
