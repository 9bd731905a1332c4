"""The contract: what every registered strategy keeps, whoever wrote it.

Each example text of each entry of ``STRATEGIES`` runs here; registering a strategy is all that is
needed to have it checked. Cohorts come with every field filled, so rules that look at steps, norms
or the Gram matrix are served too.
"""

from __future__ import annotations

import copy
import io
import json
import math
import time
import tracemalloc
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedalpha
from fedalpha.strategies import STRATEGIES, Cohort, Strategy, strategy

COMPOSED = (  # what the entries' own examples do not show: state that is carried, nesting, other losses
    "FedSoftWorse(T=0.2, optima=estimated)",
    "FedBetter(k=0.5, loss=after, optima=estimated)",
    "FedSoftBetter(T=inf, loss=train)",
    "switch(FedWorse(optima=estimated), FedSoftWorse(T=1, optima=estimated), FedAvg, accuracy=[0.3, 0.7])",
    "mix(FedSoftWorse(T=0.5, optima=estimated), floor(FedBetter, 0.25))",
    "cap(floor(FedSoftWorseAvg(at=2), 0.2), 0.25)",
)
TEXTS = [*dict.fromkeys(text for entry in STRATEGIES for text in entry.examples), *COMPOSED]
ROUNDS = (0, 1, 14, 15, 19, 20, 29, 30, 49, 50, 1000)

every = pytest.mark.parametrize("rule", [pytest.param(strategy(text), id=text) for text in TEXTS])
quick = settings(max_examples=20)


def least(rule: Strategy) -> int:
    """The smallest cohort that ``rule`` can weigh: a cap c needs 1/c clients."""
    inner = max((least(member) for member in getattr(rule, "members", ())), default=1)
    return max(inner, math.ceil(1 / rule.c - 1e-9)) if rule.text_name == "cap" else inner


def cohort(losses, sizes=None, *, ids=None, seed=0, twins=False, **given) -> Cohort:
    """A cohort with all fields filled; with ``twins`` the first two clients differ in their id only."""
    n = len(losses)
    draw = np.random.default_rng(seed)
    moves = draw.integers(-8, 9, size=(n, 3)) / 8.0
    steps = draw.integers(1, 20, size=n)
    if twins:
        moves[1], steps[1] = moves[0], steps[0]
    more = np.random.default_rng(seed + 1000)
    staleness = np.random.default_rng(seed + 2000).integers(0, 4, n)
    labels, cosines, design = more.integers(0, 9, (n, 3)), more.integers(-8, 9, n) / 8.0, more.integers(1, 9, n) / 8.0
    if twins:
        staleness[1] = staleness[0]
        labels[1], cosines[1], design[1] = labels[0], cosines[0], design[0]
    full = {
        "ids": np.arange(n) if ids is None else ids,
        "sizes": np.ones(n) if sizes is None else sizes,
        "before": losses,
        "train": np.asarray(losses) * 0.75,
        "after": np.asarray(losses) * 0.5,
        "optima": np.zeros(n),
        "steps": steps,
        "norms": np.linalg.norm(moves, axis=1),
        "gram": moves @ moves.T,
        "labels": labels,
        "cosines": cosines,
        "design": design,
        "staleness": staleness,
    }
    return Cohort(**{**full, **given})


dyadic = st.integers(0, 512).map(lambda i: i / 64)  # sums and differences of these are exact
loss = st.one_of(dyadic, st.floats(0, 1e6), st.sampled_from([0.0, 1.0, 5e-324, 1e300]))
accuracies = st.one_of(st.none(), st.floats(0, 1))


