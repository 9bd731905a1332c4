"""Clocks: the simulated seconds from sending a model to a client until the server has the client's update."""

from __future__ import annotations

from fedalpha.clock.speeds.base import CLOCKS, Clock, Drawn, Moment, Wrapped

__all__ = ["CLOCKS", "Clock", "Drawn", "Moment", "Wrapped"]
