"""Parts of a federation: nothing is in both."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedalpha.data import Pooled, federation
from fedalpha.data.federations import Examples
from fedalpha.data.inputs import Input
from fedalpha.data.parts import PARTS
from fedalpha.runs.settings import settings


def samples(found: Pooled) -> set[bytes]:
    parts = [found.data.x, found.test.x] + ([] if found.validation is None else [found.validation.x])
    return {x.numpy().tobytes() for part in parts for x in part}


@pytest.mark.parametrize("share", [0.5, 0.3])
def test_no_sample_of_any_seed_is_in_both_parts(share: float) -> None:
    def of(part: str, seed: int) -> Pooled:
        text = f"{part}(share={share})"
        return federation("digits", partition="shards(size=30)", clients=20, seed=seed, validation=0.1, part=text)

    tuning = [of("tuning", seed) for seed in (0, 1000)]
    reported = [of("reported", seed) for seed in (0, 7)]
    assert not set.union(*map(samples, tuning)) & set.union(*map(samples, reported))
    whole = federation("digits", partition="iid", clients=20, seed=0)
    assert samples(tuning[0]) | samples(reported[0]) == samples(whole)
    assert tuning[0].clients + reported[0].clients == 20
    assert tuning[0].clients == round(20 * share)
    counts, all_counts = tuning[0].label_counts, whole.label_counts
    assert counts is not None
    assert all_counts is not None
    assert counts.sum(axis=0) / all_counts.sum(axis=0) == pytest.approx(share * 0.9, abs=0.03)


def test_clients_with_test_parts_of_their_own_keep_them() -> None:
    """Client i holds the value i, in its training and in its test samples."""
    clients = [(np.full((3 + i, 2), i, np.float32), np.zeros(3 + i, np.int64)) for i in range(6)]
    test = [(np.full((2, 2), i, np.float32), np.zeros(2, np.int64)) for i in range(6)]
    seen: list[float] = []
    for part in ("tuning(share=0.5)", "reported(share=0.5)"):
        found = federation(clients, test=test, part=part)
        assert found.clients == 3
        assert found.test_owner is not None
        for place in range(3):
            value = float(found.client(place).x[0, 0])
            seen.append(value)
            assert len(found.client(place)) == 3 + value
            assert (found.test.x[torch.from_numpy(found.test_owner == place)] == value).all()
    assert sorted(seen) == list(range(6))


def test_a_client_with_a_name_is_in_the_same_part_whoever_else_is_there() -> None:
    def names(part: str, people: list[str]) -> set[str]:
        one = Examples(torch.zeros(len(people), 1), torch.zeros(len(people), dtype=torch.int64))
        found = PARTS.parse(part).of(Input(one, [1] * len(people), names=tuple(people)))
        assert found.names is not None
        return set(found.names)

    people = [f"role {i}" for i in range(40)]
    tuning = names("tuning", people)
    assert 5 < len(tuning) < 35
    assert names("reported", people) == set(people) - tuning
    assert names("tuning", people[::2]) == tuning & set(people[::2])


@pytest.mark.parametrize("text", ["tuning(share=0)", "tuning(share=1)", "tuning(share=true)", "half"])
def test_mistakes(text: str) -> None:
    with pytest.raises(ValueError, match=r"between 0 and 1|unknown part"):
        settings({"part": text}).resolved()


def test_one_client_cannot_be_split() -> None:
    with pytest.raises(ValueError, match="at least 2 clients"):
        federation("digits", clients=1, part="tuning")
