"""Sessions: the right sum after every loss, what the server sees, and servers and clients that do not keep to it."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from fedalpha.secure import keys
from fedalpha.secure.client import Client, Policy, Refused, pair_key
from fedalpha.secure.concentration import effective
from fedalpha.secure.field import Overflow
from fedalpha.secure.masks import add_mask
from fedalpha.secure.messages import (
    Advertised,
    Bundle,
    Invite,
    Masked,
    Packed,
    Revealed,
    Roster,
    Shares,
    Survivors,
    Unmask,
)
from fedalpha.secure.server import KINDS, TooFew
from fedalpha.secure.shamir import Recovery
from fedalpha.secure.wire import Malformed, pack
from secure_sums import Federation, a_session

STEPS = ("advertised", "shared", "masked", "revealed")
NODES = 10
SIGNING = [Ed25519PrivateKey.generate() for _ in range(NODES)]


def policies(count: int = NODES, **more: Any) -> dict[int, Policy]:
    """Every client has a signing key and knows the public keys of all."""
    known = {100 + place: SIGNING[place].public_key() for place in range(count)}
    return {100 + place: Policy(signing=SIGNING[place], known=known, **more) for place in range(count)}


def signed(lost: dict[str, list[int]] | None = None, **session: Any) -> Federation:
    return Federation(NODES, a_session(signed=True, **session), lost, policies())


def right(federation: Federation, alive: int) -> None:
    found = federation.run()
    assert len(found.ids) == alive
    assert np.max(np.abs(found.values - federation.exact(found.ids))) <= found.error < 2e-7


# Losses


@pytest.mark.parametrize("make", [lambda lost: Federation(NODES, a_session(), lost), signed])
@pytest.mark.parametrize("step", STEPS)
def test_three_of_ten_may_be_lost_at_every_step(make: Callable[[Any], Federation], step: str) -> None:
    right(make({step: [100, 104, 109]}), alive=10 if step == "revealed" else 7)


def test_three_may_be_lost_while_the_list_is_signed() -> None:
    right(signed({"agreed": [101, 102, 103]}), alive=10)


def test_one_may_be_lost_at_each_step() -> None:
    right(Federation(NODES, a_session(), {"shared": [100], "masked": [105], "revealed": [109]}), alive=8)


@pytest.mark.parametrize("make", [lambda lost: Federation(NODES, a_session(), lost), signed])
@pytest.mark.parametrize("step", STEPS)
def test_below_the_threshold_nothing_is_unmasked(make: Callable[[Any], Federation], step: str) -> None:
    federation = make({step: [100, 104, 107, 109]})
    with pytest.raises(TooFew, match=r"only 6 of 10 clients .*; a secure sum needs 7"):
        federation.run()
    if step != "revealed":
        assert not [one for one in federation.sent if one[0] == "revealed"]


def test_fewer_clients_than_the_least_are_not_summed() -> None:
    """Also where the threshold alone would allow it."""
    federation = Federation(6, a_session(threshold=0.5, least=5), {"masked": [100, 103]})
    with pytest.raises(TooFew, match="only 4 of 6 clients delivered; a secure sum needs 5"):
        federation.run()
    with pytest.raises(TooFew, match="only 4 of 4 clients sent keys; a secure sum needs 5"):
        Federation(4, a_session(least=5)).run()
    right(Federation(6, a_session(threshold=0.5, least=5), {"revealed": [100, 103]}), alive=6)


def test_many_clients_have_few_neighbours() -> None:
    federation = Federation(40, a_session(degree=16, threshold=0.5, length=5), {"masked": [100, 110, 120, 130]})
    right(federation, alive=36)
    assert all(len(Shares.read(sent).sealed) == 16 for step, _, sent in federation.sent if step == "shared")


@settings(max_examples=15, deadline=None)
@given(st.integers(3, 9), st.data())
def test_any_losses_give_the_right_sum_or_a_refusal(count: int, data: Any) -> None:
    lost = {step: data.draw(st.sets(st.integers(100, 99 + count), max_size=2)) for step in STEPS}
    federation = Federation(count, a_session(length=3, bits=data.draw(st.sampled_from([32, 64]))), lost)
    try:
        found = federation.run()
    except TooFew:
        return
    assert np.max(np.abs(found.values - federation.exact(found.ids))) <= found.error


def ring_order(federation: Federation) -> list[int]:
    """The clients of a ring with two neighbours each, in its order."""
    roster = federation.server.roster
    assert roster is not None
    found = [federation.ids[0]]
    while len(found) < len(federation.ids):
        found.append(next(id for id in roster.neighbours[found[-1]] if id not in found))
    return found


def test_a_sum_that_would_be_unmasked_in_parts_is_refused() -> None:
    """Two clients are lost on a ring with two neighbours each: its arcs would be summed one by one."""
    federation = Federation(12, a_session(degree=2, threshold=0.5, length=5))
    asked(federation, "masked")
    order, server = ring_order(federation), federation.server
    server._arrived = [id for id in order if id not in (order[0], order[2])]
    with pytest.raises(TooFew, match="give more neighbours"):
        server.survivors()
    client, roster = federation.clients[order[1]], server.roster
    client.mask(server.bundles()[order[1]], np.zeros(5))
    survivors = Survivors(roster.hash, sorted(server._arrived))
    with pytest.raises(Refused, match="unmasked in parts"):
        client.reveal(Unmask(survivors.packed, {}))
    server._arrived = [id for id in order if id not in (order[0], order[1])]  # one gap: an arc of all the others
    assert server.survivors().ids == sorted(order[2:])


def test_weights_may_be_negative_and_off_the_simplex() -> None:
    federation = Federation(4, a_session(mass=3.0))
    federation.weights[100] *= -1
    federation.server.weights[100] *= -1
    right(federation, alive=4)


# What the server sees


def seen_vectors(federation: Federation) -> list[np.ndarray[Any, Any]]:
    return [np.frombuffer(Masked.read(sent).words, "<u4") for step, _, sent in federation.sent if step == "masked"]


def uniform(words: np.ndarray[Any, Any]) -> float:
    """The p-value of the hypothesis that the bytes of the vector are uniform (chi-square)."""
    counts = np.bincount(words.view(np.uint8), minlength=256)
    expected = counts.sum() / 256
    return float(chi2.sf(((counts - expected) ** 2 / expected).sum(), 255))


def test_masked_vectors_are_uniform_and_unmasked_ones_are_not() -> None:
    federation = Federation(5, a_session(length=20_000))
    federation.run()
    masked = seen_vectors(federation)
    assert min(map(uniform, masked)) > 1e-6
    session = federation.server.session
    for id, update in federation.updates.items():
        weight = federation.weights[id]
        plain = session.grid(5).encode(weight * update, session.limit(weight, 5))
        assert uniform(plain) < 1e-12
        assert uniform(plain + plain[::-1]) < 1e-12


def test_the_transcript_of_the_server_contains_no_vector() -> None:
    """Nor does the difference of what a client sent and any other client sent."""
    federation = Federation(5, a_session(length=2000), {"masked": [104]})
    federation.run()
    transcript = b"".join(sent for _, _, sent in federation.sent)
    vectors = seen_vectors(federation)
    session = federation.server.session
    for id, update in federation.updates.items():
        weight = federation.weights[id]
        words = session.grid(5).encode(weight * update, session.limit(weight, 5))
        assert words.tobytes()[:16] not in transcript
        assert update.tobytes()[:16] not in transcript
        for masked in vectors:
            assert np.abs(np.corrcoef(masked.astype(float), words.view("<i4").astype(float))[0, 1]) < 0.15


def test_two_sessions_of_the_same_vectors_have_nothing_in_common() -> None:
    one, two = Federation(4, a_session(length=3000)), Federation(4, a_session(length=3000))
    one.run(), two.run()
    for a, b in zip(seen_vectors(one), seen_vectors(two), strict=True):
        assert uniform(a - b) > 1e-6


def test_a_client_that_was_counted_as_lost_stays_masked() -> None:
    """Its vector arrives too late: the server knows its pairwise masks by then, but not its own mask."""
    federation = Federation(5, a_session(length=20_000))
    late: dict[int, Packed] = {}
    ask = federation.ask

    def hold(step: str, messages: dict[int, Packed]) -> Any:
        for id, answer in ask(step, messages):
            if step == "masked" and id == 104:
                late[id] = Masked.read(answer)
            elif id not in late:
                yield id, answer

    federation.ask = hold  # type: ignore[method-assign]
    right(federation, alive=4)
    server, roster = federation.server, federation.server.roster
    assert roster is not None
    private = server._recover(Recovery(), 104, "keys")
    words = np.frombuffer(late[104].words, "<u4").copy()  # type: ignore[attr-defined]
    for peer in roster.neighbours[104]:
        add_mask(words, pair_key(private, roster, 104, peer), -1 if peer > 104 else 1)
    assert uniform(words) > 1e-6
    with pytest.raises(Malformed, match="too late"):
        server.masked(104, late[104])  # type: ignore[arg-type]


# The range


def test_a_value_at_the_edge_is_summed_and_one_beyond_is_told() -> None:
    edge = Federation(4, a_session(length=2))
    edge.updates = {i: np.array([4.0, -4.0]) for i in edge.ids}
    np.testing.assert_allclose(edge.run().values, [4.0, -4.0], atol=1e-7)
    beyond = Federation(4, a_session(length=2))
    beyond.updates[102] = np.array([4.1, 0.0])
    with pytest.raises(Overflow, match="its share of the range"):
        beyond.run()


def test_a_hostile_value_beyond_the_range_is_told_by_the_server() -> None:
    federation = Federation(4, a_session(length=2))
    ask = federation.ask

    def shift(step: str, messages: dict[int, Packed]) -> Any:
        for id, answer in ask(step, messages):
            if step == "masked" and id == 101:
                message = Masked.read(answer)
                words = np.frombuffer(message.words, "<u4").copy()
                words[0] ^= 1 << 31
                yield id, dataclasses.replace(message, words=words.tobytes())
            else:
                yield id, answer

    federation.ask = shift  # type: ignore[method-assign]
    with pytest.raises(Overflow, match="exceeded its range"):
        federation.run()


# Servers that lie


def asked(federation: Federation, upto: str) -> dict[int, Any]:
    """Play a session up to a step; returns what the server would send in it."""
    for step in federation.server.steps:
        messages = federation.server.ask(step)
        if step == upto:
            return messages
        for id, answer in federation.ask(step, messages):
            getattr(federation.server, step)(id, KINDS[step].read(answer))
    raise AssertionError(upto)


def test_with_signing_keys_a_client_cannot_be_dropped_and_alive() -> None:
    """The server signs off 100 … 109 with the clients, then reports that 104 has dropped out."""
    federation = signed()
    messages = asked(federation, "revealed")
    told = Survivors.read(messages[100].survivors)
    fewer = Survivors(told.roster, [id for id in told.ids if id != 104])
    with pytest.raises(Refused, match="other survivors than those that this client signed"):
        federation.clients[100].reveal(dataclasses.replace(messages[100], survivors=fewer.packed))


def test_with_signing_keys_two_lists_cannot_both_be_signed() -> None:
    """Half of the clients are asked to sign one list, half another: neither has enough signatures."""
    federation = signed()
    messages = asked(federation, "agreed")
    full = messages[100]
    fewer = Survivors(full.roster, [id for id in full.ids if id != 109])
    shown = {id: full if id < 105 else fewer for id in full.ids if id != 109}
    signatures = {id: federation.clients[id].agree(one).signature for id, one in shown.items()}
    for id, one in shown.items():
        with pytest.raises(Refused, match="clients have signed this list of survivors; 7 are needed"):
            federation.clients[id].reveal(Unmask(one.packed, signatures))
    with pytest.raises(Refused, match="this step is not due"):
        federation.clients[100].agree(fewer)


def test_with_signing_keys_two_rosters_are_refused() -> None:
    federation = signed()
    rosters = asked(federation, "shared")
    roster = rosters[100]
    other = Roster(roster.session, roster.members[:-1], roster.weights[:-1])
    shares = {id: federation.clients[id].share(roster if id < 105 else other) for id in range(100, 109)}
    near = {p: [shares[p].sealed[100], shares[p].signature] for p in range(101, 109)}
    with pytest.raises(Refused, match="the server sent two rosters"):
        federation.clients[100].mask(Bundle(roster.hash, near), np.zeros(40))


def test_with_signing_keys_a_made_up_client_is_refused() -> None:
    federation = signed()
    roster = asked(federation, "shared")[100]
    forged = Client(109, Policy()).advertise(Invite(a_session().packed, 0.1))
    members = [*roster.members[:-1], forged.packed]
    with pytest.raises(Refused, match="the keys of client 109 are not signed by it"):
        federation.clients[100].share(Roster(roster.session, members, roster.weights))


def test_with_signing_keys_weights_that_single_out_a_client_are_refused() -> None:
    weights = dict.fromkeys(range(100, 110), 1e-12) | {103: 1.0}
    federation = Federation(NODES, a_session(signed=True), None, policies())
    federation.server.weights = federation.weights = weights
    with pytest.raises(TooFew, match="only 0 of 10"):
        federation.run()
    assert "the weights count as 1 clients; this client requires at least 2" in federation.refusals[103]


def test_a_session_whose_numbers_do_not_fit_is_refused() -> None:
    """A hostile server can announce any range; the client answers with a refusal, not with an error of its app."""
    invite = Invite(a_session(mass=1e308, range=1e308).packed, 0.1)
    clients = [Client(100 + i, Policy()) for i in range(4)]
    members = [client.advertise(invite).packed for client in clients]
    with pytest.raises(Refused, match="the sum cannot be computed"):
        clients[0].share(Roster(invite.session, members))


def test_weights_beyond_float64_are_refused() -> None:
    """Their sum is infinite: a short refusal, as for other weights that are not those of the session."""
    federation = signed(mass=1e308, range=1.0)
    roster = asked(federation, "shared")[100]
    forged = Roster(roster.session, roster.members, [federation.weights[100], *[1.7e308] * 9])
    with pytest.raises(Refused, match="the weights of the roster are not those of the session"):
        federation.clients[100].share(forged)


def test_with_signing_keys_weights_that_single_out_a_survivor_are_refused() -> None:
    """Two clients share the weight, so the roster passes; then the server says that one of them dropped out."""
    weights = dict.fromkeys(range(100, 110), 1e-12) | {103: 0.5, 104: 0.5}
    federation = Federation(NODES, a_session(signed=True), None, policies())
    federation.server.weights = federation.weights = weights
    full = asked(federation, "agreed")[100]
    fewer = Survivors(full.roster, [id for id in full.ids if id != 104])
    with pytest.raises(Refused, match="the weights count as 1 clients; this client requires at least 2"):
        federation.clients[103].agree(fewer)
    federation.clients[100].agree(full)


@settings(max_examples=60, deadline=None)
@given(weights=st.lists(st.floats(1e-9, 1e9), min_size=3, max_size=8), traitors=st.integers(0, 4))
def test_without_some_clients_weights_count_as_that_many_fewer(weights: list[float], traitors: int) -> None:
    """So clients that want ``effective`` = t + 2 are among weights that count as 2, even without t that lie."""
    for left_out in itertools.combinations(range(len(weights)), min(traitors, len(weights) - 1)):
        rest = [weight for place, weight in enumerate(weights) if place not in left_out]
        assert effective(rest) >= effective(weights) - len(left_out) - 1e-9


def test_with_signing_keys_half_of_the_weight_on_a_traitor_singles_out_a_client_that_wants_too_little() -> None:
    weights = dict.fromkeys(range(100, 110), 1e-12) | {103: 0.5, 104: 0.5}
    for wanted in (2.0, 3.0):
        federation = Federation(NODES, a_session(signed=True, effective=wanted), None, policies(effective=wanted))
        federation.server.weights = federation.weights = weights
        roster = asked(federation, "shared")[100]
        if wanted == 2:
            federation.clients[103].share(roster)  # 104 works with the server, and subtracts its own part
            continue
        with pytest.raises(Refused, match="the weights count as 2 clients; this client requires at least 3"):
            federation.clients[103].share(roster)


def test_an_honest_server_does_not_unmask_a_sum_of_one_heavy_client() -> None:
    federation = Federation(5, a_session(threshold=0.5), {"masked": [101]})
    federation.server.weights = federation.weights = dict.fromkeys(federation.ids, 1e-9) | {100: 0.5, 101: 0.4}
    with pytest.raises(TooFew, match="count as 1 equal ones"):
        federation.run()
    assert not [one for one in federation.sent if one[0] == "revealed"]
    with pytest.raises(Refused, match=r"accepts weights that count as 1.5 equal clients; this client requires 2"):
        Client(1, Policy()).advertise(Invite(a_session(effective=1.5).packed, 0.1))


def test_with_signing_keys_a_server_can_lower_neither_the_threshold_nor_the_number_of_neighbours() -> None:
    """At 1/2, two clients who sign twice would be enough for two lists of survivors; neighbours could be drawn."""
    policy = policies()[100]
    for changes, reason in (
        ({"threshold": 0.5}, "the session's threshold is 0.5; this client requires 0.666667"),
        ({"degree": 4}, "clients with signing keys require neighbours=all"),
    ):
        with pytest.raises(Refused, match=reason):
            Client(100, policy).advertise(Invite(a_session(signed=True, **changes).packed, 0.1))


def test_with_signing_keys_a_server_cannot_let_clients_weigh_themselves() -> None:
    """It would choose a slope at which the client with the largest loss has all of the weight."""
    session = a_session(signed=True, blind=True, slope=1000.0, reference=2.0, steepest=12.0)
    policy = policies()[100]
    with pytest.raises(Refused, match="with a signing key refuses"):
        Client(100, policy).advertise(Invite(session.packed, 0.1))
    Client(100, dataclasses.replace(policy, blind=True)).advertise(Invite(session.packed, 0.1))


def test_with_signing_keys_a_grid_on_which_small_updates_vanish_is_refused() -> None:
    """Client 103 has a large update. On a grid of 16 bits the others round to 0, and the sum would be 103's."""
    session = a_session(bits=16, range=1000.0, signed=True)
    rough, strict = (Federation(NODES, session, None, policies(coarsest=step)) for step in (math.inf, 1e-6))
    for federation in (rough, strict):
        federation.updates = {i: np.full(40, 50.0 if i == 103 else 0.1) for i in federation.ids}
    np.testing.assert_allclose(rough.run().values, rough.weights[103] * 50, atol=0.0625 / 2)
    with pytest.raises(TooFew, match="only 0 of 10"):
        strict.run()
    assert "the session's numbers are 0.0625 apart; this client requires 1e-06 at most" in strict.refusals[100]