@st.composite
def cohorts(draw, rule: Strategy, losses=loss, twins: bool = False) -> Cohort:
    n = draw(st.integers(max(least(rule), 2 if twins else 1), least(rule) + 5))
    values = draw(st.lists(losses, min_size=n, max_size=n))
    sizes = draw(st.lists(st.integers(0, 40), min_size=n, max_size=n))
    sizes[-1] += not any(sizes)
    ids = draw(st.lists(st.integers(0, 15), min_size=n, max_size=n, unique=True))
    if twins:
        values[1], sizes[1] = values[0], sizes[0]
        sizes[-1] += not any(sizes)
        sizes[0] = sizes[1]
    return cohort(
        values,
        sizes,
        ids=ids,
        seed=draw(st.integers(0, 99)),
        twins=twins,
        round=draw(st.sampled_from(ROUNDS)),
        accuracy=draw(accuracies),
    )


def take(members: Cohort, order) -> Cohort:
    """The same clients in another order."""
    changed = {}
    for field in fields(members):
        value = getattr(members, field.name)
        if isinstance(value, np.ndarray):
            changed[field.name] = value[order] if field.name == "labels" else value[np.ix_(*[order] * value.ndim)]
    return members.replace(**changed)


def play(rule: Strategy, rounds: list[Cohort], n: int | None = None):
    """alpha of successive rounds, and the last state."""
    state, alphas = rule.init(n), []
    for members in rounds:
        alpha, state = rule.weights(state, members)
        alphas.append(alpha)
    return alphas, state


def check(rule: Strategy, alpha: np.ndarray, n: int) -> None:
    assert isinstance(alpha, np.ndarray)
    assert alpha.shape == (n,)
    assert alpha.dtype == np.float64
    assert np.isfinite(alpha).all()
    if rule.traits.simplex:
        assert (alpha >= 0).all()
        assert abs(math.fsum(alpha) - 1) <= 1e-15 * n


def leaves(tree):
    """The leaves of a state; anything but string-keyed mappings and lists is a leaf."""
    if isinstance(tree, dict):
        assert all(type(key) is str for key in tree)
        tree = list(tree.values())
    if isinstance(tree, list):
        return [leaf for branch in tree for leaf in leaves(branch)]
    return [tree]


def saved(tree):
    """The state after a trip through JSON, its arrays through npy bytes without pickling."""
    arrays: list[bytes] = []

    def pack(array: np.ndarray) -> dict[str, int]:
        buffer = io.BytesIO()
        np.save(buffer, array, allow_pickle=False)
        arrays.append(buffer.getvalue())
        return {"array": len(arrays) - 1}

    def unpack(node: dict) -> object:
        return np.load(io.BytesIO(arrays[node["array"]]), allow_pickle=False) if set(node) == {"array"} else node

    return json.loads(json.dumps(tree, default=pack, allow_nan=False), object_hook=unpack)


def same(a, b) -> bool:
    """Equal trees, bit for bit."""
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.tobytes() == b.tobytes() and a.shape == b.shape
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def test_every_entry_has_examples_that_parse_to_strategies() -> None:
    assert len(list(STRATEGIES)) >= 15
    for entry in STRATEGIES:
        assert entry.examples
        assert entry.formula
        assert entry.summary
        for text in entry.examples:
            assert text.startswith(entry.name)
            assert isinstance(strategy(text), Strategy)


@every
@quick
@given(data=st.data())
def test_weights_have_the_right_shape_and_lie_on_the_simplex_over_rounds(rule: Strategy, data: st.DataObject) -> None:
    rounds = data.draw(st.lists(cohorts(rule), min_size=1, max_size=3))
    for alpha, members in zip(play(rule, rounds)[0], rounds, strict=True):
        check(rule, alpha, len(members))


@every
@quick
@given(data=st.data())
def test_the_order_of_clients_does_not_matter_over_rounds(rule: Strategy, data: st.DataObject) -> None:
    rounds = data.draw(st.lists(cohorts(rule), min_size=1, max_size=3))
    orders = [data.draw(st.permutations(range(len(members)))) for members in rounds]
    straight, _ = play(rule, rounds)
    shuffled, _ = play(rule, [take(members, order) for members, order in zip(rounds, orders, strict=True)])
    for alpha, other, order in zip(straight, shuffled, orders, strict=True):
        assert alpha[order].tobytes() == other.tobytes()


