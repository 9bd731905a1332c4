"""Problems whose constants are all known, on which the bounds are checked.

A new problem is a subclass of `Problem` in a file of this package, with a random generator
registered in `PROBLEMS`.
"""

from __future__ import annotations

from fedalpha.theory.problems.base import PROBLEMS, Problem
from fedalpha.theory.problems.quadratics import Quadratics, quadratics
from fedalpha.theory.problems.ridge import Ridge, ridge
from fedalpha.theory.problems.softmax import Softmax, softmax_regression

__all__ = ["PROBLEMS", "Problem", "Quadratics", "Ridge", "Softmax", "quadratics", "ridge", "softmax_regression"]
