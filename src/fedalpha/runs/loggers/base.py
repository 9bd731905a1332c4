"""The registry of loggers."""

from __future__ import annotations

from fedalpha.runs.callbacks import Callback
from fedalpha.text import Registry

LOGGERS: Registry[Callback] = Registry("logger", Callback, package=__package__)
"""Every logger that can be written as text."""