@every
@quick
@given(data=st.data())
def test_clients_that_differ_in_their_id_only_weigh_the_same(rule: Strategy, data: st.DataObject) -> None:
    members = data.draw(cohorts(rule, twins=True))
    for alpha in play(rule, [members, members])[0]:
        assert alpha[0] == alpha[1]


@every
def test_one_client_gets_all_the_weight(rule: Strategy) -> None:
    alone = cohort([0.7], [3])
    if least(rule) > 1:
        with pytest.raises(ValueError, match=r"below 1/n: 1 clients .* raise c"):
            rule.weights(rule.init(1), alone)
    else:
        check(rule, alpha := rule.weights(rule.init(1), alone)[0], 1)
        if rule.traits.simplex:
            assert abs(alpha[0] - 1) <= 1e-15


@every
@pytest.mark.parametrize(
    ("losses", "sizes"),
    [
        pytest.param([0, 0, 0, 0, 0, 0], [1, 2, 3, 4, 5, 6], id="zero losses"),
        pytest.param([1e300] * 6, [1, 2, 3, 4, 5, 6], id="equal huge losses"),
        pytest.param([0, 1e300, 1, 1e-300, 1e300, 5e-324], [1, 2, 3, 4, 5, 6], id="huge and tiny losses"),
        pytest.param([149, 3, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1], id="weights that underflow"),
        pytest.param([3, 1, 2, 9, 0, 5], [0, 4, 0, 0, 3, 0], id="clients without data"),
        pytest.param([3, 1, 2, 9, 0, 5], [0, 0, 0, 0, 0, 2], id="one client with data"),
        pytest.param([3, 1, 2, 9, 0, 5], [1e308, 1e308, 1e308, 1, 0, 1e-308], id="huge sizes"),
        pytest.param([3, 1, 2, 9, 0, 5], [5e-324, 1e-323, 0, 0, 5e-324, 0], id="tiny sizes"),
    ],
)
def test_extreme_cohorts(rule: Strategy, losses: list[float], sizes: list[float]) -> None:
    for round in ROUNDS:
        members = cohort(losses, sizes, round=round)
        for alpha in play(rule, [members, members])[0]:
            check(rule, alpha, 6)


@every
@quick
@given(data=st.data())
def test_weighing_is_pure(rule: Strategy, data: st.DataObject) -> None:
    first, members = data.draw(cohorts(rule)), data.draw(cohorts(rule))
    _, state = play(rule, [first])
    kept_state = copy.deepcopy(state)
    kept = {f.name: copy.deepcopy(getattr(members, f.name)) for f in fields(members)}
    alpha, after = rule.weights(state, members)
    kept_alpha, kept_after = alpha.copy(), copy.deepcopy(after)
    assert rule.needs(state, members) == rule.needs(state, members)
    alpha[:] = -1.0  # what the caller does with alpha is the caller's business
    again, after_again = rule.weights(state, members)
    assert same(state, kept_state)
    assert same({f.name: getattr(members, f.name) for f in fields(members)}, kept)
    assert same(again, kept_alpha)
    assert same(after, kept_after)
    assert same(after_again, kept_after)


@every
@quick
@given(data=st.data())
def test_state_is_a_tree_of_arrays_and_json_scalars_that_can_be_saved(rule: Strategy, data: st.DataObject) -> None:
    rounds = data.draw(st.lists(cohorts(rule), max_size=2))
    _, state = play(rule, rounds)
    for leaf in leaves(state):
        assert type(leaf) in (np.ndarray, bool, int, float, str, type(None))
        assert not isinstance(leaf, np.ndarray) or leaf.dtype != object
    restored = saved(state)
    assert same(restored, dict(state))
    members = data.draw(cohorts(rule))
    assert same(rule.weights(restored, members)[0], rule.weights(state, members)[0])


