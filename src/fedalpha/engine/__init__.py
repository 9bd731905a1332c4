"""Engines: where clients are computed, behind one narrow interface (`Engine`).

The embedded engine runs on this machine, in this process or in several forked workers. Engines
give the same bytes: a client's update depends on the broadcast, its own data and its own
generators only, and sums are formed in an order that depends on the cohort alone.
"""

from __future__ import annotations

from fedalpha.engine.base import Engine, Evaluation, Job, Sample
from fedalpha.engine.embedded import Embedded

__all__ = ["Embedded", "Engine", "Evaluation", "Job", "Sample"]
