"""Shared by the tests on a real SuperLink."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

NODES = 3


def alive(id: int) -> bool:
    try:
        return Path(f"/proc/{id}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def until(condition: Callable[[], Any], seconds: float = 1800) -> Any:
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.2)
    return found


def rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of the rounds, without that of the initial model."""
    path = folder / "history.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()][1:] if path.exists() else []


def final(folder: Path) -> np.ndarray:
    """The model that the server app of ``app/quadratic`` wrote at its end."""
    return np.asarray(np.load(folder / "w.npy"))


def expected(rounds: int) -> tuple[np.ndarray, list[list[float]]]:
    """FedWorse(k=2) by hand."""
    w, alphas = np.zeros(4, dtype=np.float32), []
    targets = np.array([[i, 1, -i, 0.5] for i in range(NODES)], dtype=np.float32)
    for _ in range(rounds):
        losses = ((w - targets) ** 2).sum(axis=1)
        alpha = np.where(np.argsort(np.argsort(-losses)) < 2, 0.5, 0.0)
        w = (alpha[:, None] * ((w + targets) / 2)).sum(axis=0).astype(np.float32)
        alphas.append(alpha.tolist())
    return w, alphas
