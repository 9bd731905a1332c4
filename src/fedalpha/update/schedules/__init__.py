"""*Learning-rate schedules*: functions of the round.

A new schedule is one file in this folder, or in a plugin: a class registered in `SCHEDULES`.
"""

from __future__ import annotations

from fedalpha.update.schedules.base import SCHEDULES, Schedule
from fedalpha.update.schedules.constant import constant

__all__ = ["SCHEDULES", "Schedule", "constant"]