def test_with_signing_keys_all_clients_must_have_the_same_settings() -> None:
    """A lying server could give one client the learning rate with which it alone learns."""
    several = policies(settings=b"lr=0.1")
    several[104] = dataclasses.replace(several[104], settings=b"lr=0")
    federation = Federation(NODES, a_session(signed=True), None, several)
    with pytest.raises(TooFew, match="only 0 of 10"):
        federation.run()
    assert federation.refusals[100].startswith("the keys of client 104 are not signed by it for this session with")
    assert federation.refusals[104].startswith("the keys of client 100 are not signed by it for this session with")


@pytest.mark.parametrize(
    ("threshold", "traitors", "safe"), [(2 / 3, 3, True), (2 / 3, 4, False), (0.5, 1, True), (0.5, 2, False)]
)
def test_how_many_traitors_two_lists_of_survivors_take(threshold: float, traitors: int, safe: bool) -> None:
    """As docs/privacy.md says: more than the share 2·threshold − 1 of the clients must sign both."""
    federation = Federation(NODES, a_session(signed=True, threshold=threshold), None, policies(threshold=threshold))
    full = asked(federation, "agreed")[100]
    fewer = Survivors(full.roster, [id for id in full.ids if id != 109])
    double, honest = full.ids[:traitors], full.ids[traitors:]
    middle = len(honest) // 2
    accepted = []
    for shown, half in ((fewer, honest[:middle]), (full, honest[middle:])):
        signatures = {id: keys.sign(SIGNING[id - 100], "survivors", shown.signs()) for id in double}
        signatures |= {id: federation.clients[id].agree(shown).signature for id in half}
        try:
            federation.clients[half[0]].reveal(Unmask(shown.packed, signatures))
            accepted.append(shown)
        except Refused:
            continue
    assert (len(accepted) < 2) == safe


