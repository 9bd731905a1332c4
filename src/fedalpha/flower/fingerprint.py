"""A digest of a training message, by which clients check that all of them train on the same message."""

from __future__ import annotations

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fedalpha.flower.names import SECURE
from fedalpha.secure.keys import digest
from fedalpha.secure.wire import pack


def fingerprint(content: RecordDict) -> bytes:
    """The digest of all records but that of the secure sum: names, arrays with their form, and settings.

    Without it a lying server could send models or learning rates with which only one client learns. The sum
    would then be that client's update (Pasquini, Francati and Ateniese, 2022).
    """
    records = sorted((name, record) for name, record in content.items() if name != SECURE)
    return digest(pack([[name, type(record).__name__, _told(record)] for name, record in records]))


def _told(record: ArrayRecord | ConfigRecord | MetricRecord) -> list[object]:
    if isinstance(record, ArrayRecord):
        arrays = sorted(record.items())
        return [[name, a.dtype, list(a.shape), a.stype, digest(a.data)] for name, a in arrays]
    return [[name, value] for name, value in sorted(record.items())]
