"""Faults and attacks as settings: what goes wrong on purpose, seeded like everything else.

A fault is a frozen object written as text, ``drop(p=0.1)`` or ``together(lie(loss=1e9, clients=1),
sign_flip(clients=1))``. It may change a client's data (`label_flip`), its answers to questions for losses
(`lie`), and its reports (everything else); it cannot touch the server. A new fault is one file in this folder, or in a
plugin: a class registered in `FAULTS`.

- Accidents happen to honest clients: `drop`, `straggler`, `nan`, `malformed`, `replay`.
- Attacks are meant, alone (`lie`, `label_flip`, `sign_flip`, `scale`, `gaussian`, `free_rider`) or in collusion
  (`alie`, `ipm`, `mimic`).
- `together` lets several happen in one run.
"""

from __future__ import annotations

from fedalpha.defence.faults.base import FAULTS, Fault, Faulty, Scene

__all__ = ["FAULTS", "Fault", "Faulty", "Scene"]