def test_an_advertisement_of_an_earlier_session_with_the_same_bytes_is_useless() -> None:
    """A server that runs one session twice and replays signed keys: their owner does not sign the new roster."""
    session = a_session(signed=True)
    first, second = (Federation(NODES, session, None, policies()) for _ in range(2))
    old = Roster.read(asked(first, "shared")[104].packed).by_id[104]
    roster = asked(second, "shared")[100]
    members = [old.packed if Advertised.read(m).id == 104 else m for m in roster.members]
    mixed = Roster(roster.session, members, roster.weights)
    shares = {id: second.clients[id].share(mixed) for id in second.ids if id != 104}
    with pytest.raises(Refused, match="does not hold this client's own keys"):
        second.clients[104].share(mixed)
    stale = keys.sign(SIGNING[4], "roster", roster.hash)
    near = {p: [shares[p].sealed[100], shares[p].signature] for p in shares if p != 100}
    with pytest.raises(Refused, match="client 104 has not signed this roster"):
        second.clients[100].mask(Bundle(mixed.hash, {**near, 104: [b"?" * 40, stale]}), np.zeros(40))


def test_a_client_with_a_signing_key_insists_on_signatures() -> None:
    federation = Federation(NODES, a_session(), None, policies())
    with pytest.raises(TooFew):
        federation.run()
    assert "requires signatures" in federation.refusals[100]


