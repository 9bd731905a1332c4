"""Messages of secure sums, to the server and to its clients."""

from __future__ import annotations

import copy
import dataclasses
import random
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import numpy as np

from fuzzing.base import Target
from fuzzing.mutations import changed_bytes

_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 16, 2**31, 2**62, 2**63 - 1, -(2**63)),
    *(0.0, -0.0, 1.0, -1.0, 0.9, 1e308, 1e-308, float("nan"), float("inf")),
    *(b"", b"\0" * 16, b"\0" * 32, b"x" * 33, b"x" * 64, b"x" * 9_000, "", "\x1b", "x" * 9_000),
    *(
        [],
        [0],
        [b""],
        [1.0],
        [0.5] * 4,
        {},
        {0: b""},
        {100: b"x"},
        {101: [b"", b""]},
        list(range(50)),
        [[[[[[[[[[]]]]]]]]]],
    ),
)
_SETTINGS: dict[type, tuple[Any, ...]] = {
    int: (0, 1, 2, 3, 4, 16, 32, 64, -1, 2**31),
    float: (0.0, 0.4, 0.5, 0.9, 1.0, 4.0, -1.0, 101.0, 1e-300, 1e308, float("inf"), float("nan")),
    bool: (False, True),
    bytes: (b"", b"x" * 16, b"x" * 32),
    str: ("", "\x1b", "another run"),
}
"""Odd settings of a session, by the type of the field."""
NODES = 4


class SecureMessages(Target):
    """Messages of two sessions, with and without signing keys: rosters, shares, masked vectors, lists of survivors.

    Fields are changed and packed again, also those of messages inside of messages. Then the server, or the client, that
    waits for this message gets it, or the same client with another policy or state.
    """

    name, share = "messages of secure sums", 12
    readers: ClassVar = {
        "secure/wire.py": ("unpack", "_read", "_take"),
        "secure/messages.py": (
            *("Packed.read", "_check_signature", "_map", "Session.__post_init__", "Invite.__post_init__"),
            *("Advertised.__post_init__", "Roster.__post_init__", "Shares.__post_init__", "Agreed.__post_init__"),
            *("Revealed.__post_init__", "Session.enough", "Roster.holders"),
        ),
        "secure/server.py": (
            *("Server.advertised", "Server.shared", "Server.masked", "Server.agreed", "Server.revealed"),
            *("Server._known", "Server._recover"),
        ),
        "secure/client.py": (
            *("Client.advertise", "Client.share", "Client.mask", "Client.agree", "Client.reveal", "Client._check"),
            *("Client._check_weights", "Client._opened", "Client._check_survivors", "Client._check_agreed"),
        ),
    }

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        from fedalpha.secure import keys, shamir
        from fedalpha.secure.client import Policy, Refused
        from fedalpha.secure.field import Overflow
        from fedalpha.secure.server import TooFew
        from fedalpha.secure.wire import Malformed
        from secure_sums import a_session

        type(self).errors = (Malformed, Refused, Overflow, TooFew)
        own = {100 + i: Ed25519PrivateKey.from_private_bytes(bytes([i]) * 32) for i in range(NODES)}
        known = {id: key.public_key() for id, key in own.items()}
        signing = {id: Policy(signing=own[id], known=known) for id in own}
        signed = a_session(6, nonce=bytes(16), signed=True)
        ring = a_session(6, nonce=bytes(16), degree=2)
        draw = random.Random(0)  # the same session, and so the same inputs, in every process
        with (
            mock.patch.object(keys, "fresh", lambda size=keys.KEY: draw.randbytes(size)),
            mock.patch.object(shamir.secrets, "randbelow", draw.randrange),
        ):
            self.waiting = [*_messages(signed, signing), *_messages(ring, {id: Policy() for id in own})]

    def make(self, draw: random.Random) -> Any:
        from fedalpha.secure.wire import Malformed, pack, unpack

        which = draw.randrange(len(self.waiting))
        packed = self.waiting[which][0]
        other = draw.randrange(9) if draw.random() < 0.2 else None
        if other is not None and draw.random() < 0.7:
            return which, packed, other
        if draw.random() < 0.1:
            return which, packed if draw.random() < 0.3 else draw.choice(self.waiting)[0], other
        if draw.random() < 0.2:
            return which, changed_bytes(packed, draw), other
        fields = unpack(packed)
        kind = draw.random()
        if kind < 0.1:  # a field of another message of the same kind
            alike = [found for one in self.waiting if (found := unpack(one[0]))[0] == fields[0]]
            place = draw.randrange(1, len(fields))
            return which, pack([*fields[:place], draw.choice(alike)[place], *fields[place + 1 :]]), other
        if kind < 0.2 and fields[0] == "invite":
            session = unpack(fields[1])
            place = draw.randrange(1, len(session))
            session[place] = draw.choice(_SETTINGS[type(session[place])])
            return which, pack([*fields[:1], pack(session), *fields[2:]]), other
        try:
            return which, pack(_changed(fields, draw)), other
        except (Malformed, TypeError, ValueError, ArithmeticError, struct.error):  # what cannot be packed
            return which, changed_bytes(packed, draw), other

    def first(self, given: Any) -> bool:
        from fedalpha.secure.wire import Malformed, unpack

        try:
            return isinstance(unpack(given[1]), list)
        except Malformed:
            return False

    def read(self, given: Any) -> None:
        which, data, other = given
        _, take, others = self.waiting[which]
        (take if other is None or not others else others[other % len(others)])(data)


