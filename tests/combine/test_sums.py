"""Σ alpha_i·w_i: exact, independent of arrival, true to dtypes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedalpha.combine import Reports, Sum, blocks, mean, weighted_sum
from fedalpha.models import Template
from fedalpha.update import Broadcast, Report


@given(st.integers(1, 5000))
def test_blocks_cover_the_cohort_in_order(m: int) -> None:
    cut = blocks(m)
    assert [i for block in cut for i in block] == list(range(m))
    assert len(cut) <= 64


def model(*values: float, count: int = 0) -> dict[str, torch.Tensor]:
    return {"w": torch.tensor(values), "count": torch.tensor(count), "half": torch.tensor(values).to(torch.float16)}


def aggregate(
    alpha: list[float], models: list[dict[str, torch.Tensor]], simplex: bool = True
) -> dict[str, torch.Tensor]:
    start = Broadcast(Template(torch.nn.Identity()), model(10.0, 20.0, count=1))
    reports = Reports([Report(i, m, {}, 1, 1) for i, m in enumerate(models)])
    return mean().combine({}, start, reports, np.array(alpha), simplex)[0].parameters


def test_a_mean_by_hand_keeps_dtypes_and_takes_integers_from_the_heaviest() -> None:
    found = aggregate([0.25, 0.75], [model(4.0, 8.0, count=7), model(8.0, 4.0, count=9)])
    assert found["w"].tolist() == [7.0, 5.0]
    assert found["w"].dtype == torch.float32
    assert found["half"].dtype == torch.float16
    assert found["count"].dtype == torch.int64
    assert found["count"] == 9


def test_off_the_simplex_alpha_are_coefficients_of_the_moves() -> None:
    found = aggregate([0.5, 1.0], [model(12.0, 20.0), model(10.0, 21.0)], simplex=False)
    assert found["w"].tolist() == [11.0, 21.0]  # 10 + 0.5·2, 20 + 1·1


def test_a_client_without_weight_is_not_looked_at() -> None:
    found = aggregate([1.0, 0.0], [model(1.0, 2.0), model(float("nan"), 2.0)])
    assert found["w"].tolist() == [1.0, 2.0]


@settings(max_examples=20)
@given(st.integers(1, 200), st.randoms(use_true_random=False))
def test_blocks_may_arrive_in_any_order(m: int, random) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(m)
    alpha = rng.dirichlet(np.ones(m))
    models = [{"w": torch.from_numpy(rng.normal(size=5).astype(np.float32)), "n": torch.tensor(i)} for i in range(m)]
    expected = weighted_sum(alpha, models).values
    cut = blocks(m)
    order = list(range(len(cut)))
    random.shuffle(order)
    parts: dict[int, Sum] = {}
    for b in order:
        parts[b] = Sum()
        for i in cut[b]:
            parts[b].add(float(alpha[i]), models[i])
    total = Sum()
    for b in range(len(cut)):
        total.merge(parts[b])
    assert total.values["w"].numpy().tobytes() == expected["w"].numpy().tobytes()
    assert total.values["n"] == expected["n"] == int(np.argmax(alpha))
    assert expected["w"].numpy() == pytest.approx(
        sum(a * w["w"].double().numpy() for a, w in zip(alpha, models, strict=True))
    )


def test_float64_models_are_not_changed_by_summing() -> None:
    models = [{"w": torch.full((3,), 2.0, dtype=torch.float64)} for _ in range(2)]
    weighted_sum(np.array([0.25, 0.75]), models)
    assert all(m["w"].tolist() == [2.0, 2.0, 2.0] for m in models)


@pytest.mark.parametrize("compiled", [True, False])
def test_a_stack_sums_to_the_bytes_of_one_after_the_other(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedalpha.combine import sums

    if not compiled:
        monkeypatch.setattr(sums, "numba_version", lambda: None)
    drawn = torch.Generator().manual_seed(3)
    stacked = {"w": torch.randn(9, 17, 1031, generator=drawn), "b": torch.randn(9, 1, generator=drawn)}
    stacked["n"] = torch.arange(9)
    alpha = torch.rand(9, generator=drawn, dtype=torch.float64).tolist()
    at_once, one_by_one = Sum(), Sum()
    at_once.add_stack(alpha[:4], {name: value[:4] for name, value in stacked.items()})
    at_once.add_stack(alpha[4:], {name: value[4:] for name, value in stacked.items()})
    for i, a in enumerate(alpha):
        for name, value in stacked.items():  # by hand: every product is rounded before it is added
            if name == "n":
                continue
            old = one_by_one.values.get(name, torch.zeros(value.shape[1:], dtype=torch.float64))
            one_by_one.values[name] = old + value[i].double() * a
    for name, value in one_by_one.values.items():
        assert torch.equal(at_once.values[name], value)
    assert at_once.values["n"] == int(np.argmax(alpha))


def test_large_models_are_summed_in_columns_to_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedalpha.combine import sums

    drawn = torch.Generator().manual_seed(4)
    models = [
        {
            "w": torch.randn(7, 1001, generator=drawn),
            "n": torch.tensor(i),
            "d": torch.randn(3, generator=drawn).double(),
        }
        for i in range(70)
    ]
    models[5]["w"][:] = torch.nan  # not looked at
    for gone in ([5], [4, 5, 7], [*range(1, 70, 2)], [*range(3, 69)], [*range(0, 5), *range(6, 68), 5]):
        alpha = torch.rand(70, generator=drawn, dtype=torch.float64).numpy()
        alpha[[5, *gone]] = 0
        plain = weighted_sum(alpha, models)
        with monkeypatch.context() as patch:
            patch.setattr(sums, "_WORTH_THREADS", 1)
            columns = weighted_sum(alpha, models)
        assert list(columns.values) == list(plain.values)
        assert columns.heaviest == plain.heaviest
        for name, value in plain.values.items():
            assert torch.equal(columns.values[name], value), name
    monkeypatch.setattr(sums, "_WORTH_THREADS", 1)
    alpha[9], models[9]["w"] = 0.1, models[9]["w"].reshape(1001, 7)
    with pytest.raises(ValueError, match="'w' is missing or of another shape"):
        weighted_sum(alpha, models)