def test_no_client_reveals_both_secrets_of_a_neighbour() -> None:
    """Even without signing keys each client answers once; the message itself cannot hold both."""
    federation = Federation(5, a_session())
    messages = asked(federation, "revealed")
    told = Survivors.read(messages[100].survivors)
    first = federation.clients[100].reveal(messages[100])
    assert first.seeds.keys() == set(told.ids)
    assert not first.keys
    fewer = Unmask(Survivors(told.roster, told.ids[:-1]).packed, {})
    with pytest.raises(Refused, match="this step is not due"):
        federation.clients[100].reveal(fewer)
    with pytest.raises(ValueError, match="both secrets of one client"):
        Revealed(100, first.seeds, {104: bytes(33)})
    assert not federation.clients[100]._held


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda s: Survivors(s.roster, s.ids[:3]), "only 3 clients are in the sum; 4 are needed"),
        (lambda s: Survivors(s.roster, s.ids[1:]), "leaves this client out"),
        (lambda s: Survivors(s.roster, [*s.ids, 999]), "clients that are not in the roster"),
        (lambda s: Survivors(b"x" * 32, s.ids), "belongs to another session"),
    ],
)
def test_a_list_of_survivors_must_fit(change: Callable[[Survivors], Survivors], reason: str) -> None:
    federation = Federation(5, a_session())
    message = asked(federation, "revealed")[100]
    with pytest.raises(Refused, match=reason):
        federation.clients[100].reveal(Unmask(change(Survivors.read(message.survivors)).packed, {}))
    assert federation.clients[100].stage == "over"


