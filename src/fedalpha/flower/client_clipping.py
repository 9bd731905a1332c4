"""Clipping on the client, for updates that are sent unmasked, whatever the server does."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from fedalpha.flower.names import CLIP, CLIPPED, OURS, UPLOAD
from fedalpha.flower.queries import check_app
from fedalpha.flower.sums import distance, is_float

_TRIES = 20


def clipping(app: ClientApp, norm: float | None = None) -> ClientApp:
    """Wrap an app so that it sends no update with a Euclidean norm above ``norm``; longer ones are scaled down.

    Without ``norm`` the C of the server's combine rule is used, ``clip(mean, C=…)`` or ``noise(clip(mean, C=…), …)``;
    with both, the smaller one. The reply contains the norm to which the update was clipped, and `FedAlpha` refuses an
    update with a larger norm. The server clips all updates in any case. Under a secure sum use
    ``secured(app, clip=…)``.
    """
    check_app(app, "clipping")
    if norm is not None and not 0 < norm < math.inf:
        raise ValueError(f"norm = {norm}; give the largest norm of an update, a number > 0, or None")
    return _Clipping(app, norm)


class _Clipping(ClientApp):
    """A wrapper of an app, which changes only the updates of its training."""

    def __init__(self, app: ClientApp, norm: float | None) -> None:
        super().__init__()
        self.app, self.norm = app, norm

    def __call__(self, message: Message, context: Context) -> Message:
        if message.metadata.message_type.split(".")[0] != MessageType.TRAIN:
            return self.app(message, context)
        most = self._most(message)
        _, received = _model(message)
        sent = {name: array.numpy() for name, array in received.items()}
        reply = self.app(message, context)
        if reply.has_error():
            return reply
        if UPLOAD in reply.content.array_records:
            raise ValueError(
                "the server asks for compressed updates, whose norm this app cannot bound; leave out upload= on "
                "the server, or clipping() on the client"
            )
        name, record = _model(reply)
        model = {key: array.numpy() for key, array in record.items()}
        if model.keys() != sent.keys() or any(model[key].shape != old.shape for key, old in sent.items()):
            raise ValueError("this app sends back other arrays than it received, so its update cannot be clipped")
        short = shortened(model, sent, most)
        if short is not model:
            reply.content[name] = ArrayRecord({key: Array(value) for key, value in short.items()})
        reply.content[CLIPPED] = ConfigRecord({"norm": most})
        return reply

    def _most(self, message: Message) -> float:
        told = [r[CLIP] for r in message.content.config_records.values() if CLIP in r]
        norms = [float(value) for value in told if isinstance(value, float) and value > 0]  # NaN is not > 0
        if self.norm is None and not norms:
            raise ValueError(
                "clipping(app) takes the norm from the server, whose combine rule has none; pass norm=, or run the "
                "server with combine='clip(mean, C=…)'"
            )
        return min([*norms, *([] if self.norm is None else [self.norm])])


def shortened(model: dict[str, NDArray[Any]], sent: dict[str, NDArray[Any]], most: float) -> dict[str, NDArray[Any]]:
    """The model, moved towards the sent model until its distance is at most ``most``; the same object if it already is.

    >>> shortened({"w": np.array([3.0, 4.0])}, {"w": np.zeros(2)}, 1.0)["w"].round(3)
    array([0.6, 0.8])
    """
    length, share, found = distance(model, sent), 1.0, model
    if not math.isfinite(length):
        raise ValueError("the update of this app is not finite, so it cannot be clipped")
    for _ in range(_TRIES):
        if length <= most:
            return found
        share *= most / length * (1 - 1e-6)  # a little below: values are rounded to the type of the model again
        found = {
            name: (sent[name] + share * (value.astype(np.float64) - sent[name])).astype(value.dtype)
            if is_float(value)
            else value
            for name, value in model.items()
        }
        length = distance(found, sent)
    return {name: sent[name] if is_float(value) else value for name, value in model.items()}


def _model(message: Message) -> tuple[str, ArrayRecord]:
    """The name of the record that holds the model, and the record."""
    found = [item for item in message.content.array_records.items() if not item[0].startswith(OURS)]
    if len(found) != 1:
        raise ValueError(f"{len(found)} ArrayRecords, expected exactly one, so the update cannot be clipped")
    return found[0]
