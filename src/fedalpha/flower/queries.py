"""Queries that a client answers before it trains: its id, and its loss under the model it was sent.

Both are Flower *query* messages: ``query.client`` (stable id and number of examples) and
``query.loss`` (the loss of the arrays in the message, on this client's training data).
"""

from __future__ import annotations

from collections.abc import Callable

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable, Mod

ASK_CLIENT = "query.client"
ASK_LOSS = "query.loss"
CLIENT_ID = "client-id"
EXAMPLES = "num-examples"
LOSS = "loss"
LABELS = "labels"
"""The metric of a training reply with the client's class counts, for rules that need ``labels``."""
METRICS = "metrics"
WANTED = "fedalpha.losses"
"""In the configuration of a training message: what the rule looks at besides the ``train`` loss."""

Loss = Callable[[ArrayRecord, Context], tuple[float, int]]
"""``loss(arrays, context) -> (mean loss on this client's training data, number of examples)``."""


def stable_id(context: Context) -> int:
    """The client's id: ``client-id`` of the node's configuration, otherwise ``partition-id``.

    A node id cannot be used: Flower draws a new one whenever a node registers again.
    """
    for key in (CLIENT_ID, "partition-id"):
        value = context.node_config.get(key)
        if value is not None:
            return _checked_id(value, f"{key} in --node-config")
    raise ValueError(
        'this node has no stable id; start it with --node-config "client-id=7", or pass client_id= to '
        "add_loss_query, loss_query_mod or client_app"
    )


def add_loss_query(
    app: ClientApp,
    loss: Loss,
    *,
    examples: Callable[[Context], int] | None = None,
    client_id: Callable[[Context], int] = stable_id,
) -> ClientApp:
    """Let a ``ClientApp`` (with ``@app.train()`` handlers) answer the two queries; returns the app.

    ``loss(arrays, context)`` returns the mean loss on this client's training data and the number of
    examples. ``examples(context)`` returns that number alone, before anything else is asked; without it
    the number is learnt from the client's first loss or model. Mods of the app that only fit training
    (clipping …) belong to ``@app.train(mods=[…])``.

    >>> app = add_loss_query(ClientApp(), lambda arrays, context: (0.5, 100))
    """

    @app.query(ASK_CLIENT.split(".")[1])
    def client(message: Message, context: Context) -> Message:
        return _tell_client(message, context, examples, client_id)

    @app.query(ASK_LOSS.split(".")[1])
    def query_loss(message: Message, context: Context) -> Message:
        return _tell_loss(message, context, loss, client_id)

    return app


def loss_query_mod(
    loss: Loss,
    *,
    examples: Callable[[Context], int] | None = None,
    client_id: Callable[[Context], int] = stable_id,
) -> Mod:
    """The same for apps made with a ``client_fn``: ``ClientApp(client_fn, mods=[loss_query_mod(loss)])``."""

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        if message.metadata.message_type == ASK_CLIENT:
            return _tell_client(message, context, examples, client_id)
        if message.metadata.message_type == ASK_LOSS:
            return _tell_loss(message, context, loss, client_id)
        return call_next(message, context)

    return mod


def _tell_client(
    message: Message, context: Context, examples: Callable[[Context], int] | None, client_id: Callable[[Context], int]
) -> Message:
    told: dict[str, int] = {CLIENT_ID: _checked_id(client_id(context), "client_id(context)")}
    if examples is not None:
        told[EXAMPLES] = int(examples(context))
    return Message(RecordDict({METRICS: MetricRecord(dict(told))}), reply_to=message)


def _tell_loss(message: Message, context: Context, loss: Loss, client_id: Callable[[Context], int]) -> Message:
    arrays = next(iter(message.content.array_records.values()))
    value, examples = loss(arrays, context)
    id = _checked_id(client_id(context), "client_id(context)")
    metrics = MetricRecord({CLIENT_ID: id, LOSS: float(value), EXAMPLES: int(examples)})
    return Message(RecordDict({METRICS: metrics}), reply_to=message)


def _checked_id(value: object, where: str) -> int:
    try:
        id = int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        id = -1
    if not 0 <= id < 2**63 or isinstance(value, float):
        raise ValueError(f"{where} is {value!r}; a client's stable id is a whole number ≥ 0")
    return int(id)
