"""*Combine*: turn the clients' models and alpha into one aggregate.

A combine rule is a frozen object; ``combine(state, broadcast, reports, alpha) -> (aggregate, state)``.
A *linear* rule needs only Σ alpha_i·w_i, which an engine may compute as sums over fixed
blocks of the id-sorted cohort; other rules collect all reports.
"""

from __future__ import annotations

from fedalpha.combine.base import COMBINES, Combine, Reports
from fedalpha.combine.centred import centred
from fedalpha.combine.clip import clip
from fedalpha.combine.fedaware import fedaware
from fedalpha.combine.feddist import feddist
from fedalpha.combine.fedlaw import fedlaw
from fedalpha.combine.fedlws import fedlws
from fedalpha.combine.geomed import geomed
from fedalpha.combine.krum import krum
from fedalpha.combine.mean import mean
from fedalpha.combine.median import median
from fedalpha.combine.nnm import nnm
from fedalpha.combine.noise import noise
from fedalpha.combine.pfnm import pfnm
from fedalpha.combine.sums import Sum, weighted_sum
from fedalpha.combine.trimmed import trimmed
from fedalpha.fast.blocks import blocks

__all__ = [
    "COMBINES",
    "Combine",
    "Reports",
    "Sum",
    "blocks",
    "centred",
    "clip",
    "fedaware",
    "feddist",
    "fedlaw",
    "fedlws",
    "geomed",
    "krum",
    "mean",
    "median",
    "nnm",
    "noise",
    "pfnm",
    "trimmed",
    "weighted_sum",
]