def test_a_client_wants_a_threshold_and_a_number_of_clients() -> None:
    with pytest.raises(Refused, match=r"the session's threshold is 0.5; this client requires 0.6"):
        Client(1, Policy(threshold=0.6)).advertise(Invite(a_session(threshold=0.5).packed, 0.1))
    two = Federation(2, a_session())
    with pytest.raises(TooFew):
        two.run()
    assert "this client requires at least 3" in two.refusals[100]
    with pytest.raises(ValueError, match="the sum of one vector is that vector"):
        Policy(least=1)


def test_a_server_that_withholds_a_neighbours_shares_but_counts_it_is_refused() -> None:
    federation = Federation(5, a_session())
    bundles = asked(federation, "masked")
    fewer = Bundle(bundles[100].roster, {p: v for p, v in bundles[100].sealed.items() if p != 104})
    federation.clients[100].mask(fewer, np.zeros(40))
    survivors = Survivors(bundles[100].roster, federation.ids)
    with pytest.raises(Refused, match="client 104, whose shares the server did not deliver"):
        federation.clients[100].reveal(Unmask(survivors.packed, {}))


# Hostile clients


def shares(one: Shares, sealed: dict[int, bytes], signature: bytes) -> bytes:
    """The bytes of a message that `Shares` does not let anybody make."""
    return pack(["shares", one.id, one.commitment, sealed, signature])


