"""*Data*: data sets by name, and how they are split over clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedalpha.data.fetching import DataUnavailable
from fedalpha.data.partitions import PARTITIONS, Partition
from fedalpha.data.picture import describe_partition, plot_partition
from fedalpha.data.sources import Source, check_dataset, load

if TYPE_CHECKING:
    from fedalpha.data.federations import Examples, Federation, Generated, Pooled, federation

__all__ = [
    "PARTITIONS",
    "DataUnavailable",
    "Examples",
    "Federation",
    "Generated",
    "Partition",
    "Pooled",
    "Source",
    "check_dataset",
    "describe_partition",
    "federation",
    "load",
    "plot_partition",
]

_NEED_TORCH = ("Examples", "Federation", "Generated", "Pooled", "federation")


def __getattr__(name: str) -> Any:
    if name in _NEED_TORCH:
        import importlib

        return getattr(importlib.import_module("fedalpha.data.federations"), name)
    raise AttributeError(f"module 'fedalpha.data' has no attribute {name!r}")
