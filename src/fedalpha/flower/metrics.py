"""Metrics of a round: the user's own, aggregated where all replies have them, and those of fedalpha."""

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
    """Apply a Flower metrics function to the metrics that all replies have; None if there are none or it fails."""
    if not contents:
        return None
    records = [next(iter(c.metric_records.values())) for c in contents]
    shared = set(records[0]).intersection(*records[1:])
    clean = [RecordDict({"metrics": MetricRecord({k: r[k] for k in r if k in shared})}) for r in records]
    try:
        return function(clean, weighted_by_key)
    except Exception as error:  # a user's function failed, or the weights sum to 0; the model does not need it
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
