"""Metrics of a round: the users' own, averaged over what all replies share, and fedalpha's beside them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from logging import WARNING
from typing import Any

from flwr.app import MetricRecord, RecordDict
from flwr.supercore import log


def average(
    contents: list[RecordDict], function: Callable[[list[RecordDict], str], MetricRecord], weighted_by_key: str
) -> MetricRecord | None:
    """A Flower metrics function on the metrics that all replies share; None if there is nothing or it fails."""
    if not contents:
        return None
    records = [next(iter(c.metric_records.values())) for c in contents]
    shared = set(records[0]).intersection(*records[1:])
    clean = [RecordDict({"metrics": MetricRecord({k: r[k] for k in r if k in shared})}) for r in records]
    try:
        return function(clean, weighted_by_key)
    except Exception as error:  # a user's function, or weights that sum to zero: the model does not depend on it
        log(WARNING, "fedalpha: metrics could not be aggregated: %s", error)
        return None


def report(row: Mapping[str, Any], metrics: MetricRecord | None) -> MetricRecord:
    """The metrics of a round with per-client losses and alpha, and the bytes."""
    record = MetricRecord(dict(metrics or {}))
    record["fedalpha.clients"] = row["cohort"]
    record["fedalpha.alpha"] = row["alpha"]
    for kind, values in row["losses"].items():
        record[f"fedalpha.loss.{kind}"] = [math.nan if v is None else v for v in values]
    for key in ("bytes_down", "bytes_up"):
        record[f"fedalpha.{key}"] = row[key]
    record["fedalpha.refused"] = len(row["refused"])
    return record
