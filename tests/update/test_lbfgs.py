"""L-BFGS: displacement aggregation keeps what full-memory BFGS knows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fedalpha
from fedalpha.data import Pooled
from fedalpha.update.curvature import Pairs
from histories import same_model


def dense(pairs: list[tuple[torch.Tensor, torch.Tensor]], scale: float) -> torch.Tensor:
    """The inverse Hessian of full-memory BFGS, as a matrix."""
    n = len(pairs[0][0])
    H = scale * torch.eye(n, dtype=torch.float64)
    for s, y in pairs:
        V = torch.eye(n, dtype=torch.float64) - torch.outer(y, s) / (s @ y)
        H = V.T @ H @ V + torch.outer(s, s) / (s @ y)
    return H


def matrix(pairs: Pairs, n: int) -> torch.Tensor:
    return torch.stack([pairs.solve(e) for e in torch.eye(n, dtype=torch.float64)])


@pytest.mark.parametrize("seed", range(5))
def test_folded_pairs_equal_full_memory_for_any_curvature_pairs(seed: int) -> None:
    """Steps in a 3-dimensional subspace of R^8: 12 pairs are kept as 3, and H stays that of all 12."""
    rng = torch.Generator().manual_seed(seed)
    basis = torch.randn(8, 3, dtype=torch.float64, generator=rng)
    kept, history = Pairs(memory=3, scale=0.5), []
    for _ in range(12):
        s = basis @ torch.randn(3, dtype=torch.float64, generator=rng)
        y = s + 0.3 * torch.randn(8, dtype=torch.float64, generator=rng)  # not of one quadratic
        if kept.add(s, y):
            history.append((s, y))
            torch.testing.assert_close(matrix(kept, 8), dense(history, 0.5), rtol=1e-6, atol=1e-6)
    assert len(kept) == 3
    assert len(history) > 8


def test_minimising_a_quadratic_equals_full_history_bfgs() -> None:
    """n = 6 variables and memory 6: with aggregation every iterate is BFGS's, without it is not."""
    rng = torch.Generator().manual_seed(1)
    root = torch.randn(6, 6, dtype=torch.float64, generator=rng)
    A, b = root @ root.T + torch.eye(6, dtype=torch.float64), torch.randn(6, dtype=torch.float64, generator=rng)
    start = torch.randn(6, dtype=torch.float64, generator=rng)

    def iterates(aggregate: bool | None) -> list[torch.Tensor]:
        w, found = start.clone(), []
        pairs, history = Pairs(6, 0.02, bool(aggregate)), []
        for _ in range(14):
            g = A @ w - b
            H = dense(history, 0.02) if history else 0.02 * torch.eye(6, dtype=torch.float64)
            step = -(H @ g if aggregate is None else pairs.solve(g))  # no line search, so no finite end
            history.append((step, A @ step))
            pairs.add(step, A @ step)
            w = w + step
            found.append(w)
        return found

    full, folded, dropped = iterates(None), iterates(True), iterates(False)
    scale = (start - torch.linalg.solve(A, b)).norm()
    assert max((a - b).norm() / scale for a, b in zip(full, folded, strict=True)) < 1e-5
    assert max((a - b).norm() / scale for a, b in zip(full, dropped, strict=True)) > 1e-3


def test_products_with_the_hessian_invert_those_with_its_inverse() -> None:
    rng = torch.Generator().manual_seed(2)
    pairs = Pairs(4, 0.3, aggregate=False)
    for _ in range(6):
        s = torch.randn(5, dtype=torch.float64, generator=rng)
        pairs.add(s, 2 * s + 0.2 * torch.randn(5, dtype=torch.float64, generator=rng))
    v = torch.randn(5, 2, dtype=torch.float64, generator=rng)
    torch.testing.assert_close(matrix(pairs, 5) @ pairs.multiply(v), v)


def test_negative_curvature_is_refused() -> None:
    pairs = Pairs(3, 1.0)
    s = torch.tensor([1.0, 0.0], dtype=torch.float64)
    assert not pairs.add(s, -s)
    assert len(pairs) == 0


def test_it_forgives_a_rate_that_is_far_too_small(digits: Pooled) -> None:
    same = {"rounds": 4, "engine": "embedded(workers=1)"}
    newton = fedalpha.run(digits, "softmax", update="lbfgs(lr=0.02, batch=none, steps=5)", **same)
    plain = fedalpha.run(digits, "softmax", update="sgd(lr=0.02, batch=none, steps=10)", **same)  # as many gradients
    assert np.nanmin(newton.accuracy[1:] - plain.accuracy[1:]) > 0


def test_workers_change_no_byte(digits: Pooled) -> None:
    runs = [
        fedalpha.run(digits, "mlp", rounds=1, update="lbfgs(lr=0.1, steps=4)", engine=f"embedded(workers={w})")
        for w in (1, 2)
    ]
    assert same_model(*runs)


@pytest.mark.parametrize(("text", "message"), [("lbfgs(memory=0)", "memory = 0"), ("lbfgs(aggregate=2)", "write true")])
def test_bad_arguments_are_refused(text: str, message: str, digits: Pooled) -> None:
    with pytest.raises(ValueError, match=message):
        fedalpha.run(digits, "softmax", update=text)