@every
def test_the_number_of_clients_may_be_unknown_or_huge(rule: Strategy) -> None:
    members = cohort([3.0, 1.0, 2.0, 0.5], [1, 2, 3, 4], ids=[0, 10**9 - 1, 5, 70])
    known, _ = play(rule, [members, members], n=10**9)
    unknown, _ = play(rule, [members, members], n=None)
    assert all(map(same, known, unknown))
    tracemalloc.start()
    start = time.process_time()
    state = rule.init(10**9)
    seconds = time.process_time() - start
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seconds < 0.1
    assert peak < 100_000
    assert sum(leaf.size for leaf in leaves(dict(state)) if isinstance(leaf, np.ndarray)) < 100


@every
def test_state_grows_with_the_clients_seen_not_with_their_ids(rule: Strategy) -> None:
    members = cohort([3.0, 1.0, 2.0, 0.5], ids=[0, 2**62, 5, 70])
    _, state = play(rule, [members, members])
    assert all(leaf.size < 1000 for leaf in leaves(dict(state)) if isinstance(leaf, np.ndarray))


@every
def test_the_text_parses_back_to_an_equal_strategy(rule: Strategy) -> None:
    twin = strategy(str(rule))
    assert twin is not rule
    assert twin == rule
    assert hash(twin) == hash(rule)
    assert str(twin) == str(rule) == repr(rule)
    assert rule != "FedAvg"
    assert twin.traits == rule.traits
    assert twin.requires == rule.requires
    members = cohort([3.0, 1.0, 2.0, 0.5], [1, 2, 3, 4])
    assert same(play(twin, [members])[0], play(rule, [members])[0])


@every
def test_a_strategy_is_frozen(rule: Strategy) -> None:
    for field in fields(rule):
        with pytest.raises(AttributeError):
            setattr(rule, field.name, None)


@every
@quick
@given(data=st.data())
def test_a_round_needs_no_more_than_the_rule_requires_and_no_more_is_looked_at(
    rule: Strategy, data: st.DataObject
) -> None:
    state = rule.init(None)
    for members in data.draw(st.lists(cohorts(rule), min_size=1, max_size=3)):
        blank = Cohort(members.ids, members.sizes, members.round, members.accuracy)
        needs = rule.needs(state, blank)
        assert needs <= rule.requires
        served = blank.replace(optima=members.optima, **{need: getattr(members, need) for need in needs})
        alpha, after = rule.weights(state, members)
        assert same(rule.weights(state, served)[0], alpha)
        state = after


BAD = {
    "empty cohort": ({"losses": [], "sizes": []}, "empty.*pass at least one"),
    "no sizes, empty": ({"losses": []}, "empty.*pass at least one"),
    "NaN loss": ({"losses": [1, math.nan, 0], "sizes": [1, 1, 1]}, r"losses.*\[1\] is nan.*leave that client out"),
    "infinite loss": ({"losses": [1, 0, math.inf], "sizes": [1, 1, 1]}, r"losses.*\[2\] is inf.*leave that client out"),
    "too few losses": ({"losses": [1, 2], "sizes": [1, 1, 1]}, "losses.*2 values for 3 clients.*pass one"),
    "too many losses": ({"losses": [1, 2, 3, 4], "sizes": [1, 1, 1]}, "losses.*4 values for 3 clients.*pass one"),
    "too few optima": ({"losses": [1, 2, 3], "sizes": [1, 1, 1], "optima": [0]}, "optima has 1 values for 3.*pass one"),
    "NaN optimum": ({"losses": [1, 2, 3], "optima": [0, 0, math.nan]}, r"optima\[2\] is nan"),
    "negative size": ({"losses": [1, 2, 3], "sizes": [1, -1, 1]}, "sizes must be non-negative.*pass"),
    "all sizes zero": ({"losses": [1, 2, 3], "sizes": [0, 0, 0]}, "sizes must be .* positive sum.*pass"),
    "NaN size": ({"losses": [1, 2, 3], "sizes": [1, math.nan, 1]}, r"sizes\[1\] is nan"),
    "losses in a matrix": ({"losses": [[1, 2], [3, 4]]}, "losses.*one-dimensional.*pass one number"),
    "sizes in a matrix": ({"losses": [1, 2], "sizes": [[1], [2]]}, "sizes.*one-dimensional.*pass one number"),
    "words": ({"losses": ["low", "high", "low"], "sizes": [1, 1, 1]}, "losses.*list of numbers"),
    "beyond float64": ({"losses": [10**400, 1, 1], "sizes": [1, 1, 1]}, "losses.*list of numbers"),
    "negative round": ({"losses": [1, 2, 3], "round": -1}, "round is -1.*counted from 0"),
    "accuracy in percent": ({"losses": [1, 2, 3], "accuracy": 60}, "accuracy is 60.*0.6, not 60"),
    "NaN accuracy": ({"losses": [1, 2, 3], "accuracy": math.nan}, "accuracy is nan.*between 0 and 1"),
    "gram of the wrong shape": ({"losses": [1, 2, 3], "gram": np.eye(2)}, "gram.*3×3.*pass one row"),
    "too few steps": ({"losses": [1, 2, 3], "steps": [1]}, "steps has 1 values for 3.*pass one"),
}