def corrupted(federation: Federation, who: int, change: Callable[[str, Any], Any]) -> None:
    """Client ``who`` sends ``change(step, answer)`` instead of its answers."""
    ask = federation.ask

    def odd(step: str, messages: dict[int, Packed]) -> Any:
        for id, answer in ask(step, messages):
            yield id, change(step, answer) if id == who else answer

    federation.ask = odd  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("at", "change", "reason"),
    [
        ("advertised", lambda m: dataclasses.replace(m, id=103), "came again"),
        ("advertised", lambda m: dataclasses.replace(m, sealing=bytes(32)), "a public key is not valid"),
        ("advertised", lambda m: b"rubbish", "a message begins with an unknown tag"),
        ("shared", lambda m: dataclasses.replace(m, sealed={}), "not those of its neighbours"),
        ("shared", lambda m: shares(m, dict.fromkeys(m.sealed, bytes(10**6)), b""), "a sealed share is too long"),
        ("shared", lambda m: shares(m, m.sealed, b"?"), "its signature has the wrong length"),
        ("shared", lambda m: dataclasses.replace(m, commitment=b""), "its commitment has the wrong length"),
        ("masked", lambda m: dataclasses.replace(m, words=m.words[:-4]), "has 156 bytes, not 160"),
        ("masked", lambda m: dataclasses.replace(m, words=m.words * 1000), "has 160000 bytes, not 160"),
        ("masked", lambda m: dataclasses.replace(m, id=101), "names another client"),
        ("revealed", lambda m: dataclasses.replace(m, seeds={}, keys=m.seeds), "not asked for"),
        ("revealed", lambda m: dataclasses.replace(m, seeds={100: b""}), "a message ends after 1 bytes"),
    ],
)
def test_a_malformed_answer_costs_its_client_only(at: str, change: Callable[[Any], Any], reason: str) -> None:
    def damage(step: str, answer: Any) -> Any:
        if step != at:
            return answer
        try:
            return change(KINDS[step].read(answer))
        except ValueError:
            return b"?"

    federation = Federation(5, a_session(threshold=0.5))
    corrupted(federation, 102, damage)
    found = federation.run()
    assert (102 in found.ids) == (at == "revealed")
    assert np.max(np.abs(found.values - federation.exact(found.ids))) <= found.error
    assert reason in federation.server.problems[102]


