"""*Client update*: how a client trains from the model it received.

An update is a frozen object; ``update(site, broadcast, data, state, draws) -> report`` is pure: it
depends on what was broadcast, on the client's own data and state, and on its own generators.
"""

from __future__ import annotations

from fedalpha.update.base import UPDATES, Broadcast, Report, Site, Update
from fedalpha.update.fedpage import fedpage
from fedalpha.update.fedprox import fedprox
from fedalpha.update.lbfgs import lbfgs
from fedalpha.update.page import page
from fedalpha.update.scaffold import scaffold
from fedalpha.update.schedules import SCHEDULES, Schedule
from fedalpha.update.sgd import sgd

__all__ = [
    "SCHEDULES",
    "UPDATES",
    "Broadcast",
    "Report",
    "Schedule",
    "Site",
    "Update",
    "fedpage",
    "fedprox",
    "lbfgs",
    "page",
    "scaffold",
    "sgd",
]
