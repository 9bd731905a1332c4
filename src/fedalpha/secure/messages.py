"""The messages of the protocol, in the order in which they are sent. Each checks its own form when it is read.

| step | server → client | client → server |
|---|---|---|
| keys | `Invite` | `Advertised` |
| shares | `Roster` | `Shares` |
| sum | `Bundle` | `Masked` |
| agreement, with signing keys | `Survivors` | `Agreed` |
| unmasking | `Unmask` | `Revealed` |
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, ClassVar, Self

from fedalpha.secure.field import BITS, FixedPoint
from fedalpha.secure.keys import DIGEST, KEY, SEALED, SIGNATURE, digest
from fedalpha.secure.masks import joined, needed, ring
from fedalpha.secure.shamir import SHARE
from fedalpha.secure.wire import Malformed, pack, unpack

MOST_CLIENTS = 1_000_000
LONGEST = 1 << 40


def _id(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63 - 1


def _check_signature(signature: bytes) -> None:
    """Signatures are sent to all clients, so their length is checked here; clients check whether they are valid."""
    if len(signature) not in (0, SIGNATURE):
        raise ValueError("its signature has the wrong length")


def _map(value: Any, check: Callable[[Any], bool]) -> bool:
    return isinstance(value, dict) and all(_id(k) and check(v) for k, v in value.items())


_CHECKS: dict[str, Callable[[Any], bool]] = {
    "int": _id,
    "float": lambda v: isinstance(v, float) and not math.isnan(v),
    "bool": lambda v: isinstance(v, bool),
    "bytes": lambda v: isinstance(v, bytes),
    "str": lambda v: isinstance(v, str) and len(v) < 200,
    "Ids": lambda v: isinstance(v, list) and all(map(_id, v)) and all(a < b for a, b in pairwise(v)),
    "ByteMap": lambda v: _map(v, lambda one: isinstance(one, bytes)),
    "PairMap": lambda v: _map(v, lambda one: isinstance(one, list) and list(map(type, one)) == [bytes, bytes]),
    "Members": lambda v: isinstance(v, list) and all(isinstance(one, bytes) for one in v),
}
Ids = list[int]
ByteMap = dict[int, bytes]
PairMap = dict[int, list[bytes]]
Members = list[bytes]


@dataclass(frozen=True)
class Packed:
    """A message: its fields in a canonical encoding, checked when they are read."""

    kind: ClassVar[str]

    def __init_subclass__(cls, kind: str, **more: Any) -> None:
        super().__init_subclass__(**more)
        cls.kind = kind

    @cached_property
    def packed(self) -> bytes:
        return pack([self.kind, *(getattr(self, f.name) for f in dataclasses.fields(self))])

    @classmethod
    def read(cls, data: Any) -> Self:
        """The message in these bytes; raises `Malformed` if they are another one or none."""
        values = unpack(data) if isinstance(data, bytes) else None
        names = dataclasses.fields(cls)
        if not isinstance(values, list) or len(values) != len(names) + 1 or values[0] != cls.kind:
            raise Malformed(f"this is not a message of the kind {cls.kind}")
        for one, value in zip(names, values[1:], strict=True):
            if not _CHECKS[str(one.type)](value):
                raise Malformed(f"{cls.kind}: its field {one.name} is not valid")
        try:
            return cls(*values[1:])
        except (ValueError, OverflowError) as error:
            raise Malformed(f"{cls.kind}: {error}") from None


@dataclass(frozen=True)
class Session(Packed, kind="session"):
    """The settings of a session, which is one sum of vectors of ``length`` words.

    A client of weight a sends a·x, where x is its update, of Euclidean norm at most ``clip`` (inf: any) and with values
    of at most ``range``. ``mass`` bounds the sum of the weights. ``deviation``: the standard deviation of the normal
    noise that the smallest admissible set of clients adds in total to every value. ``degree``: the number of
    neighbours, 0 for all.

    ``least`` and ``effective``: no sum of fewer clients is unmasked, and none whose weights count as fewer equal ones.
    ``broadcast``: a digest of the model and the settings with which every client trains, empty if the server is trusted
    with them. Otherwise a server could send models from which only one client learns, and see its update as the sum.

    With ``blind``, its weight is a·exp(e) with e = ``slope``·(its loss − ``reference``), which must be at most
    ``steepest``; the first word is then the weight times ``range``.
    """

    run: str
    round: int
    nonce: bytes
    length: int
    bits: int
    range: float
    mass: float
    clip: float
    deviation: float
    threshold: float
    least: int
    effective: float
    degree: int
    signed: bool
    broadcast: bytes
    blind: bool
    slope: float
    reference: float
    steepest: float

    def __post_init__(self) -> None:
        if not self.blind < self.length < LONGEST or self.bits not in BITS or len(self.nonce) != 16:
            raise ValueError(f"a vector of {self.length} values of {self.bits} bits cannot be summed")
        if not 0 < self.range < math.inf or not 0 < self.mass < math.inf or not self.clip > 0:
            raise ValueError("its range is not valid")
        if not 0 <= self.deviation < math.inf or not 0.5 <= self.threshold < 1:
            raise ValueError("its noise or its threshold is not valid")
        if not 2 <= self.least <= MOST_CLIENTS or not 1 <= self.effective < math.inf:
            raise ValueError("the least number of clients in its sum is not valid")
        if len(self.broadcast) not in (0, DIGEST):
            raise ValueError("its digest of what clients train on is not valid")
        if self.degree % 2 or self.degree > MOST_CLIENTS or not 0 <= self.steepest <= 100:
            raise ValueError("its number of neighbours or its steepest weight is not valid")

    @property
    def spread(self) -> float:
        """The largest value per unit of weight."""
        return min(self.range, self.clip) * math.exp(self.steepest)

    def enough(self, clients: int) -> int:
        """How many of ``clients`` must be in the sum."""
        return max(needed(self.threshold, clients), self.least)

    def noise(self, clients: int) -> float:
        """The deviation of each client's noise in a roster of ``clients``; the least number adds all of it."""
        return self.deviation / math.sqrt(self.enough(clients))

    def limit(self, weight: float, clients: int) -> float:
        """The largest value that a client of this weight may send; the noise stays within 12 deviations."""
        return abs(weight) * self.spread + 12 * self.noise(clients)

    def grid(self, clients: int) -> FixedPoint:
        return FixedPoint(self.bits, clients, self.mass * self.spread + clients * 12 * self.noise(clients))


