"""Staleness discounts: how much less an update counts that was made from an older version of the model."""

from __future__ import annotations

from fedalpha.strategies.discounts.base import DISCOUNTS, Discount

__all__ = ["DISCOUNTS", "Discount"]
