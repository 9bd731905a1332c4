"""What is measured on a run, written as text; one class per measure.

- a column of the history that says which way is better (``accuracy``, ``loss``, ``worst_client_accuracy``,
  ``client_accuracy_spread``): at the final round, or at a named one (``accuracy@20``); never at the best one.
- ``R_60``: the smallest r such that the model after r rounds has at least 60 % test accuracy.
- ``bytes_to_60``, ``steps_to_60``: all bytes (both ways), all local steps until then.
- ``auc``: the mean accuracy over rounds 0 … the last one (trapezoids).
- ``fall``: how much accuracy is lost from one round to the next, on average (a rise counts as 0): instability.

A new measure is one new file here (or a user's plugin) with a class that is derived from `Whole` or `Until`.
"""

from fedalpha.analysis.measures.base import MEASURES, Curve, Measure, Measured, Until, Whole, curve

__all__ = ["MEASURES", "Curve", "Measure", "Measured", "Until", "Whole", "curve"]
