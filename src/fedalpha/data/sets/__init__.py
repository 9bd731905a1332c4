"""*Data sets*, one file each: what they hold, where their files come from, how they are read.

A new data set is one file in this folder, or in a plugin: a class registered in `DATASETS`. `Partitioned` is
one pool of samples that a partition splits over clients; `Natural` comes client by client. The name then works
wherever a data set is named: ``--dataset``, studies, ``fedalpha data``, ``fedalpha partition``, `federation`.
"""

from __future__ import annotations

from fedalpha.data.sets.base import DATASETS, DataSet, Natural, Partitioned, Samples

__all__ = ["DATASETS", "DataSet", "Natural", "Partitioned", "Samples"]
