"""*Data*: data sets by name, and how they are split over clients."""

from __future__ import annotations

from fedalpha.data.partitions import PARTITIONS, Partition
from fedalpha.data.picture import describe_partition, plot_partition
from fedalpha.data.sources import DataUnavailable, Source, load

__all__ = ["PARTITIONS", "DataUnavailable", "Partition", "Source", "describe_partition", "load", "plot_partition"]
