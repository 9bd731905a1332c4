"""The client's part of secure sums: an app that sends its update only under masks."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedalpha.flower.fingerprint import fingerprint
from fedalpha.flower.names import ASK_SECURE, CONTENT, OURS, REFUSED, SECURE, STEP
from fedalpha.flower.queries import ASK_CLIENT, ASK_LOSS, EXAMPLES, LOSS, METRICS, check_app, stable_id
from fedalpha.secure.client import Client, Policy, Refused
from fedalpha.secure.field import Overflow
from fedalpha.secure.keys import digest
from fedalpha.secure.messages import Bundle, Invite, Packed, Roster, Survivors, Unmask
from fedalpha.secure.rounds import METHODS
from fedalpha.secure.vectors import clipped, prepared
from fedalpha.secure.wire import Malformed, pack

SIGNING, KNOWN = "signing-key", "known-keys"
"""In a node's configuration: the file of its private Ed25519 key, and the JSON file of all clients' public keys."""
_KINDS: dict[str, type[Packed]] = {"advertised": Invite, "shared": Roster, "agreed": Survivors, "revealed": Unmask}


def secured(
    app: ClientApp,
    *,
    least: int = 3,
    threshold: float | None = None,
    effective: float = 2.0,
    coarsest: float = 1e-6,
    clip: float | None = None,
    hides_losses: bool = False,
    client_id: Callable[[Context], int] = stable_id,
) -> ClientApp:
    """Wrap an app so that it sends its update only through secure sums; the server needs ``FedAlpha(secure=…)``.

    ``app`` answers the queries of `add_loss_query`. The client requires sums of at least ``least`` clients, of which
    more than the share ``threshold`` must deliver (None: 1/2, with signing keys 2/3), and whose weights count as at
    least ``effective`` equal ones. ``clip`` is the largest norm of an update that the client sends, whatever the
    server's settings. ``hides_losses``: queries and evaluations that reveal the loss are not answered; the server must
    use ``blind``.

    If the node's configuration names a ``signing-key`` (PEM, Ed25519) and ``known-keys`` (JSON, client id → public key
    in hex), lists are signed. The client then refuses a server that lies about who takes part or dropped out, that
    gives nearly all weight to one client, or that sends clients different models or run configurations. It also
    refuses numbers more than ``coarsest`` apart (the server chooses ``bits`` and ``range``), and ``blind`` unless
    ``hides_losses`` is set.
    """
    check_app(app, "secured")
    if clip is not None and not 0 < clip < math.inf:
        raise ValueError(f"clip = {clip}; give the largest norm of an update, a number > 0, or None")
    wanted: dict[str, Any] = {"least": least, "threshold": threshold, "effective": effective, "coarsest": coarsest}
    wanted["blind"] = hides_losses
    Policy(**wanted)  # reports mistakes
    return _Secured(app, wanted, clip, hides_losses, client_id)


class _Secured(ClientApp):
    """A wrapper of an app, which sends only masked vectors, the client's id, its number of examples and losses."""

    def __init__(
        self,
        app: ClientApp,
        wanted: dict[str, Any],
        clip: float | None,
        hides_losses: bool,
        client_id: Callable[[Context], int],
    ) -> None:
        super().__init__()
        self.app, self.wanted, self.clip = app, wanted, clip
        self.hides_losses, self.client_id = hides_losses, client_id

    def __call__(self, message: Message, context: Context) -> Message:
        kind = message.metadata.message_type
        if kind == ASK_CLIENT or (kind in (ASK_LOSS, MessageType.EVALUATE) and not self.hides_losses):
            return _without_arrays(self.app(message, context))
        try:
            if kind in (ASK_LOSS, MessageType.EVALUATE):
                raise Refused("this client does not reveal its loss; use secure=blind(…) and fraction_evaluate=0")
            record = message.content.config_records.get(SECURE)
            if record is None or kind not in (ASK_SECURE, MessageType.TRAIN):
                raise Refused("this client sends its update through secure sums only; use FedAlpha(secure=…)")
            content = self._masked(message, context) if kind == MessageType.TRAIN else self._step(record, context)
        except (Refused, Malformed, Overflow) as reason:
            context.state.pop(SECURE, None)
            content = RecordDict({SECURE: ConfigRecord({REFUSED: str(reason)})})
        return Message(content, reply_to=message)

    def _step(self, record: ConfigRecord, context: Context) -> RecordDict:
        """Answer a step of the protocol; the client's secrets stay in the state of its node."""
        step = record.get(STEP)
        if step not in _KINDS:
            raise Malformed("an unknown step of the secure sum")
        message = _KINDS[str(step)].read(record.get(CONTENT))
        if step == "advertised":
            client = Client(self.client_id(context), self._policy(context))
        else:
            client = self._client(context)
        answer: Packed = getattr(client, METHODS[str(step)])(message)
        self._keep(context, client)
        return RecordDict({SECURE: ConfigRecord({CONTENT: answer.packed})})

    def _masked(self, message: Message, context: Context) -> RecordDict:
        """Train, and send only the masked update and the number of examples."""
        asked = message.content
        bundle = Bundle.read(asked.config_records[SECURE].get(CONTENT))
        client = self._client(context)
        if client.policy.signing is not None and client.session.broadcast != fingerprint(asked):
            raise Refused("it was sent another model or other settings than the clients of this session agreed on")
        _, sent = _model(asked)
        before = {name: array.numpy().copy() for name, array in sent.items()}
        loss = self._loss(message, context) if client.session.blind else None
        reply = self.app(message, context)
        if reply.has_error():
            raise Refused(f"its training failed: {reply.error.reason}")
        _, after = _model(reply.content)
        update = difference(before, {name: array.numpy() for name, array in after.items()})
        update = update if self.clip is None else clipped(update, self.clip)
        answer = client.mask(bundle, prepared(client.session, client.weight, client.members, update, loss))
        self._keep(context, client)
        metrics = {k: v for r in reply.content.metric_records.values() for k, v in r.items() if k == EXAMPLES}
        return RecordDict({METRICS: MetricRecord(metrics), SECURE: ConfigRecord({CONTENT: answer.packed})})

    def _loss(self, message: Message, context: Context) -> float:
        """This client's loss under the model that it received; the loss does not leave the node."""
        kind = message.metadata.message_type
        message.metadata.message_type = ASK_LOSS
        try:
            reply = self.app(message, context)
        finally:
            message.metadata.message_type = kind
        metrics: dict[str, Any] = {k: v for r in reply.content.metric_records.values() for k, v in r.items()}
        return float(metrics[LOSS])

    def _client(self, context: Context) -> Client:
        kept = context.state.config_records.get(SECURE)
        if kept is None:
            raise Refused("this client is not in a session: it was restarted, or it has refused an earlier step")
        state: Any = kept["client"]
        return Client.load(state, self._policy(context))

    def _keep(self, context: Context, client: Client) -> None:
        context.state[SECURE] = ConfigRecord({"client": client.dump()})

    def _policy(self, context: Context) -> Policy:
        signing, known = context.node_config.get(SIGNING), context.node_config.get(KNOWN)
        if signing is None and known is None:
            return Policy(**self.wanted)
        if signing is None or known is None:
            raise Refused(f"its node configuration must hold both {SIGNING} and {KNOWN}, or neither")
        settings = digest(pack([[name, value] for name, value in sorted(context.run_config.items())]))
        return signing_policy(Path(str(signing)), Path(str(known)), **self.wanted, settings=settings)


