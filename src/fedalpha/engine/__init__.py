"""Engines: where clients are computed, behind one narrow interface (`Engine`).

The embedded engine runs on this machine, in this process or in several forked workers; the Ray
engine on a Ray cluster; the Flower engine on Flower's simulation runtime. Engines give the same bytes: a
client's update depends on the broadcast, its own data and its own generators only, and sums are
formed in an order that depends on the cohort alone.
"""

from __future__ import annotations

from fedalpha.data.federations import Federation
from fedalpha.engine.base import Engine, Evaluation, Job, Sample
from fedalpha.engine.embedded import Embedded
from fedalpha.task import Task
from fedalpha.update import Update

__all__ = ["Embedded", "Engine", "Evaluation", "Job", "Sample", "make_engine"]


def make_engine(
    name: str,
    federation: Federation,
    task: Task,
    update: Update,
    seed: int,
    *,
    workers: int | None = None,
    device: str = "cpu",
    vectorise: bool | None = None,
    ray_address: str | None = None,
) -> Engine:
    """The engine called ``name``; Ray and Flower are imported only where they are used."""
    if ray_address is not None and name != "ray":
        raise ValueError(f"ray_address = {ray_address!r} needs engine = ray, not {name!r}")
    match name:
        case "embedded":
            return Embedded(federation, task, update, seed, workers, device, vectorise)
        case "ray":
            from fedalpha.engine.ray import Ray

            return Ray(federation, task, update, seed, workers, device, vectorise, ray_address)
        case "flower":
            if vectorise:
                raise ValueError("vectorise=True needs the embedded or the ray engine: a Flower node is one client")
            from fedalpha.engine.flower import Flower

            return Flower(federation, task, update, seed, workers, device)
    raise ValueError(f"engine = {name!r} is not one of embedded, ray, flower")
