"""Engines: where clients are computed. Each is one file in this folder with the same interface (`Engine`).

All engines give the same bytes: a client's update depends on the broadcast, its own data and its own generators only,
and sums are formed in an order that depends on the cohort alone. Ray and Flower are imported only where they are
used.
"""

from __future__ import annotations

from fedalpha.engine.base import ENGINES, Place

__all__ = ["ENGINES", "Place"]
