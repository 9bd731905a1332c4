"""*Apply*: how the server installs the aggregate.

An apply rule is a frozen object; ``apply(state, broadcast, aggregate) -> (broadcast, state)``. Plain
replacement is the paper's; server optimisers treat w_t − aggregate as a gradient.
"""

from __future__ import annotations

from fedalpha.apply.base import APPLIES, Apply
from fedalpha.apply.optimisers import fedadagrad, fedadam, fedavgm, fedyogi
from fedalpha.apply.replace import replace

__all__ = ["APPLIES", "Apply", "fedadagrad", "fedadam", "fedavgm", "fedyogi", "replace"]
