"""The server of a secure sum: a state machine without input or output.

The server collects the messages of each step and continues with the clients that delivered. Below the threshold it
raises `TooFew`: nothing is unmasked, and the round keeps its model. `problems` lists messages that cannot be used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedalpha.secure import keys
from fedalpha.secure.client import pair_key
from fedalpha.secure.concentration import effective
from fedalpha.secure.field import FixedPoint, Words
from fedalpha.secure.masks import add_mask, needed
from fedalpha.secure.messages import (
    Advertised,
    Agreed,
    Bundle,
    Invite,
    Masked,
    Packed,
    Revealed,
    Roster,
    Session,
    Shares,
    Survivors,
    Unmask,
)
from fedalpha.secure.shamir import NotRecovered, Recovery
from fedalpha.secure.wire import Malformed, pack


class TooFew(ValueError):  # noqa: N818
    """Too few clients delivered for this step: the sum stays masked."""


@dataclass(frozen=True, eq=False)
class Summed:
    """The result of a session: the sum of the vectors of the clients ``ids``, within ``error`` of the exact sum."""

    ids: tuple[int, ...]
    values: NDArray[np.float64]
    error: float


class Server:
    """One session. ``weights``: by client id, the factor of its vector (not 0)."""

    def __init__(self, session: Session, weights: Mapping[int, float]) -> None:
        self.session = session
        self.weights = dict(sorted(weights.items()))
        self.problems: dict[int, str] = {}
        """By client, why it is not in the sum, or what it sent that could not be used."""
        self.roster: Roster | None = None
        self._advertised: dict[int, Advertised] = {}
        self._shares: dict[int, Shares] = {}
        self._bundled: frozenset[int] = frozenset()
        self._total: Words | None = None
        self._arrived: list[int] = []
        self._signatures: dict[int, bytes] = {}
        self._revealed: dict[int, Revealed] = {}
        self._closed = False
        self._lied: set[int] = set()  # who revealed a wrong share; theirs are used last

    def invites(self) -> dict[int, Invite]:
        return {id: Invite(self.session.packed, float(weight)) for id, weight in self.weights.items()}

    # Keys

    def advertised(self, id: int, message: Advertised) -> None:
        if id not in self.weights or message.id != id or id in self._advertised:
            raise Malformed("these keys were not asked for, or they came again")
        used = {key for one in self._advertised.values() for key in (one.sealing, one.masking)}
        if used & {message.sealing, message.masking}:
            raise Malformed("it sent a key of another client")
        if not (keys.usable(message.sealing) and keys.usable(message.masking)):
            raise Malformed("a public key is not valid")  # every other client would stumble over it
        self._advertised[id] = message

    def rosters(self) -> dict[int, Roster]:
        """The roster, for each of its members."""
        ids = sorted(self._advertised)
        self._enough(len(ids), len(self.weights), "sent keys")
        told = [float(self.weights[id]) for id in ids] if self.session.signed else None
        self.roster = Roster(self.session.packed, [self._advertised[id].packed for id in ids], told)
        return dict.fromkeys(ids, self.roster)

    # Shares

    def shared(self, id: int, message: Shares) -> None:
        roster = self._known(id, message.id)
        if id in self._shares:
            raise Malformed("its shares came again")
        if message.sealed.keys() != set(roster.neighbours[id]):
            raise Malformed("its shares are not those of its neighbours")
        if len(message.commitment) != keys.KEY:
            raise Malformed("its commitment has the wrong length")
        self._shares[id] = message

    def bundles(self) -> dict[int, Bundle]:
        """For each client that shared its secrets, the shares that the others sealed for it."""
        roster = self._ready()
        self._enough(len(self._shares), len(roster.members), "shared their secrets")
        found = {}
        for id in sorted(self._shares):
            near = [peer for peer in roster.neighbours[id] if peer in self._shares]
            if len(near) + 1 >= roster.shares_needed(id):
                parts = {p: [self._shares[p].sealed[id], self._shares[p].signature] for p in near}
                found[id] = Bundle(roster.hash, parts)
            else:
                self.problems[id] = "too few of its neighbours are left in the session"
        self._enough(len(found), len(roster.members), "can be protected")
        self._bundled = frozenset(found)
        return found

    # Sum

    def masked(self, id: int, message: Masked) -> None:
        """Add a client's masked vector; it is not kept."""
        self._known(id, message.id)
        if id not in self._bundled or id in self._arrived or self._closed:
            raise Malformed("its masked vector was not asked for, came again, or came too late")
        dtype = self._grid().dtype
        size = self.session.length * dtype.itemsize
        if len(message.words) != size:
            raise Malformed(f"its masked vector has {len(message.words)} bytes, not {size}")
        if self._total is None:
            self._total = np.zeros(self.session.length, dtype)
        self._total += np.frombuffer(message.words, dtype)
        self._arrived.append(id)

    def _grid(self) -> FixedPoint:
        return self.session.grid(len(self._ready().members))

    def survivors(self) -> Survivors:
        """The clients in the sum; after this call no client is added."""
        roster = self._ready()
        self._closed = True
        self._enough(len(self._arrived), len(roster.members), "delivered")
        counts, least = effective(self.weights[id] for id in self._arrived), self.session.effective
        if counts < least:
            raise TooFew(
                f"the weights of the clients that delivered count as {counts:.3g} equal ones, so the sum reveals "
                f"too much about the heaviest; at least {least:g} are needed (effective)"
            )
        if not roster.joined(self._arrived):
            raise TooFew(
                "the masks of the clients that delivered do not join them all, so their sum would be unmasked in "
                "parts; give more neighbours"
            )
        return Survivors(roster.hash, sorted(self._arrived))

    # Agreement, with signing keys

    def agreed(self, id: int, message: Agreed) -> None:
        self._known(id, message.id)
        if id not in self._arrived or id in self._signatures:
            raise Malformed("its signature was not asked for, or it came again")
        self._signatures[id] = message.signature

    def unmasks(self) -> dict[int, Unmask]:
        """The requests to the survivors for the shares that remove the masks."""
        roster, survivors = self._ready(), self.survivors()
        asked = sorted(self._signatures) if self.session.signed else survivors.ids
        if self.session.signed:
            self._enough(len(asked), len(roster.members), "signed the list of survivors", least=0)
        return dict.fromkeys(asked, Unmask(survivors.packed, dict(self._signatures)))

    # Unmasking

    def revealed(self, id: int, message: Revealed) -> None:
        roster = self._known(id, message.id)
        if id not in self._arrived or id in self._revealed:
            raise Malformed("its shares were not asked for, or they came again")
        alive, near = set(self._arrived), set(roster.holders(id))
        if not message.seeds.keys() <= near & alive or not message.keys.keys() <= near - alive:
            raise Malformed("it revealed shares that were not asked for")
        self._revealed[id] = message

    def sum(self) -> Summed:
        """Remove the masks from the sum. Raises `TooFew`, or `Overflow` if the sum is beyond its range."""
        roster, alive = self._ready(), sorted(self._arrived)
        if self._total is None or not self._closed:
            raise TooFew("no masked vector has arrived")
        self._enough(len(self._revealed), len(roster.members), "helped to unmask the sum", least=0)
        total, recovery = self._total.copy(), Recovery()
        for id in sorted(self._shares):
            if id in alive:
                seed = self._recover(recovery, id, "seeds")
                add_mask(total, keys.derive(seed, "own mask", pack([roster.hash, id])), -1)
                continue
            near = [peer for peer in roster.neighbours[id] if peer in alive]
            if near:
                private = self._recover(recovery, id, "keys")
                for peer in near:
                    add_mask(total, pair_key(private, roster, id, peer), -1 if id > peer else 1)
        limits = sum(self.session.limit(self.weights[id], len(roster.members)) for id in alive)
        values = self._grid().decode(total, len(alive), limits)
        return Summed(tuple(alive), values, self._grid().error(len(alive)))

    def _recover(self, recovery: Recovery, id: int, which: str) -> bytes:
        roster = self._ready()
        place = {holder: at for at, holder in enumerate(roster.holders(id), start=1)}
        told = {holder: getattr(message, which).get(id) for holder, message in self._revealed.items()}
        held = {holder: share for holder, share in told.items() if share is not None}
        honest = {holder: share for holder, share in held.items() if holder not in self._lied}
        least = roster.shares_needed(id)
        shares = {place[holder]: share for holder, share in (honest if len(honest) >= least else held).items()}

        def right(secret: bytes) -> bool:
            if which == "seeds":
                return keys.commitment(secret) == self._shares[id].commitment
            return keys.public(secret) == roster.by_id[id].masking

        try:
            secret, wrong = recovery.verified(shares, least, right)
        except NotRecovered as reason:
            raise TooFew(f"the mask of client {id} cannot be removed: {reason}") from None
        holders = roster.holders(id)
        for at in wrong:
            self._lied.add(holders[at - 1])
            self.problems.setdefault(holders[at - 1], f"revealed a wrong share of client {id}")
        return secret

    # All steps

    @property
    def steps(self) -> tuple[str, ...]:
        return tuple(step for step in KINDS if step != "agreed" or self.session.signed)

    def ask(self, step: str) -> dict[int, Any]:
        """The message to each client for a step."""
        match step:
            case "advertised":
                return self.invites()
            case "shared":
                return self.rosters()
            case "masked":
                return self.bundles()
            case "agreed":
                survivors = self.survivors()
                return dict.fromkeys(survivors.ids, survivors)
        return self.unmasks()

    # Checks

    def _ready(self) -> Roster:
        if self.roster is None:
            raise Malformed("there is no roster yet")
        return self.roster

    def _known(self, id: int, claimed: int) -> Roster:
        roster = self._ready()
        if id not in roster.by_id or claimed != id:
            raise Malformed("its message names another client, or it is not in this session")
        return roster

    def _enough(self, present: int, asked: int, did: str, least: int | None = None) -> None:
        """Require more than the threshold of the asked clients, and ``least`` (by default that of the session)."""
        wanted = max(needed(self.session.threshold, asked), self.session.least if least is None else least)
        if present < wanted:
            raise TooFew(f"only {present} of {asked} clients {did}; a secure sum needs {wanted}")


