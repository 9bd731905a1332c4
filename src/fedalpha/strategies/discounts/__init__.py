"""Staleness discounts: functions that reduce the weight of updates made from an older version of the model."""

from __future__ import annotations

from fedalpha.strategies.discounts.base import DISCOUNTS, Discount

__all__ = ["DISCOUNTS", "Discount"]
