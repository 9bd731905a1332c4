"""Messages of apps that were made with a ``client_fn``: other names of records, arrays without names."""

from __future__ import annotations

from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp.typing import ClientAppCallable

_RECORDS = {"train": ("fitins", "fitres"), "evaluate": ("evaluateins", "evaluateres")}


def translated(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Translate a message for a ``client_fn`` app, and its reply to the form of present apps."""
    category = message.metadata.message_type.split(".")[0]
    ins, res = _RECORDS.get(category, ("", ""))
    sent = message.content
    if not ins or f"{ins}.parameters" in sent.array_records:  # not for the client, or from a server of that kind
        return call_next(message, context)
    arrays = next(iter(sent.array_records.values()))
    told: list[tuple[str, Any]] = [item for record in sent.config_records.values() for item in record.items()]
    config = {key: value for key, value in told if not isinstance(value, list)}
    message.content = RecordDict({f"{ins}.parameters": arrays, f"{ins}.config": ConfigRecord(config)})
    try:
        reply = call_next(message, context)
    finally:
        message.content = sent
    if not reply.has_error():
        reply.content = _present(reply.content, res, arrays)
    return reply


def _present(content: RecordDict, res: str, sent: ArrayRecord) -> RecordDict:
    status: dict[str, Any] = dict(content.config_records[f"{res}.status"])
    if status["code"] != 0:
        raise RuntimeError(f"the client returned {status['message'] or 'an error'} (status {status['code']})")
    told: dict[str, Any] = dict(content.config_records[f"{res}.metrics"])
    metrics = MetricRecord({k: v for k, v in told.items() if isinstance(v, int | float) and not isinstance(v, bool)})
    if f"{res}.loss" in content.metric_records:
        metrics["loss"] = content.metric_records[f"{res}.loss"]["loss"]
    metrics["num-examples"] = content.metric_records[f"{res}.num_examples"]["num_examples"]
    found = RecordDict({"metrics": metrics})
    if f"{res}.parameters" in content.array_records:
        trained = list(content.array_records[f"{res}.parameters"].values())
        if len(trained) != len(sent):
            raise ValueError(f"fit returned {len(trained)} arrays, {len(sent)} were sent")
        named = {name: Array(array.numpy()) for name, array in zip(sent, trained, strict=True)}
        found["arrays"] = ArrayRecord(named)
    return found
