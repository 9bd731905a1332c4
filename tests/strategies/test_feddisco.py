"""FedDisco: by hand, and in a run, where clients report their class counts."""

from __future__ import annotations

import numpy as np
import pytest

import fedalpha
from fedalpha.data import Pooled
from fedalpha.strategies import STRATEGIES
from histories import same_model


@pytest.mark.parametrize("metric", ["kl", "l1", "l2", "cosine"])
def test_the_formula(metric: str) -> None:
    """The definitions, written with loops."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        n, classes = int(rng.integers(1, 6)), int(rng.integers(2, 6))
        labels, sizes = rng.integers(0, 9, size=(n, classes)) + (rng.random((n, 1)) < 0.3), rng.integers(1, 50, size=n)
        labels[:, 0] += 1
        far = []
        for row in labels:
            q = row / row.sum()
            if metric == "kl":
                far.append(sum(x * np.log(x * classes) for x in q if x > 0))
            elif metric == "cosine":
                far.append(1 - q.sum() / classes / (np.linalg.norm(q) * np.sqrt(1 / classes)))
            else:
                far.append(np.linalg.norm(q - 1 / classes, ord=1 if metric == "l1" else 2))
        far = np.array(far)
        if metric == "kl" and far.sum() > 1e-12:
            far = far / far.sum()
        expected = np.maximum(sizes / sizes.sum() - 0.3 * far + 0.05, 0)
        expected = expected / expected.sum() if expected.any() else sizes / sizes.sum()
        found = fedalpha.weights(f"FedDisco(a=0.3, b=0.05, metric={metric})", np.zeros(n), sizes, labels=labels)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_clients_report_their_class_counts(digits: Pooled) -> None:
    runs = [fedalpha.run(digits, "mlp", "FedDisco", rounds=2, engine=f"embedded(workers={w})") for w in (1, 2)]
    assert same_model(*runs)
    counts = np.array([np.bincount(digits.client(i).y, minlength=10) for i in range(digits.clients)])
    expected = fedalpha.weights("FedDisco", np.zeros(len(counts)), counts.sum(axis=1), labels=counts)
    np.testing.assert_allclose(runs[0].rows[1]["alpha"], expected, rtol=1e-12)
    plain = fedalpha.run(digits, "mlp", rounds=1, engine="embedded(workers=1)")
    assert runs[0].rows[1]["bytes_up"] == plain.rows[1]["bytes_up"] + 8 * 10 * digits.clients


@pytest.mark.parametrize("text", ["FedDisco(a=-1)", "FedDisco(metric=euclid)"])
def test_bad_arguments_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="FedDisco:"):
        STRATEGIES.parse(text)
