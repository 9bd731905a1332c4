"""The Gram matrix: against a plain product, in slices, whatever the number of threads and the memory layout."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits

from fedalpha.combine import Reports
from fedalpha.fast import gram as module
from fedalpha.fast import threads
from fedalpha.fast.gram import gram, norms
from fedalpha.update import Broadcast, Report


def models(n: int, size: int) -> tuple[list[dict[str, np.ndarray]], dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)

    def one() -> dict[str, np.ndarray]:
        return {"w": rng.normal(size=(size, 3)).astype(np.float32), "steps": rng.integers(9, size=2)}

    return [one() for _ in range(n)], one()


def test_it_is_the_product_of_the_updates_and_integers_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    given, current = models(5, 40)
    moves = np.stack([(m["w"].astype(np.float64) - current["w"]).ravel() for m in given])
    np.testing.assert_allclose(gram(given, current), moves @ moves.T, rtol=1e-12)
    monkeypatch.setattr(module, "COLUMNS", 7)  # several slices, the last one shorter
    np.testing.assert_allclose(gram(given, current), moves @ moves.T, rtol=1e-12)


def test_the_number_of_threads_changes_no_bit() -> None:
    given, current = models(60, 20_000)
    with threadpool_limits(4):
        many = gram(given, current)
    with threadpool_limits(1):
        one = gram(given, current)
    assert np.array_equal(many, one)


def test_tensors_in_another_layout_give_the_same_bits() -> None:
    drawn = torch.Generator().manual_seed(0)
    values = [torch.randn(2, 3, 4, 5, generator=drawn) for _ in range(4)]
    plain = _gram(values)
    assert np.array_equal(plain, _gram([v.contiguous(memory_format=torch.channels_last) for v in values]))
    assert np.array_equal(_gram([v.bfloat16() for v in values]), _gram([v.bfloat16().float() for v in values]))


def _gram(values: list[torch.Tensor]) -> np.ndarray:
    reports = Reports([Report(i, {"w": v}, {}, 1, 1) for i, v in enumerate(values[1:])])
    return reports.gram(Broadcast(None, {"w": values[0]}))  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_large_cohorts_are_multiplied_in_float32_within_the_stated_error(
    size: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, current = models(150, 700)
    given[3] = {**given[3], "w": np.float32(size) * given[3]["w"]}
    given[4] = {**given[4], "w": current["w"]}  # nothing moves
    exact = gram(given, current)
    lengths = np.sqrt(np.diagonal(exact))
    monkeypatch.setattr(module, "MANY", 2)
    found = gram(given, current)
    assert np.array_equal(found, found.T)
    assert (np.abs(found - exact) <= 1e-6 * lengths[:, None] * lengths).all()  # 3.1e-5 is promised
    np.testing.assert_allclose(np.diagonal(found), np.diagonal(exact), rtol=1e-12)
    monkeypatch.setattr(threads, "cores", lambda: 1)
    assert np.array_equal(gram(given, current), found)


@pytest.mark.parametrize("compiled", [True, False])
def test_norms_are_the_same_bits_compiled_or_not_and_alone(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    given, current = models(3, 3000)
    expected = [np.linalg.norm(m["w"].astype(np.float64) - current["w"]) for m in given]
    plain = norms(given, current)
    np.testing.assert_allclose(plain, expected, rtol=1e-13)
    if compiled:
        monkeypatch.setattr(module, "_WORTH_COMPILING", 1)
    assert np.array_equal(norms(given, current), plain)
    assert [norms([m], current)[0] for m in given] == plain.tolist()
