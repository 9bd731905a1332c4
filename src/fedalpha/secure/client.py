"""The client of a secure sum: a state machine without input or output, which can be saved between messages.

The client does what its `Policy` allows and refuses everything else; after a refusal it takes no further part in the
session. The methods are called in the order advertise, share, mask, (agree,) reveal; each once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedalpha.secure import keys
from fedalpha.secure.concentration import effective
from fedalpha.secure.masks import add_mask, needed
from fedalpha.secure.messages import (
    Advertised,
    Agreed,
    Bundle,
    Invite,
    Masked,
    Revealed,
    Roster,
    Session,
    Shares,
    Survivors,
    Unmask,
    roster_of,
)
from fedalpha.secure.shamir import SHARE, split
from fedalpha.secure.wire import Malformed, pack, unpack

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey


class Refused(ValueError):  # noqa: N818
    """A client refuses to continue, because the server asks for something that would weaken its protection."""


@dataclass(frozen=True)
class Policy:
    """The requirements of a client, whatever the server's settings.

    ``least``: the smallest number of clients in a sum. ``threshold``: the smallest share of clients without which
    nothing is unmasked; None is 1/2 without signing keys and 2/3 with them. ``effective``: with signing keys, the
    least number of equal clients that the weights must count as, (Σα)²/Σα²: a server that gives one client all the
    weight would learn its model.

    ``signing`` and ``known`` are the client's own key and everybody's public keys, by client id. With them, the client
    checks which clients take part, which dropped out, and the weights of the others. Two lists of survivors could both
    be signed only if more than 2·threshold − 1 of the clients sign both: with 2/3, a third. Without keys the client
    must trust the server in all of this.

    Three more limits hold only with signing keys. ``coarsest``: the largest step between two numbers of the sum; on a
    coarser grid small updates would be rounded to 0, and the sum would reveal the large ones. ``blind``: whether to
    take part in sums in which clients weigh themselves; the server could choose a temperature at which one of them has
    all of the weight. ``settings``: the settings that the client uses besides its messages; signatures cover them, so
    they must be the same for all clients.
    """

    least: int = 3
    threshold: float | None = None
    signing: Ed25519PrivateKey | None = None
    known: Mapping[int, Ed25519PublicKey] = field(default_factory=dict)
    effective: float = 2.0
    coarsest: float = 1e-6
    blind: bool = False
    settings: bytes = b""

    def __post_init__(self) -> None:
        if self.least < 2:
            raise ValueError(f"least = {self.least}: the sum of one vector is that vector; give at least 2")
        if not 0.5 <= self.share < 1:
            raise ValueError(f"threshold = {self.threshold}; give a share of at least 0.5 and below 1")
        if not self.coarsest > 0:
            raise ValueError(f"coarsest = {self.coarsest}; give the largest step between two numbers of a sum, above 0")
        if (self.signing is None) != (not self.known):
            raise ValueError("a signing key and the public keys of all clients belong together; give both, or neither")

    @property
    def share(self) -> float:
        """The threshold."""
        return (0.5 if self.signing is None else 2 / 3) if self.threshold is None else self.threshold


class Client:
    """One client in one session."""

    def __init__(self, id: int, policy: Policy) -> None:
        self.id, self.policy = id, policy
        self.stage = "new"
        self._session = b""
        self._weight = math.nan
        self._secrets: list[bytes] = []  # the sealing key, the masking key, the seed of the own mask
        self._roster = b""
        self._own: list[bytes] = []  # the own shares: of the seed, of the masking key
        self._held: dict[int, bytes] = {}  # by neighbour: its share of the seed, its share of the masking key
        self._survivors = b""

    # State between messages

    def dump(self) -> bytes:
        """The state, with its secrets; keep it on the client."""
        told = [self._session, self._weight, self._secrets, self._roster, self._own, self._held, self._survivors]
        return pack([self.id, self.stage, *told])

    @property
    def session(self) -> Session:
        return Session.read(self._session)

    @property
    def weight(self) -> float:
        return self._weight

    @property
    def members(self) -> int:
        """How many clients are in the roster."""
        return len(roster_of(self._roster).members)

    @classmethod
    def load(cls, data: bytes, policy: Policy) -> Client:
        id, stage, *told = unpack(data)
        client = cls(id, policy)
        client.stage = stage
        (
            client._session,
            client._weight,
            client._secrets,
            client._roster,
            client._own,
            client._held,
            client._survivors,
        ) = told
        return client

    # The steps

    def advertise(self, invite: Invite) -> Advertised:
        """Make fresh keys."""
        with self._step("new", "advertised"):
            session = Session.read(invite.session)
            if session.threshold < self.policy.share - 1e-9:
                raise Refused(
                    f"the session's threshold is {session.threshold:g}; this client requires {self.policy.share:g}"
                )
            if session.effective < self.policy.effective:
                raise Refused(
                    f"the session accepts weights that count as {session.effective:g} equal clients; this client "
                    f"requires {self.policy.effective:g}"
                )
            if self.policy.signing is not None and not session.signed:
                raise Refused(
                    "the session's lists are not signed, but this client has a signing key and requires signatures"
                )
            if self.policy.signing is None and session.signed:
                raise Refused("the session requires signed lists, but this client has no signing key")
            if self.policy.signing is not None and session.degree:
                raise Refused(
                    "a lying server could choose the neighbours; clients with signing keys require neighbours=all"
                )
            if self.policy.signing is not None and session.blind and not self.policy.blind:
                raise Refused("clients weigh themselves in this session, which this client with a signing key refuses")
            if abs(invite.weight) > session.mass * (1 + 1e-9):
                raise Refused(f"the weight {invite.weight:g} is above the sum of the weights, {session.mass:g}")
            self._session, self._weight = invite.session, invite.weight
            self._secrets = [keys.fresh(), keys.fresh(), keys.fresh()]
            found = Advertised(self.id, keys.public(self._secrets[0]), keys.public(self._secrets[1]), b"")
            if self.policy.signing is None:
                return found
            signature = keys.sign(self.policy.signing, "advertise", found.signs(self._session, self.policy.settings))
            return Advertised(found.id, found.sealing, found.masking, signature)

    def share(self, roster: Roster) -> Shares:
        """Check the members of the session; share both secrets among the neighbours."""
        with self._step("advertised", "shared"):
            self._check(roster)
            self._roster = roster.packed
            holders = roster.holders(self.id)
            least = roster.shares_needed(self.id)
            place = {holder: at for at, holder in enumerate(holders, start=1)}
            seeds = split(self._secrets[2], list(place.values()), least)
            secrets = split(self._secrets[1], list(place.values()), least)
            sealed = {}
            for holder, at in place.items():
                if holder == self.id:
                    self._own = [seeds[at], secrets[at]]
                    continue
                context = self._context(roster, self.id, holder)
                key = keys.agree(self._secrets[0], roster.by_id[holder].sealing, "share", context)
                sealed[holder] = keys.seal(key, seeds[at] + secrets[at], context)
            signature = b""
            if self.policy.signing is not None:
                signature = keys.sign(self.policy.signing, "roster", roster.hash)
            return Shares(self.id, keys.commitment(self._secrets[2]), sealed, signature)

    def mask(self, bundle: Bundle, values: NDArray[np.float64]) -> Masked:
        """The weighted vector ``values`` under masks. It must be within the range of this client's weight."""
        with self._step("shared", "masked"):
            roster = roster_of(self._roster)
            session = roster.agreed
            if bundle.roster != roster.hash:
                raise Refused("the server has another roster for this session")
            strangers = bundle.sealed.keys() - set(roster.neighbours[self.id])
            if strangers:
                raise Refused(f"client {min(strangers)} is not a neighbour in this session")
            if len(bundle.sealed) + 1 < roster.shares_needed(self.id):
                raise Refused(
                    f"only {len(bundle.sealed)} neighbours have shared their secrets; this step needs "
                    f"{roster.shares_needed(self.id) - 1}"
                )
            for peer, (sealed, signature) in bundle.sealed.items():
                if self.policy.signing is not None and not self._signed(peer, signature, "roster", roster.hash):
                    raise Refused(f"client {peer} has not signed this roster: the server sent two rosters")
                self._held[peer] = self._opened(roster, peer, sealed)
            if values.shape != (session.length,):
                raise Refused(f"the update has the shape {values.shape}; the session sums {session.length} values")
            words = session.grid(len(roster.members)).encode(values, session.limit(self._weight, len(roster.members)))
            context = pack([roster.hash, self.id])
            add_mask(words, keys.derive(self._secrets[2], "own mask", context), 1)
            for peer in self._held:
                key = pair_key(self._secrets[1], roster, self.id, peer)
                add_mask(words, key, 1 if peer > self.id else -1)
            return Masked(self.id, words.tobytes())

    def agree(self, survivors: Survivors) -> Agreed:
        """Sign the list of survivors; only one list is ever signed."""
        with self._step("masked", "agreed"):
            if self.policy.signing is None:
                raise Refused("this client has no signing key")
            self._check_survivors(survivors)
            self._survivors = survivors.packed
            return Agreed(self.id, keys.sign(self.policy.signing, "survivors", survivors.signs()))

    def reveal(self, unmask: Unmask) -> Revealed:
        """For each neighbour, a share of the seed of its personal mask if it survived, otherwise of its masking key."""
        with self._step("agreed" if self.policy.signing is not None else "masked", "revealed"):
            survivors = Survivors.read(unmask.survivors)
            if self.policy.signing is not None:
                self._check_agreed(survivors, unmask)
            self._check_survivors(survivors)
            alive = set(survivors.ids)
            seeds, secrets = {}, {}
            for peer, shares in (*self._held.items(), (self.id, b"".join(self._own))):
                if shares and peer in alive:
                    seeds[peer] = shares[:SHARE]
                elif shares:
                    secrets[peer] = shares[SHARE:]
            self._forget()
            return Revealed(self.id, seeds, secrets)

    # Checks

    @contextmanager
    def _step(self, expected: str, following: str) -> Iterator[None]:
        """Go to the next stage; after a refusal the session has ended for this client, and its secrets are deleted."""
        if self.stage != expected:
            raise Refused(f"this step is not due: the client is at the stage {self.stage}, not {expected}")
        self.stage = "over"
        try:
            yield
        except BaseException:
            self._forget()
            raise
        self.stage = following

    def _forget(self) -> None:
        self._secrets, self._own, self._held = [], [], {}

    def _check(self, roster: Roster) -> None:
        if roster.session != self._session:
            raise Refused("the roster belongs to another session")
        mine = roster.by_id.get(self.id)
        if (
            mine is None
            or mine.masking != keys.public(self._secrets[1])
            or mine.sealing != keys.public(self._secrets[0])
        ):
            raise Refused("the roster does not hold this client's own keys")
        if roster.least < self.policy.least:
            raise Refused(
                f"the session allows a sum of {roster.least} clients; this client requires at least {self.policy.least}"
            )
        try:
            grid = roster.agreed.grid(len(roster.members))
        except ValueError as error:
            raise Refused(f"the sum cannot be computed: {error}") from None
        if self.policy.signing is None:
            return
        for one in roster.advertised:
            if not self._signed(one.id, one.signature, "advertise", one.signs(self._session, self.policy.settings)):
                raise Refused(f"the keys of client {one.id} are not signed by it for this session with these settings")
        weights = dict(zip(roster.by_id, roster.weights or (), strict=False))
        total = sum(map(abs, weights.values()))  # fsum raises an error where this is infinite
        if weights.get(self.id) != self._weight or total > roster.agreed.mass * (1 + 1e-9):
            raise Refused("the weights of the roster are not those of the session")
        self._check_weights(roster, roster.by_id)
        step = math.ldexp(1, -grid.exponent)
        if step > self.policy.coarsest:
            raise Refused(
                f"the session's numbers are {step:.3g} apart; this client requires {self.policy.coarsest:g} at most: "
                "use more bits or a smaller range"
            )

    def _check_weights(self, roster: Roster, ids: Iterable[int]) -> None:
        """Refuse weights that single out a client among ``ids``; they are in the roster where it is signed."""
        weights = dict(zip(roster.by_id, roster.weights or (), strict=False))
        counts = effective(weights[id] for id in ids)
        if counts < self.policy.effective:
            raise Refused(
                f"the weights count as {counts:.3g} clients; this client requires at least {self.policy.effective:g}"
            )

    def _signed(self, id: int, signature: bytes, purpose: str, content: bytes) -> bool:
        key = self.policy.known.get(id)
        return key is not None and keys.signed_by(key, signature, purpose, content)

    def _opened(self, roster: Roster, peer: int, sealed: bytes) -> bytes:
        """A neighbour's shares; empty if they cannot be read: the neighbour may be hostile, and the sum continues."""
        context = self._context(roster, peer, self.id)
        try:
            key = keys.agree(self._secrets[0], roster.by_id[peer].sealing, "share", context)
            found = keys.unseal(key, sealed, context)
        except Malformed:
            return b""
        return found if len(found) == 2 * SHARE else b""

    @staticmethod
    def _context(roster: Roster, sender: int, receiver: int) -> bytes:
        return pack([roster.hash, sender, receiver])

    def _check_survivors(self, survivors: Survivors) -> None:
        roster = roster_of(self._roster)
        if survivors.roster != roster.hash:
            raise Refused("the list of survivors belongs to another session")
        alive = set(survivors.ids)
        if self.id not in alive or not alive <= roster.by_id.keys():
            raise Refused("the list of survivors leaves this client out, or names clients that are not in the roster")
        if len(alive) < max(roster.least, self.policy.least):
            least = max(roster.least, self.policy.least)
            raise Refused(f"only {len(alive)} clients are in the sum; {least} are needed")
        unknown = alive & set(roster.neighbours[self.id]) - self._held.keys()
        if unknown:
            raise Refused(f"the sum contains client {min(unknown)}, whose shares the server did not deliver")
        if not roster.joined(alive):
            raise Refused("masks do not join all clients in the sum, so it would be unmasked in parts")
        if self.policy.signing is not None:
            self._check_weights(roster, alive)

    def _check_agreed(self, survivors: Survivors, unmask: Unmask) -> None:
        """More than the threshold of all members signed this very list, so no other list can have as many."""
        roster = roster_of(self._roster)
        if survivors.packed != self._survivors:
            raise Refused("the server reports other survivors than those that this client signed")
        content = survivors.signs()
        valid = [
            id
            for id, signature in unmask.signatures.items()
            if id in roster.by_id and self._signed(id, signature, "survivors", content)
        ]
        least = needed(max(roster.agreed.threshold, self.policy.share), len(roster.members))
        if len(valid) < least:
            raise Refused(f"only {len(valid)} clients have signed this list of survivors; {least} are needed")


def pair_key(private: bytes, roster: Roster, one: int, other: int) -> bytes:
    """The key of the common mask of two clients, from the masking key of ``one``."""
    context = pack([roster.hash, min(one, other), max(one, other)])
    return keys.agree(private, roster.by_id[other].masking, "pair mask", context)
