"""Transforms: what they do, and that they are the same for every strategy and any number of workers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fedalpha
from fedalpha.data.transforms import TRANSFORMS

EXAMPLES = [text for entry in TRANSFORMS for text in entry.examples]
PICTURES = torch.arange(2 * 3 * 6 * 6, dtype=torch.float32).view(2, 3, 6, 6)


@pytest.mark.parametrize("text", EXAMPLES)
def test_the_generator_decides_and_the_samples_stay_as_they_are(text: str) -> None:
    transform = TRANSFORMS.parse(text)
    assert TRANSFORMS.parse(str(transform)) == transform
    before = PICTURES.clone()
    one, same, other = (transform(PICTURES, np.random.default_rng(seed)) for seed in (0, 0, 5))
    assert one.shape == PICTURES.shape
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert torch.equal(PICTURES, before)


@pytest.mark.parametrize("entry", list(TRANSFORMS), ids=lambda entry: entry.name)
def test_it_says_what_it_is(entry) -> None:
    assert entry.formula
    assert entry.reference
    assert entry.summary


@pytest.mark.parametrize("edge", ["zero", "reflect"])
def test_a_crop_is_a_window_of_the_padded_picture(edge: str) -> None:
    cut = TRANSFORMS.parse(f"crop(padding=2, edge={edge})")
    wide = np.pad(PICTURES.numpy(), ((0, 0), (0, 0), (2, 2), (2, 2)), "constant" if edge == "zero" else "reflect")
    windows = [[wide[i, :, a : a + 6, b : b + 6] for a in range(5) for b in range(5)] for i in range(2)]
    seen = set()
    for seed in range(40):
        for i, picture in enumerate(cut(PICTURES, np.random.default_rng(seed)).numpy()):
            (place,) = (k for k, window in enumerate(windows[i]) if np.array_equal(window, picture))
            seen.add(place)
    assert len(seen) > 20


def test_a_flip_mirrors_each_picture_or_not() -> None:
    found = TRANSFORMS.parse("flip")(PICTURES.expand(64, -1, -1, -1, -1).flatten(0, 1), np.random.default_rng(0))
    pairs = zip(found, PICTURES.repeat(64, 1, 1, 1), strict=True)
    flipped = [torch.equal(picture, original.flip(-1)) for picture, original in pairs]
    assert 30 < sum(flipped) < 98
    assert torch.equal(TRANSFORMS.parse("flip(p=0)")(PICTURES, np.random.default_rng(0)), PICTURES)


@pytest.mark.parametrize(
    ("text", "said"),
    [("crop(padding=0)", "pixels ≥ 1"), ("crop(edge=wrap)", "zero, reflect"), ("flip(p=2)", "probability"),
     ("jitter(deviation=-1)", "≥ 0"), ("chain()", "at least one"), ("flipp", "did you mean 'flip'")],
)  # fmt: skip
def test_nonsense_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        TRANSFORMS.parse(text)


SEEN: list[tuple[float, ...]] = []


def watching(x: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """A user's own transform, which notes what it drew."""
    draw = rng.random()
    if len(x) > 2:  # it is tried on two samples before a run
        SEEN.append((round(float(x.sum()), 3), draw))
    return x + draw


def drawn(strategy: str, seed: int = 0, update: str = "sgd(lr=0.1, epochs=2)") -> list[tuple[float, ...]]:
    SEEN.clear()
    data = fedalpha.federation("digits", clients=4, seed=seed, transform=watching)
    fedalpha.run(data, "softmax", strategy, rounds=2, seed=seed, update=update, engine="embedded(workers=1)")
    return list(SEEN)


def test_draws_belong_to_seed_round_and_client() -> None:
    plain = drawn("FedAvg")
    assert len({draw for _, draw in plain}) == len(plain)  # every epoch, round and client has draws of its own
    assert [draw for _, draw in drawn("FedSoftWorse(T=0.2)")] == [draw for _, draw in plain]
    assert [draw for _, draw in drawn("FedAvg", seed=1)] != [draw for _, draw in plain]
    assert len(drawn("FedAvg", update="scaffold(lr=0.1)")) == 8  # once a round and client


@pytest.mark.parametrize("update", ["sgd(lr=0.1)", "scaffold(lr=0.1)"])
def test_any_number_of_workers_gives_the_same_bytes(update: str) -> None:
    data = fedalpha.federation("digits", clients=6, transform="chain(crop(padding=1), jitter(deviation=0.1))")
    one, two = (
        fedalpha.run(data, "mlp", rounds=2, update=update, engine=f"embedded(workers={workers})") for workers in (1, 2)
    )
    assert all(torch.equal(value, two.model[name]) for name, value in one.model.items())
    plain = fedalpha.run(fedalpha.federation("digits", clients=6), "mlp", rounds=2, update=update)
    assert not torch.equal(plain.model["output.weight"], one.model["output.weight"])


def test_the_description_names_the_transform_and_the_command_line_takes_it() -> None:
    from fedalpha.runs.settings import settings

    assert fedalpha.federation("digits", transform=watching).description["transform"] == "watching"
    made = settings({"transform": "crop(padding=1)"}).resolved()
    assert made.experiment().federation.description["transform"] == "crop(padding=1)"
    assert "transform" not in fedalpha.federation("digits").description
    with pytest.raises(ValueError, match="unknown transform"):
        settings({"transform": "zoom"}).resolved()


@pytest.mark.parametrize(
    ("transform", "said"),
    [
        ("flip", r"the transform flip cannot change samples of shape \(4,\) .*flip needs pictures"),
        ("chain(jitter, crop)", r"cannot change samples of shape \(4,\) .*crop needs pictures"),
        (lambda x: x, "cannot change samples .*2 were given"),
        (lambda x, rng: x[:, :2], r"returned samples of shape \(2,\) .*for samples of shape \(4,\)"),
        (lambda x, rng: x.double(), "float64 for samples of .*float32; return a tensor of the same shape and type"),
        (lambda x, rng: x.numpy(), "returned samples of type ndarray"),
    ],
)
def test_a_transform_that_does_not_suit_the_data_is_refused_before_the_run(transform, said: str) -> None:
    X = np.random.default_rng(0).normal(size=(40, 4)).astype("float32")
    data = fedalpha.federation((X, np.arange(40) % 2), clients=2, transform=transform)
    with pytest.raises(ValueError, match=said):
        fedalpha.run(data, "softmax", rounds=1)