def test_wrong_shares_are_outvoted_and_named() -> None:
    federation = Federation(NODES, a_session(threshold=0.5))

    def lie(step: str, answer: Any) -> Any:
        if step != "revealed":
            return answer
        told = Revealed.read(answer)
        return dataclasses.replace(told, seeds={id: bytes(32) + b"\1" for id in told.seeds})

    corrupted(federation, 100, lie)
    right(federation, alive=10)
    assert "revealed a wrong share of client" in federation.server.problems[100]


@pytest.mark.parametrize("liars", [1, 3])
def test_wrong_shares_of_the_first_clients_are_outvoted_among_many(liars: int) -> None:
    """They are in almost all sets of shares in the order of the ids."""
    federation = Federation(21, a_session(threshold=0.5, length=2))
    ask = federation.ask

    def odd(step: str, messages: dict[int, Packed]) -> Any:
        for id, answer in ask(step, messages):
            told = Revealed.read(answer) if step == "revealed" and id < 100 + liars else None
            yield id, answer if told is None else dataclasses.replace(told, seeds=dict.fromkeys(told.seeds, bytes(33)))

    federation.ask = odd  # type: ignore[method-assign]
    right(federation, alive=21)
    named = [id for id, why in federation.server.problems.items() if "revealed a wrong share" in why]
    assert named == list(range(100, 100 + liars))