KINDS: dict[str, type[Packed]] = {
    "advertised": Advertised,
    "shared": Shares,
    "masked": Masked,
    "agreed": Agreed,
    "revealed": Revealed,
}


class Unusable(ValueError):  # noqa: N818
    """The reason why there is no usable answer of a client, in place of the answer."""


def conduct(server: Server, ask: Callable[[str, dict[int, Packed]], Iterable[tuple[int, object]]]) -> Summed:
    """Run a session: ``ask(step, messages)`` sends a message to each client and returns the answers that arrived.

    An answer is a message, its bytes, or `Unusable`. If an answer cannot be used, it is recorded as a problem of that
    client, and the session continues with the others. Raises `TooFew` below the threshold and `Overflow` beyond the
    range.
    """
    for step in server.steps:
        asked = server.ask(step)
        missing = dict.fromkeys(asked, f"did not answer the step {step} of the secure sum")
        for id, answer in ask(step, asked):
            missing.pop(id, None)
            try:
                if isinstance(answer, Unusable):
                    raise Malformed(str(answer))
                kind = KINDS[step]
                message = answer if isinstance(answer, kind) else kind.read(answer)
                getattr(server, step)(id, message)
            except Malformed as reason:
                server.problems[id] = str(reason)
        server.problems.update(missing)
    return server.sum()
