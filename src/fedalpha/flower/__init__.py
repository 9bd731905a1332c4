"""fedalpha on Flower: fedalpha's strategies in a Flower federation, without torch on the server.

On the server, use `FedAlpha` in place of Flower's own strategy::

    strategy = FedAlpha("FedSoftWorse(T=0.2)", fraction_train=0.5)
    result = strategy.start(grid, initial_arrays, num_rounds=20)

On the clients, `add_loss_query` lets an existing ``ClientApp`` report its id and its loss
(`loss_query_mod` does the same for apps made with ``client_fn``). `client_app` makes a complete ``ClientApp``
from a PyTorch model and the data of a node; `initial_arrays` and `evaluate_on` are its counterparts on
the server.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if find_spec("flwr") is None:
    raise ModuleNotFoundError("fedalpha.flower needs Flower: pip install 'fedalpha[flower]'", name="flwr")

from fedalpha.flower.queries import add_loss_query, loss_query_mod

if TYPE_CHECKING:
    from fedalpha.flower.client_clipping import clipping
    from fedalpha.flower.pytorch import client_app, evaluate_on, initial_arrays
    from fedalpha.flower.secure_client import secured
    from fedalpha.flower.strategy import FedAlpha

__all__ = [
    "FedAlpha",
    "add_loss_query",
    "client_app",
    "clipping",
    "evaluate_on",
    "initial_arrays",
    "loss_query_mod",
    "secured",
]


def __getattr__(name: str) -> Any:
    if name in __all__:  # a client needs neither the server's part nor, with JAX or scikit-learn, torch
        part = {"FedAlpha": "strategy", "clipping": "client_clipping", "secured": "secure_client"}.get(name, "pytorch")
        return getattr(import_module(f"fedalpha.flower.{part}"), name)
    raise AttributeError(f"module 'fedalpha.flower' has no attribute {name!r}")
