"""Our combine rules compared with ByzFL's aggregators, on the same vectors.

ByzFL is installed without its dependencies into an environment of its own that sees our packages (its
torchvision requirement would install CUDA builds). Modules that it imports but does not need are stubbed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedalpha.combine import COMBINES, Reports
from fedalpha.rng import generator
from fedalpha.round import Admission, Gate
from fedalpha.strategies import Array
from fedalpha.update import Broadcast, Report

BYZFL = "byzfl==0.0.11"
N, F, D = 15, 3, 1000
SIDE = Path(__file__).with_name("byzfl_side.py")
RULES = {
    "average": "mean",
    "median": "median",
    "trimmed": f"trimmed(beta={F / N})",
    "geomed": "geomed(iterations=1000)",
    "krum": f"krum(f={F})",
    "multi-krum": f"krum(f={F}, m={N - F})",
    "centred": "centred(tau=1.0)",
    "nnm + trimmed": f"nnm(trimmed(beta={F / N}), f={F})",
}


def attacked(seed: int = 0) -> dict[str, Array]:
    """Honest vectors of norm about 1 and F attackers, by attack; ``one NaN`` has one bad coordinate."""
    rng = generator(seed, "byzantine vectors")
    honest = (rng.normal(size=D) + 0.5 * rng.normal(size=(N - F, D))) / np.sqrt(1.25 * D)
    mean, deviation = honest.mean(0), honest.std(0)
    forged = {
        "none": honest[:F],
        "sign flip": -3 * honest[:F],
        "ALIE": np.tile(mean - 1.5 * deviation, (F, 1)),
        "IPM": np.tile(-3 * mean, (F, 1)),
        "Mimic": np.tile(honest[0], (F, 1)),
        "huge": 1e6 * honest[:F],
    }
    found = {name: np.concatenate([honest, bad]) for name, bad in forged.items()}
    found["one NaN"] = found["none"].copy()
    found["one NaN"][-1, 0] = np.nan
    return found


def ours(vectors: Array, rule: str) -> Array | None:
    """The result of the rule after the gate; None if the gate refuses all vectors."""
    sent = Broadcast(None, {"w": torch.zeros(vectors.shape[1], dtype=torch.float64)})  # type: ignore[arg-type]
    items = [Report(i, {"w": torch.from_numpy(v)}, {}, 1, 1) for i, v in enumerate(vectors)]
    reports = Reports(items)
    admitted = Reports(Gate(Admission(), sent, 0, 0).admit(items, reports.ids))
    if not admitted.items:
        return None
    how = COMBINES.parse(rule)
    alpha = np.full(len(admitted.items), 1 / len(admitted.items))
    aggregate, _ = how.combine(how.init(), sent, admitted, alpha, True)
    found: Array = aggregate.parameters["w"].numpy()
    return found


def vector_table(environment: Path | None) -> list[dict[str, Any]]:
    """One row per attack and rule: distance to the honest mean, ours and ByzFL's, and between the two."""
    data = attacked()
    theirs = {} if environment is None else byzfl(environment, data)
    honest = data["none"][: N - F].mean(0)
    rows = []
    for attack, vectors in data.items():
        for name, rule in RULES.items():
            mine, other = ours(vectors, rule), theirs.get(f"{attack}/{name}")
            row: dict[str, Any] = {"attack": attack, "rule": name, "ours": _distance(mine, honest)}
            if environment is not None:
                row["byzfl"] = _distance(other, honest)
                row["difference"] = None if mine is None or other is None else _distance(mine, other)
            rows.append(row)
    return rows


def _distance(a: Array | None, b: Array) -> float | None:
    return None if a is None or not np.isfinite(a).all() else float(np.linalg.norm(a - b))


def python_with_byzfl(environment: Path) -> Path:
    """The interpreter of ByzFL's environment, which is created if it does not exist."""
    python = environment / "bin" / "python"
    if not (environment / "ready").exists():
        shutil.rmtree(environment, ignore_errors=True)
        venv.create(environment, with_pip=True)
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        paths = [path for path in sys.path if Path(path).name == "site-packages"]
        (environment / "lib" / version / "site-packages" / "ours.pth").write_text("\n".join(paths) + "\n")
        install = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", BYZFL]
        subprocess.run(install, check=True)
        (environment / "ready").touch()
    return python


def byzfl(environment: Path, data: dict[str, Array]) -> dict[str, Array]:
    """ByzFL's results, by ``attack/rule``; the environment is created if it does not exist."""
    python = python_with_byzfl(environment)
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "vectors.npz", Path(folder) / "results.npz"
        np.savez(source, **data)  # type: ignore[arg-type]
        subprocess.run([str(python), str(SIDE), str(source), str(target), str(F)], check=True)
        with np.load(target) as found:
            return dict(found)
