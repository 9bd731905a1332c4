"""Availability: when a client can be reached."""

from __future__ import annotations

from fedalpha.clock.availability.always import always
from fedalpha.clock.availability.base import AVAILABILITIES, Availability

__all__ = ["AVAILABILITIES", "Availability", "always"]
