"""Queries that a client answers before training: its id, and its loss under the model in the query.

Both are Flower *query* messages: ``query.client`` (stable id and number of examples) and
``query.loss`` (the loss of the arrays in the message, on this client's training data).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from flwr.app import ArrayRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable, Mod

from fedalpha.flower.legacy import translated

ASK_CLIENT = "query.client"
ASK_LOSS = "query.loss"
CLIENT_ID = "client-id"
EXAMPLES = "num-examples"
LOSS = "loss"
LABELS = "labels"
"""The metric of a training reply with the client's class counts, for rules that need ``labels``."""
METRICS = "metrics"
WANTED = "fedalpha.losses"
"""In the configuration of a training message: the values that the rule needs besides the ``train`` loss."""

Loss = Callable[[ArrayRecord, Context], tuple[float, int]]
"""``loss(arrays, context) -> (mean loss on this client's training data, number of examples)``."""
_Answer = Callable[[Message, Context], tuple[float, int]]


def stable_id(context: Context) -> int:
    """The client's id: ``client-id`` of the node's configuration, otherwise ``partition-id``.

    A node id cannot be used, because Flower draws a new one whenever a node registers again.
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
    loss: Loss | None = None,
    *,
    examples: Callable[[Context], int] | None = None,
    client_id: Callable[[Context], int] = stable_id,
    mods: Sequence[Mod] = (),
) -> ClientApp:
    """Let a ``ClientApp`` (with ``@app.train()`` handlers) answer the two queries; returns the app.

    ``loss(arrays, context)`` returns the mean loss on this client's training data and the number of
    examples. Without it the loss is that of the app's own ``@app.evaluate()``: its metric ``loss`` or ``eval_loss``,
    or the only one whose name contains "loss". ``examples(context)`` returns only the number of examples, before other
    queries; without it the number is known after the client's first loss or model. Mods of the whole app (clipping,
    noise …) are made for training and are not applied to queries. ``mods`` are mods of the queries.

    >>> app = add_loss_query(ClientApp(), lambda arrays, context: (0.5, 100))
    """
    check_app(app, "add_loss_query")
    _check_loss(loss)
    of = _evaluated(app) if loss is None else _computed(loss)

    def client(message: Message, context: Context) -> Message:
        return tell_client(message, context, examples, client_id)

    def query_loss(message: Message, context: Context) -> Message:
        return tell_loss(message, context, of, client_id)

    with _without_mods(app):
        app.query(ASK_CLIENT.split(".")[1], mods=list(mods))(client)
        app.query(ASK_LOSS.split(".")[1], mods=list(mods))(query_loss)
    return app


def loss_query_mod(
    loss: Loss | None = None,
    *,
    examples: Callable[[Context], int] | None = None,
    client_id: Callable[[Context], int] = stable_id,
) -> Mod:
    """The same for apps made with a ``client_fn``: ``ClientApp(client_fn, mods=[loss_query_mod(), …])``.

    It also translates between Flower's present messages and those of ``client_fn`` apps, so it must be the first
    mod. Without ``loss`` the loss is that of the client's own ``evaluate``.
    """

    _check_loss(loss)

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        kind = message.metadata.message_type
        if kind == ASK_CLIENT:
            return tell_client(message, context, examples, client_id)
        if kind == ASK_LOSS:
            own = _evaluated(lambda asked, context: translated(asked, context, call_next))
            return tell_loss(message, context, own if loss is None else _computed(loss), client_id)
        return translated(message, context, call_next)

    return mod


def check_app(app: object, function: str) -> None:
    """Raise TypeError if what is given to a ``function`` of this package is no ``ClientApp``."""
    if not isinstance(app, ClientApp):
        raise TypeError(f"{function}: {app!r} is not a ClientApp; call it with the app, after its handlers")


def _check_loss(loss: object) -> None:
    if loss is not None and not callable(loss):
        raise TypeError(
            f"loss = {loss!r} is not a function; give loss(arrays, context) -> (mean loss, number of examples), or "
            "leave it out to take the loss of the app's evaluation"
        )


@contextmanager
def _without_mods(app: ClientApp) -> Iterator[None]:
    """Register handlers without the mods of the whole app, which Flower would put around them."""
    mods = getattr(app, "_mods", None)
    if mods is None:
        yield
        return
    app._mods = []
    try:
        yield
    finally:
        app._mods = mods


def _computed(loss: Loss) -> _Answer:
    return lambda message, context: loss(next(iter(message.content.array_records.values())), context)


def _evaluated(answer: ClientAppCallable) -> _Answer:
    """The loss that the client's own evaluation reports."""

    def loss(message: Message, context: Context) -> tuple[float, int]:
        kind = message.metadata.message_type
        message.metadata.message_type = MessageType.EVALUATE
        try:
            reply = answer(message, context)
        finally:
            message.metadata.message_type = kind
        if reply.has_error():
            raise RuntimeError(reply.error.reason)
        metrics: dict[str, Any] = {k: v for r in reply.content.metric_records.values() for k, v in r.items()}
        names = [k for k in (LOSS, "eval_loss") if k in metrics][:1] or [k for k in metrics if "loss" in k.lower()]
        if len(names) != 1 or EXAMPLES not in metrics:
            raise ValueError(
                f"this app's evaluation reports {sorted(metrics)}, but one loss and {EXAMPLES} are needed; pass a "
                "function that computes the loss to add_loss_query or loss_query_mod"
            )
        return float(metrics[names[0]]), int(metrics[EXAMPLES])

    return loss


def tell_client(
    message: Message, context: Context, examples: Callable[[Context], int] | None, client_id: Callable[[Context], int]
) -> Message:
    told: dict[str, int] = {CLIENT_ID: _checked_id(client_id(context), "client_id(context)")}
    if examples is not None:
        told[EXAMPLES] = int(examples(context))
    return Message(RecordDict({METRICS: MetricRecord(dict(told))}), reply_to=message)


def tell_loss(message: Message, context: Context, loss: _Answer, client_id: Callable[[Context], int]) -> Message:
    value, examples = loss(message, context)
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
