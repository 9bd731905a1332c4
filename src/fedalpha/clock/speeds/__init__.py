"""Clocks: how many simulated seconds a client takes from receiving a model until the server has its update."""

from __future__ import annotations

from fedalpha.clock.speeds.base import CLOCKS, Clock, Drawn, Moment, Wrapped

__all__ = ["CLOCKS", "Clock", "Drawn", "Moment", "Wrapped"]