@dataclass(frozen=True)
class Invite(Packed, kind="invite"):
    """Asks a client to take part. ``weight`` scales its vector."""

    session: bytes
    weight: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.weight) or not self.weight:
            raise ValueError(f"the weight {self.weight} is not a number other than 0")


@dataclass(frozen=True)
class Advertised(Packed, kind="advertised"):
    """A client's fresh public keys: for shares and for masks; signed if the client has a signing key."""

    id: int
    sealing: bytes
    masking: bytes
    signature: bytes

    def __post_init__(self) -> None:
        if len(self.sealing) != KEY or len(self.masking) != KEY or self.sealing == self.masking:
            raise ValueError("its keys are not two different ones of 32 bytes")
        _check_signature(self.signature)

    def signs(self, session: bytes, settings: bytes) -> bytes:
        """The signed bytes; ``settings``: those of the client, which are not sent (`Policy`)."""
        return pack([session, self.id, self.sealing, self.masking, settings])


@dataclass(frozen=True)
class Roster(Packed, kind="roster"):
    """The members of the session with their keys; with signing keys also their weights, which clients check."""

    session: bytes
    members: Members
    weights: list[float] | None = field(default=None)

    def __post_init__(self) -> None:
        ids = [one.id for one in self.advertised]
        if len(ids) > MOST_CLIENTS or any(a >= b for a, b in pairwise(ids)):
            raise ValueError("its members are not in the order of their ids")
        keys = [key for one in self.advertised for key in (one.sealing, one.masking)]
        if len(set(keys)) != len(keys):
            raise ValueError("two keys are the same")
        if self.weights is not None and len(self.weights) != len(ids):
            raise ValueError("its weights are not one per member")

    @cached_property
    def advertised(self) -> list[Advertised]:
        return [Advertised.read(one) for one in self.members]

    @cached_property
    def by_id(self) -> dict[int, Advertised]:
        return {one.id: one for one in self.advertised}

    @cached_property
    def hash(self) -> bytes:
        return digest(self.packed)

    @cached_property
    def agreed(self) -> Session:
        return Session.read(self.session)

    @cached_property
    def neighbours(self) -> Mapping[int, tuple[int, ...]]:
        return ring(list(self.by_id), self.agreed.degree, self.hash)

    def holders(self, id: int) -> tuple[int, ...]:
        """The clients that have a share of a client's secrets: its neighbours and itself."""
        return tuple(sorted((*self.neighbours[id], id)))

    def shares_needed(self, id: int) -> int:
        return needed(self.agreed.threshold, len(self.holders(id)))

    @property
    def least(self) -> int:
        """How many members must be in the sum."""
        return self.agreed.enough(len(self.members))

    def joined(self, alive: Collection[int]) -> bool:
        """Whether masks connect all clients of ``alive``. If not, sums of the parts would be unmasked one by one."""
        return not self.agreed.degree or joined(self.neighbours, alive)


