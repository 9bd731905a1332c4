"""Steps before a rule give what they would give on copies of the models, and make none."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedalpha.combine import COMBINES, Reports
from fedalpha.combine.clip import clip
from fedalpha.combine.nnm import nnm
from fedalpha.combine.robust import distances
from fedalpha.models import Parameters
from fedalpha.update import Broadcast, Report

N = 9
RULES = ["mean", "median", "trimmed(beta=0.2)", "krum(f=1, m=2)", "geomed", "centred(tau=0.5)", "fedlws"]


def cohort(dtype: torch.dtype = torch.float32) -> tuple[Broadcast, Reports, np.ndarray]:
    drawn = torch.Generator().manual_seed(0)

    def model(i: int) -> Parameters:
        w, b = torch.randn(4, 5, generator=drawn), torch.randn(3, generator=drawn)
        return {"w": w.to(dtype), "n": torch.tensor(i), "b.bias": b.to(dtype)}

    sent = Broadcast(None, model(0))  # type: ignore[arg-type]
    reports = Reports([Report(i, model(i), {}, 1, 1) for i in range(N)])
    return sent, reports, np.random.default_rng(0).dirichlet(np.ones(N))


def wide(model: Parameters) -> np.ndarray:
    return torch.cat([v.double().flatten() for v in model.values() if v.is_floating_point()]).numpy()


def clipped(C: float, sent: Broadcast, models: list[Parameters], alpha: np.ndarray) -> list[Parameters]:
    shares = [min(1.0, C / np.linalg.norm(wide(m) - wide(sent.parameters))) for m in models]
    return mixed(np.diag(shares), sent, models)


def neighbours(f: int, sent: Broadcast, models: list[Parameters], alpha: np.ndarray) -> list[Parameters]:
    points = np.stack([wide(m) for m in models])
    squares = ((points[:, None] - points) ** 2).sum(-1)
    return mixed(nnm("mean", f=f).mixing(squares, alpha), sent, models)


def mixed(by: np.ndarray, sent: Broadcast, models: list[Parameters]) -> list[Parameters]:
    def value(name: str, row: np.ndarray, own: Parameters) -> torch.Tensor:
        old = sent.parameters[name]
        if not old.is_floating_point():
            return own[name]
        moves = [b * (m[name].double() - old.double()) for b, m in zip(row, models, strict=True)]
        return (old.double() + torch.stack(moves).sum(0)).to(old.dtype)

    pairs = zip(by, models, strict=True)
    return [{name: value(name, row, own) for name in sent.parameters} for row, own in pairs]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("rule", RULES)
def test_the_result_is_that_of_copies(rule: str, dtype: torch.dtype) -> None:
    sent, reports, alpha = cohort(dtype)
    models = reports.models()
    clips, mixes = clipped(4.0, sent, models, alpha), neighbours(2, sent, models, alpha)
    steps = {
        f"clip({rule}, C=4)": clips,
        f"nnm({rule}, f=2)": mixes,
        f"nnm(clip({rule}, C=4), f=2)": clipped(4.0, sent, mixes, alpha),
        f"clip(nnm({rule}, f=2), C=4)": neighbours(2, sent, clips, alpha),
    }
    for text, copies in steps.items():
        how, plain = COMBINES.parse(text), COMBINES.parse(rule)
        found, _ = how.combine(how.init(), sent, reports, alpha, True)
        other = Reports([Report(i, m, {}, 1, 1) for i, m in enumerate(copies)])
        expected, _ = plain.combine(plain.init(), sent, other, alpha, True)
        for name, value in expected.parameters.items():
            close = {torch.bfloat16: 2e-2, torch.float32: 1e-5, torch.float64: 1e-5}[dtype]
            torch.testing.assert_close(found.parameters[name], value, rtol=close, atol=close)
            assert found.parameters[name].dtype == value.dtype


def test_models_that_are_not_clipped_keep_their_bits() -> None:
    sent, reports, alpha = cohort()
    for rule in ("mean", "median", "trimmed(beta=0.2)"):
        plain, step = COMBINES.parse(rule), COMBINES.parse(f"clip({rule}, C=1e9)")
        expected, _ = plain.combine(plain.init(), sent, reports, alpha, True)
        found, _ = step.combine(step.init(), sent, reports, alpha, True)
        assert all(torch.equal(found.parameters[k], v) for k, v in expected.parameters.items())


def test_a_step_copies_no_model_and_products_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedalpha.combine import base

    sent, reports, alpha = cohort()
    calls = []
    monkeypatch.setattr(base, "gram", lambda *a, real=base.gram: calls.append(1) or real(*a))
    moved = clip("mean", C=2.0).before(sent, nnm("mean", f=2).before(sent, reports, alpha, True), alpha, True)
    assert all(a is b for a, b in zip(moved.items, reports.items, strict=True))
    copies = moved.models()
    assert all(np.linalg.norm(wide(m) - wide(sent.parameters)) <= 2.0 for m in copies)
    points = np.stack([wide(m) for m in copies])
    direct = ((points[:, None] - points) ** 2).sum(-1)
    np.testing.assert_allclose(distances(moved.gram(sent)), direct, rtol=1e-4, atol=1e-5)
    assert len(calls) == 1
