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
    from fedalpha.analysis.compared import Comparison
    from fedalpha.analysis.conditions import Patience
    from fedalpha.analysis.history import History
    from fedalpha.data import federation
    from fedalpha.round import Algorithm
    from fedalpha.runs.callbacks import Callback, StopWhen
    from fedalpha.runs.comparing import compare
    from fedalpha.runs.evaluate import Evaluate
    from fedalpha.runs.experiment import Interrupted, run
    from fedalpha.task import Task

__version__ = "0.1.0"
__all__ = [
    "Algorithm",
    "Callback",
    "Cohort",
    "Comparison",
    "Evaluate",
    "History",
    "Interrupted",
    "Patience",
    "StopWhen",
    "Strategy",
    "Task",
    "__version__",
    "compare",
    "federation",
    "run",
    "strategy",
    "weights",
]

_LAZY = {
    "Algorithm": "fedalpha.round",
    "Callback": "fedalpha.runs.callbacks",
    "Comparison": "fedalpha.analysis.compared",
    "Evaluate": "fedalpha.runs.evaluate",
    "History": "fedalpha.analysis.history",
    "Interrupted": "fedalpha.runs.experiment",
    "Patience": "fedalpha.analysis.conditions",
    "StopWhen": "fedalpha.runs.callbacks",
    "Task": "fedalpha.task",
    "compare": "fedalpha.runs.comparing",
    "federation": "fedalpha.data",
    "run": "fedalpha.runs.experiment",
}
"""What needs more than NumPy, and where it is; imported when it is first used."""


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'fedalpha' has no attribute {name!r}")


def __dir__() -> list[str]:
    """What `fedalpha.` offers; submodules such as `fedalpha.theory` are imported by name."""
    return sorted(__all__)