Take = Callable[[bytes], None]


def _messages(session: Any, policies: Mapping[int, Any]) -> Iterator[tuple[bytes, Take, list[Take]]]:
    """Every message of a session, and who waits for it: a copy of the server, or the client as it was, and others."""
    from fedalpha.secure.client import Client
    from fedalpha.secure.rounds import METHODS
    from fedalpha.secure.server import KINDS, Server

    server = Server(session, dict.fromkeys(policies, 1 / NODES))
    clients = {id: Client(id, policy) for id, policy in policies.items()}
    for step in server.steps:
        asked = server.ask(step)
        for id, message in asked.items():
            values = [np.zeros(session.length)] if step == "masked" else []
            if not (step == "masked" and id == 103):
                given = METHODS[step], type(message), values
                others = [_client(state, policy, *given) for state, policy in _others(clients[id], policies[id])]
                others += [_client(clients[id].dump(), policies[id], *given[:2], [np.zeros(1)] * len(values))]
                yield message.packed, _client(clients[id].dump(), policies[id], *given), others
            answer = getattr(clients[id], METHODS[step])(message, *values)
            if step == "masked" and id == 103:
                continue  # lost: its masks are then removed by the shares of the others
            yield answer.packed, _server(copy.deepcopy(server), id, step, KINDS[step]), []
            getattr(server, step)(id, answer)


def _others(client: Any, policy: Any) -> Iterator[tuple[bytes, Any]]:
    """The state of a client with other policies, and two without the shares of its neighbours: unreadable, absent."""
    from fedalpha.secure.client import Client

    for changes in ({"least": 4}, {"threshold": 0.9}, {"effective": 4.5}, {"coarsest": 1e-300}, {"settings": b"x"}):
        yield client.dump(), dataclasses.replace(policy, **changes)
    yield client.dump(), dataclasses.replace(policy, signing=None, known={})
    for held in (dict.fromkeys(client._held, b""), {}):
        state = Client.load(client.dump(), policy)
        state._held = held
        yield state.dump(), policy


def _client(state: bytes, policy: Any, method: str, kind: Any, values: list[Any]) -> Callable[[bytes], None]:
    def take(data: bytes) -> None:
        from fedalpha.secure.client import Client

        message = kind.read(data)
        assert message.packed == data, "two encodings of one message"
        getattr(Client.load(state, policy), method)(message, *values)

    return take


def _server(server: Any, id: int, step: str, kind: Any) -> Callable[[bytes], None]:
    def take(data: bytes) -> None:
        from fedalpha.secure.wire import Malformed

        message = kind.read(data)
        assert message.packed == data, "two encodings of one message"
        here = copy.deepcopy(server)
        getattr(here, step)(id, message)
        if step == "revealed" and len(here._revealed) == NODES - 1:
            here.sum()
        try:
            getattr(here, step)(id, message)
        except Malformed:
            return
        raise AssertionError("a message was taken twice")

    return take


def _changed(value: Any, draw: random.Random) -> Any:
    """A copy of the fields of a message, in which one is changed, also in a message that it holds."""
    from fedalpha.secure.wire import Malformed, pack, unpack

    if isinstance(value, bytes) and len(value) > 16:
        try:
            return pack(_changed(unpack(value), draw))
        except Malformed:
            return changed_bytes(value, draw)
    if not isinstance(value, list | dict) or not value:
        return draw.choice(_VALUES)
    found = copy.copy(value)
    key = draw.choice(list(found) if isinstance(found, dict) else range(len(found)))
    match draw.randrange(6):
        case 0:
            found[key] = draw.choice(_VALUES)
        case 1 if isinstance(found, dict):
            found[draw.choice((0, 7, 100, 103, 2**63 - 1))] = found.pop(key)
        case 1:
            found.insert(key, found[draw.randrange(len(found))])
        case 2:
            del found[key]
        case _:
            found[key] = _changed(found[key], draw)
    return found