@lru_cache(maxsize=4)
def roster_of(packed: bytes) -> Roster:
    """`Roster.read`; many clients of one process read the same one."""
    return Roster.read(packed)


_CHECKS["list[float] | None"] = lambda v: (
    v is None or (isinstance(v, list) and all(isinstance(w, float) and math.isfinite(w) for w in v))
)


@dataclass(frozen=True)
class Shares(Packed, kind="shares"):
    """For each neighbour the shares of this client's secrets, encrypted for it; with a signature of the roster."""

    id: int
    commitment: bytes
    sealed: ByteMap
    signature: bytes

    def __post_init__(self) -> None:
        _check_signature(self.signature)
        if any(len(one) > 2 * SHARE + SEALED for one in self.sealed.values()):
            raise ValueError("a sealed share is too long")


@dataclass(frozen=True)
class Bundle(Packed, kind="bundle"):
    """By neighbour: the sealed shares for this client, and the neighbour's signature of the roster."""

    roster: bytes
    sealed: PairMap


@dataclass(frozen=True)
class Masked(Packed, kind="masked"):
    """A client's masked vector, as little-endian words."""

    id: int
    words: bytes


@dataclass(frozen=True)
class Survivors(Packed, kind="survivors"):
    """The clients whose vectors are in the sum."""

    roster: bytes
    ids: Ids

    def signs(self) -> bytes:
        return pack([self.roster, self.ids])


@dataclass(frozen=True)
class Agreed(Packed, kind="agreed"):
    """A client's signature of the list of survivors."""

    id: int
    signature: bytes

    def __post_init__(self) -> None:
        _check_signature(self.signature)


@dataclass(frozen=True)
class Unmask(Packed, kind="unmask"):
    """A request for shares: of the personal masks of survivors, and of the masking keys of the others."""

    survivors: bytes
    signatures: ByteMap


@dataclass(frozen=True)
class Revealed(Packed, kind="revealed"):
    """By neighbour: a share of the seed of its personal mask, or of its masking key; never both."""

    id: int
    seeds: ByteMap
    keys: ByteMap

    def __post_init__(self) -> None:
        if any(len(share) != SHARE for share in (*self.seeds.values(), *self.keys.values())):
            raise ValueError("a share has the wrong length")
        if self.seeds.keys() & self.keys.keys():
            raise ValueError("it reveals both secrets of one client")