def _without_arrays(reply: Message) -> Message:
    """The app's answer to a query or an evaluation, which must not contain a model."""
    if not reply.has_error():
        for name in list(reply.content.array_records):
            del reply.content[name]
    return reply


def signing_policy(signing: Path, known: Path, **wanted: Any) -> Policy:
    """A policy with the keys in these files."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(signing.read_bytes(), None)
        found = json.loads(known.read_text())
        keys = {int(id): Ed25519PublicKey.from_public_bytes(bytes.fromhex(text)) for id, text in found.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise Refused(f"the keys of this node cannot be read: {error}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise Refused(f"{signing} does not hold an Ed25519 key")
    return Policy(**wanted, signing=key, known=keys)


def difference(before: dict[str, Any], after: dict[str, Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """after − before: all floating arrays, in the order of their names, as one vector."""
    if before.keys() != after.keys() or any(before[k].shape != after[k].shape for k in before):
        raise Refused("its app sent back other arrays than it received")
    moves = [
        after[name].astype(np.float64).ravel() - old.astype(np.float64).ravel()
        for name, old in sorted(before.items())
        if np.issubdtype(old.dtype, np.floating)
    ]
    return np.concatenate(moves)


def _model(content: RecordDict) -> tuple[str, ArrayRecord]:
    """The name of the record that holds the model, and the record."""
    found = [(name, record) for name, record in content.array_records.items() if not name.startswith(OURS)]
    if len(found) != 1:
        raise Refused(f"{len(found)} ArrayRecords, expected exactly one")
    return found[0]
