"""The sum of a round: the session of a secure sum, its result and its cost."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedalpha.secure import keys
from fedalpha.secure.client import Client, Policy, Refused
from fedalpha.secure.field import Overflow
from fedalpha.secure.forms.base import COLLUDING, DROPPING, Secure
from fedalpha.secure.masks import degree
from fedalpha.secure.messages import Packed, Session
from fedalpha.secure.server import Server, TooFew, Unusable, conduct
from fedalpha.secure.vectors import Vector, Weighted, prepared, weighted
from fedalpha.secure.wire import Malformed

Ask = Callable[[str, dict[int, Packed]], Iterable[tuple[int, object]]]
METHODS = {"advertised": "advertise", "shared": "share", "masked": "mask", "agreed": "agree", "revealed": "reveal"}
"""The method of `Client` that answers each step."""


class Failed(Exception):  # noqa: N818 - it says what happened to a sum
    """There is no sum, with the reason; ``problems`` by client."""

    def __init__(self, reason: str, problems: Mapping[int, str]) -> None:
        super().__init__(reason)
        self.problems = dict(problems)


@dataclass
class Costs:
    """Bytes and seconds of a session without training; ``clients`` are the seconds of all clients together."""

    up: int = 0
    down: int = 0
    clients: float = 0.0
    server: float = 0.0


@dataclass(frozen=True, eq=False)
class Total:
    """The weighted sum of the updates of the clients ``ids``, and why others are missing."""

    ids: tuple[int, ...]
    sum: Weighted
    problems: Mapping[int, str]
    notes: Mapping[int, str] = field(default_factory=dict)
    """For each client in the sum, the messages that could not be used."""


def session_of(
    secure: Secure,
    algorithm: Any,
    weights: Mapping[int, float],
    length: int,
    run: str,
    round: int,
    broadcast: bytes = b"",
) -> Session:
    """The session of a round; raises ValueError if its numbers do not fit the bits.

    ``broadcast``: a digest of the model and settings of training, which clients check if lists are signed.
    """
    n, terms = len(weights), secure.terms(algorithm.weigh)
    private = secure.private(algorithm)
    clips = [float(c) for c in (secure.clip, getattr(private, "C", None)) if c is not None]
    near = secure.neighbours
    if near == "log":
        near = degree(n, secure.threshold, COLLUDING, DROPPING)
    session = Session(
        run=run,
        round=round,
        nonce=keys.fresh(16),
        length=length + terms["blind"],
        bits=secure.bits,
        range=float(secure.range),
        mass=math.fsum(abs(w) for w in weights.values()),
        clip=min(clips, default=math.inf),
        deviation=float(getattr(private, "deviation", 0.0)),
        threshold=secure.threshold,
        least=secure.least,
        effective=float(secure.effective),
        degree=0 if near == "all" or int(near) >= n - 1 else int(near),
        signed=secure.signed,
        broadcast=broadcast,
        **terms,
    )
    session.grid(n)
    return session


def summed(server: Server, ask: Ask, costs: Costs) -> Total:
    """Run a session over a transport; raises `Failed` if there is no sum that may be used."""
    began, waited = time.perf_counter(), 0.0

    def counted(step: str, messages: dict[int, Packed]) -> Iterable[tuple[int, object]]:
        nonlocal waited
        costs.down += sum(len(message.packed) for message in messages.values())
        answers = iter(ask(step, messages))
        while True:
            start = time.perf_counter()
            found = next(answers, None)
            waited += time.perf_counter() - start
            if found is None:
                return
            costs.up += len(found[1]) if isinstance(found[1], bytes) else 0
            yield found

    try:
        found = conduct(server, counted)
        mass = math.fsum(server.weights[id] for id in found.ids)
        total = weighted(server.session, found.values, found.error, mass)
    except (TooFew, Overflow) as reason:
        raise Failed(f"there is no secure sum: {reason}", server.problems) from None
    finally:
        costs.server += time.perf_counter() - began - waited
    alive = set(found.ids)
    lost = {id: why for id, why in server.problems.items() if id not in alive}
    return Total(found.ids, total, lost, {id: why for id, why in server.problems.items() if id in alive})


def rehearsing(session: Session, ids: Iterable[int]) -> Callable[[int], Policy]:
    """The policies of simulated clients, which require what the session offers; with signing keys if it is signed."""
    wanted: dict[str, Any] = {"least": session.least, "threshold": session.threshold, "effective": session.effective}
    if not session.signed:
        return lambda _: Policy(**wanted)
    own = {id: keys.signing_key() for id in ids}
    known = {id: key.public_key() for id, key in own.items()}
    wanted |= {"coarsest": math.inf, "blind": session.blind}
    return lambda id: Policy(**wanted, signing=own[id], known=known)


class Rehearsal:
    """The clients of a session in this process. ``vector(id)`` is a client's (update, loss), or raises `Unusable`."""

    def __init__(self, policies: Callable[[int], Policy], vector: Callable[[int], tuple[Vector, float | None]]) -> None:
        self._policies, self._vector = policies, vector
        self._clients: dict[int, Client] = {}
        self._gone: set[int] = set()
        self.costs = Costs()

    def ask(self, step: str, messages: dict[int, Packed]) -> Iterable[tuple[int, object]]:
        for id, message in messages.items():
            if id in self._gone:
                continue
            try:
                vector = self._vector(id) if step == "masked" else None
                start = time.perf_counter()
                answer = self._answer(id, step, message, vector)
                self.costs.clients += time.perf_counter() - start
            except (Unusable, Refused, Malformed, Overflow) as reason:
                self._gone.add(id)
                yield id, Unusable(str(reason))
                continue
            yield id, answer

    def _answer(self, id: int, step: str, message: Packed, vector: tuple[Vector, float | None] | None) -> bytes:
        client = self._clients.setdefault(id, Client(id, self._policies(id)))
        values = [] if vector is None else [prepared(client.session, client.weight, client.members, *vector)]
        answer: Packed = getattr(client, METHODS[step])(message, *values)
        return answer.packed
