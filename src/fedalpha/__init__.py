"""fedalpha: how a federated-learning server should weigh its clients.

The stable core needs NumPy only: `strategy` and `weights`. Everything that trains is imported
when it is first used.

>>> import fedalpha
>>> fedalpha.weights("FedWorse(k=0.5)", losses=[0.3, 0.9], sizes=[100, 50])
array([0., 1.])
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedalpha.strategies import Cohort, Strategy, strategy, weights

if TYPE_CHECKING:
    from fedalpha.data import federation
    from fedalpha.runs.experiment import run

__version__ = "0.1.0"
__all__ = ["Cohort", "Strategy", "__version__", "federation", "run", "strategy", "weights"]

_LAZY = {"run": "fedalpha.runs.experiment", "federation": "fedalpha.data"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'fedalpha' has no attribute {name!r}")