@every
@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_with_cause_and_remedy(rule: Strategy, case: str) -> None:
    arguments, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        fedalpha.weights(rule, **arguments)


@pytest.mark.parametrize(
    ("ids", "message"), [([1, 1], "ids repeat.*only once"), ([1], "ids has shape.*one id"), ([[1, 2]], "one id")]
)
def test_bad_ids_are_refused(ids: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Cohort(ids=ids, sizes=[1, 1])


@every
def test_what_is_missing_is_named(rule: Strategy) -> None:
    blank = Cohort(ids=np.arange(4), sizes=np.ones(4))
    missing = rule.needs(rule.init(4), blank) - {"accuracy"}
    if missing:
        with pytest.raises(ValueError, match=f"needs '({'|'.join(missing)})' of every client.*pass"):
            rule.weights(rule.init(4), blank)
    else:
        check(rule, rule.weights(rule.init(4), blank)[0], 4)


@pytest.mark.parametrize("rule", [r for r in map(strategy, TEXTS) if r.traits.shift_invariant], ids=str)
@quick
@given(data=st.data(), shift=dyadic)
def test_shift_invariance(rule: Strategy, data: st.DataObject, shift: float) -> None:
    rounds = data.draw(st.lists(cohorts(rule, losses=dyadic), min_size=1, max_size=3))
    shifted = [m.replace(before=m.before + shift, train=m.train + shift, after=m.after + shift) for m in rounds]
    for alpha, other in zip(play(rule, rounds)[0], play(rule, shifted)[0], strict=True):
        np.testing.assert_allclose(other, alpha, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("rule", [r for r in map(strategy, TEXTS) if r.traits.monotone is not None], ids=str)
@quick
@given(data=st.data(), rise=dyadic)
def test_monotone_in_the_clients_own_loss(rule: Strategy, data: st.DataObject, rise: float) -> None:
    history = data.draw(st.lists(cohorts(rule), max_size=1))
    members = data.draw(cohorts(rule, losses=dyadic))
    i = data.draw(st.integers(0, len(members) - 1))
    up = np.zeros(len(members))
    up[i] = rise
    worse = members.replace(before=members.before + up, train=members.train + up, after=members.after + up)
    _, state = play(rule, history)
    change = rule.weights(state, worse)[0][i] - rule.weights(state, members)[0][i]
    if rule.traits.monotone == 0:
        assert change == 0
    else:
        assert rule.traits.monotone * change >= -1e-15 * len(members)


def test_the_suite_sees_traits_of_every_kind() -> None:
    declared = {strategy(text).traits.monotone for text in TEXTS}
    assert declared == {-1, 0, 1, None}
