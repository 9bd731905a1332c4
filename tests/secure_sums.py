"""Sessions between clients of this process, with everything that passes between them and the server."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedalpha.secure.client import Client, Policy, Refused
from fedalpha.secure.keys import fresh
from fedalpha.secure.messages import Packed, Session
from fedalpha.secure.server import Server, Summed, Unusable, conduct
from fedalpha.secure.wire import Malformed

METHODS = {"advertised": "advertise", "shared": "share", "masked": "mask", "agreed": "agree", "revealed": "reveal"}


def a_session(length: int = 40, mass: float = 1.0, **changes: Any) -> Session:
    given: dict[str, Any] = {
        "run": "a run",
        "round": 3,
        "nonce": fresh(16),
        "length": length,
        "bits": 32,
        "range": 4.0,
        "mass": mass,
        "clip": math.inf,
        "deviation": 0.0,
        "threshold": 2 / 3,
        "least": 2,
        "effective": 2.0,
        "degree": 0,
        "signed": False,
        "broadcast": b"",
        "blind": False,
        "slope": 0.0,
        "reference": 0.0,
        "steepest": 0.0,
    }
    return Session(**{**given, **changes})


class Federation:
    """Clients with vectors; ``lost`` says who does not answer from which step on; ``sent`` is what the server saw."""

    def __init__(
        self,
        count: int,
        session: Session,
        lost: Mapping[str, Collection[int]] | None = None,
        policies: Mapping[int, Policy] | None = None,
        seed: int = 0,
    ) -> None:
        rng = np.random.default_rng(seed)
        self.ids = list(range(100, 100 + count))
        shares = rng.random(count) + 0.5
        self.weights = dict(zip(self.ids, (shares / shares.sum() * session.mass).tolist(), strict=True))
        self.updates: dict[int, NDArray[np.float64]] = {i: rng.uniform(-3.9, 3.9, session.length) for i in self.ids}
        self.clients = {i: Client(i, (policies or {}).get(i, Policy())) for i in self.ids}
        self.server = Server(session, self.weights)
        self.lost = lost or {}
        self.sent: list[tuple[str, int, bytes]] = []
        self.refusals: dict[int, str] = {}
        self._gone: set[int] = set()

    def run(self) -> Summed:
        return conduct(self.server, self.ask)

    def ask(self, step: str, messages: dict[int, Packed]) -> Iterable[tuple[int, object]]:
        self._gone |= set(self.lost.get(step, ()))
        for id, message in messages.items():
            if id not in self._gone:
                yield id, self.answer(step, id, message)

    def answer(self, step: str, id: int, message: Packed) -> object:
        """A client's answer; its state and the messages pass through bytes, as on a live federation."""
        client = self.clients[id]
        values = [self.weights[id] * self.updates[id]] if step == "masked" else []
        try:
            reply = getattr(client, METHODS[step])(type(message).read(message.packed), *values)
        except (Refused, Malformed) as reason:
            self.refusals[id] = str(reason)
            return Unusable(str(reason))
        self.clients[id] = Client.load(client.dump(), client.policy)
        self.sent.append((step, id, reply.packed))
        return reply.packed

    def exact(self, ids: Iterable[int]) -> NDArray[np.float64]:
        return np.sum([self.weights[i] * self.updates[i] for i in ids], axis=0)
