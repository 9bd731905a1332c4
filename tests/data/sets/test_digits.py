"""The embedded digits."""

from __future__ import annotations

import hashlib

import numpy as np

from fedalpha.data.sets.digits import digits


def test_digits_have_a_fixed_stratified_test_part() -> None:
    one, two = digits().load(), digits().load()
    assert np.array_equal(one.test_x, two.test_x)
    assert len(one.train_y) + len(one.test_y) == 1797
    everything = np.bincount(np.concatenate([one.train_y, one.test_y]))
    assert (np.abs(np.bincount(one.test_y) - everything / 5) <= 1).all()
    assert one.train_x.max() == digits().scale == 16
    # A fingerprint: the split is part of every result on digits, so it must never move.
    assert hashlib.sha256(one.test_x.tobytes()).hexdigest()[:16] == "d21eb3dc25b9f587"


def test_digits_are_scikit_learns() -> None:
    from sklearn.datasets import load_digits

    theirs, ours = load_digits(), digits().load()
    images = theirs.images.astype("uint8")
    known = {(image.tobytes(), int(label)) for image, label in zip(images, theirs.target, strict=True)}
    for part_x, part_y in ((ours.train_x, ours.train_y), (ours.test_x, ours.test_y)):
        assert {(image[0].tobytes(), int(label)) for image, label in zip(part_x, part_y, strict=True)} <= known
    assert len(ours.train_x) + len(ours.test_x) == len(theirs.images)
