"""Checks of replies, one by one. A reply that fails a check raises `Rejected`; the others are used."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import Message, MetricRecord

from fedalpha.flower.sums import Arrays, is_float

OURS = "fedalpha."
"""The names of records that fedalpha adds to a message (extras, client state) begin with this."""
_SAME = "send back the arrays that were received, under the same names"


class Rejected(Exception):  # noqa: N818 - it says what happened to a reply
    """A reply is not used, for the reason that the message gives."""


def content_of(reply: Message | None) -> Any:
    """The content of a reply; raises `Rejected` if there is none."""
    if reply is None:
        raise Rejected("no reply in time")
    if reply.has_error():
        reason = (reply.error.reason or "").strip().splitlines()
        raise Rejected(f"error {reply.error.code}: {reason[-1] if reason else 'no reason given'}")
    return reply.content


def metrics_of(reply: Message | None) -> MetricRecord:
    """The one MetricRecord of a reply."""
    records: list[MetricRecord] = list(content_of(reply).metric_records.values())
    if len(records) != 1:
        raise Rejected(f"{len(records)} MetricRecords, expected exactly one")
    return records[0]


def number(metrics: Mapping[str, Any], key: str, *, whole: bool = False) -> Any:
    """A finite number ≥ 0 under ``key`` (a whole number with ``whole``)."""
    value = finite(metrics, key)
    if value < 0 or (whole and value != int(value)):
        raise Rejected(f"{key} = {value!r}, expected a {'whole ' if whole else ''}number ≥ 0")
    return int(value) if whole else value


def finite(metrics: Mapping[str, Any], key: str) -> float:
    """A finite number under ``key``."""
    value = metrics.get(key)
    if value is None:
        raise Rejected(f"no metric {key!r} among {sorted(metrics) or 'no metrics'}")
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Rejected(f"{key} = {value!r}, expected a finite number")
    return float(value)


def arrays_of(reply: Message | None, sent: Arrays) -> Arrays:
    """The arrays of a reply: the names, shapes and dtypes that were sent, and finite."""
    found = content_of(reply).array_records.items()
    records = [record for name, record in found if not name.startswith(OURS)]
    if len(records) != 1:
        raise Rejected(f"{len(records)} ArrayRecords, expected exactly one")
    record = records[0]
    if record.keys() != sent.keys():
        extra, missing = sorted(record.keys() - sent.keys()), sorted(sent.keys() - record.keys())
        raise Rejected(f"arrays missing: {missing}, unknown: {extra}; {_SAME}")
    arrays: Arrays = {}
    for name, old in sent.items():
        try:
            value = record[name].numpy()
        except Exception as error:
            raise Rejected(f"array {name!r} cannot be read: {error}") from None
        if value.shape != old.shape:
            raise Rejected(f"array {name!r} has shape {value.shape}, expected {old.shape}; {_SAME}")
        if value.dtype != old.dtype:
            raise Rejected(f"array {name!r} is {value.dtype}, expected {old.dtype}; {_SAME}")
        if is_float(value) and not np.isfinite(value).all():
            raise Rejected(f"array {name!r} holds NaN or infinity")
        arrays[name] = value
    return arrays
