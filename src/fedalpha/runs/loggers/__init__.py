"""*Loggers*, one file each: callbacks that are written as text, such as ``csv(rounds.csv)``.

A logger watches a run and changes no byte of it, so it is not part of the run's configuration. It is named on the
command line (``--log``) or among the ``callbacks`` of `fedalpha.run`. A new logger is one file in this folder, or in a
plugin: a `Callback` registered in `LOGGERS`.
"""

from __future__ import annotations

from fedalpha.runs.loggers.base import LOGGERS

__all__ = ["LOGGERS"]