def test_shares_that_cannot_be_read_do_not_stop_the_sum() -> None:
    federation = Federation(NODES, a_session(threshold=0.5))

    def garble(step: str, answer: Any) -> Any:
        if step != "shared":
            return answer
        told = Shares.read(answer)
        return dataclasses.replace(told, sealed={id: b"?" * 40 if id < 104 else s for id, s in told.sealed.items()})

    corrupted(federation, 109, garble)
    right(federation, alive=10)


def test_a_message_of_another_session_is_refused() -> None:
    one, two = Federation(4, a_session()), Federation(4, a_session())
    first, second = asked(one, "shared"), asked(two, "shared")
    with pytest.raises(Refused, match="belongs to another session"):
        one.clients[100].share(second[100])
    replayed = {id: two.clients[id].share(second[id]) for id in two.ids}
    shares = {id: one.clients[id].share(first[id]) for id in one.ids if id != 100}
    sealed = {id: [(replayed if id == 103 else shares)[id].sealed[101], b""] for id in (102, 103)}
    one.clients[101].mask(Bundle(first[101].hash, sealed), np.zeros(40))
    assert one.clients[101]._held[103] == b""
    assert one.clients[101]._held[102] != b""


def test_an_answer_counts_once() -> None:
    federation = Federation(4, a_session())
    ask = federation.ask

    def twice(step: str, messages: dict[int, Packed]) -> Any:
        for id, answer in ask(step, messages):
            yield id, answer
            yield id, answer

    federation.ask = twice  # type: ignore[method-assign]
    right(federation, alive=4)


def test_a_session_that_cannot_work_is_told() -> None:
    for changes, reason in (
        ({"bits": 8}, "cannot be summed"),
        ({"threshold": 0.4}, "threshold is not valid"),
        ({"range": -1.0}, "range"),
        ({"degree": 3}, "number of neighbours"),
        ({"length": 0}, "cannot be summed"),
        ({"least": 1}, "least number of clients"),
        ({"effective": 0.5}, "least number of clients"),
        ({"broadcast": b"x"}, "digest of what clients train on"),
    ):
        with pytest.raises(ValueError, match=reason):
            a_session(**changes)
    assert math.isclose(a_session(range=2.0, deviation=1.0, threshold=0.5).limit(-0.25, 6), 0.5 + 12 / 2)
