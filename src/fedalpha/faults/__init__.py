"""Faults and attacks as settings: what goes wrong on purpose, seeded like everything else.

A fault is a frozen object written as text, ``drop(p=0.1)`` or ``together(lie(loss=1e9, clients=1),
sign_flip(clients=1))``. It may change a client's data (`label_flip`), its answers to questions for losses
(`lie`), and its reports (everything else); it cannot touch the server. `accidents` happen, `attacks` are meant.
"""

from __future__ import annotations

from fedalpha.faults.accidents import drop, malformed, nan, replay, straggler
from fedalpha.faults.attacks import (
    alie,
    free_rider,
    gaussian,
    ipm,
    label_flip,
    lie,
    mimic,
    scale,
    sign_flip,
    together,
)
from fedalpha.faults.base import FAULTS, Fault, Faulty, Scene

__all__ = [
    "FAULTS",
    "Fault",
    "Faulty",
    "Scene",
    "alie",
    "drop",
    "free_rider",
    "gaussian",
    "ipm",
    "label_flip",
    "lie",
    "malformed",
    "mimic",
    "nan",
    "replay",
    "scale",
    "sign_flip",
    "straggler",
    "together",
]
