"""*Data*: data sets by name, partitions over clients, and federations made of either or of the user's own data."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedalpha.data.fetching import DataUnavailable
from fedalpha.data.partitions import PARTITIONS, Partition
from fedalpha.data.picture import describe_partition, plot_partition
from fedalpha.data.sets import DATASETS, DataSet, Natural, Partitioned, Samples

if TYPE_CHECKING:
    from fedalpha.data.build import federation
    from fedalpha.data.federations import Examples, Federation, Generated, Pooled

__all__ = [
    "DATASETS",
    "PARTITIONS",
    "DataSet",
    "DataUnavailable",
    "Examples",
    "Federation",
    "Generated",
    "Natural",
    "Partition",
    "Partitioned",
    "Pooled",
    "Samples",
    "describe_partition",
    "federation",
    "plot_partition",
]

# These need torch, which takes seconds to import and which listing data sets does not need.
_LAZY = {"federation": "build"} | dict.fromkeys(("Examples", "Federation", "Generated", "Pooled"), "federations")


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"fedalpha.data.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'fedalpha.data' has no attribute {name!r}")
