"""Compiled pooling gives torch's bits: values, gradients, second gradients and whole trainings.

A first layer that joins its pooling agrees with torch up to rounding.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d

import fedalpha
from fedalpha.fast import layers
from fedalpha.fast.compiled import numba_version
from fedalpha.fast.layers import Pool, PooledConv, quicken
from histories import same_model

pytestmark = pytest.mark.skipif(numba_version() is None, reason="numba is not used here: no layer is replaced")


def images(*shape: int) -> Tensor:
    """Many ties, both infinities, NaN."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).mul(2).round().div(2)
    for place, value in zip(
        ((0, 0, 0, 1), (0, 0, 2, 2), (-1, -1, 3, 0)), (torch.nan, torch.inf, -torch.inf), strict=True
    ):
        x[place] = value
    return x.contiguous(memory_format=torch.channels_last).requires_grad_()


def same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.equal(a.isnan(), b.isnan()) and torch.equal(a.nan_to_num(), b.nan_to_num())


@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("shape", [(6, 32, 26, 26), (3, 64, 11, 11), (5, 3, 9, 12), (2, 1, 4, 4)])
def test_values_and_gradients_are_torchs(shape: tuple[int, ...], relu: bool) -> None:
    x = images(*shape)
    ours, theirs = Pool(relu)(x), max_pool2d(x, 2)
    theirs = theirs.relu() if relu else theirs
    assert same(ours, theirs)
    gradient = torch.randn(ours.shape, generator=torch.Generator().manual_seed(1))
    expected = torch.autograd.grad(theirs, x, gradient)[0]
    assert same(torch.autograd.grad(ours, x, gradient, retain_graph=True)[0], expected)
    assert same(torch.autograd.grad(ours, x, gradient, create_graph=True)[0], expected)


def test_it_can_be_differentiated_twice() -> None:
    def penalty(module: nn.Module) -> Tensor:
        x = torch.linspace(-1, 1, 2 * 3 * 5 * 6, dtype=torch.float32).view(2, 3, 5, 6).sin()
        x = x.contiguous(memory_format=torch.channels_last).requires_grad_()
        slope = torch.autograd.grad(module(x).square().sum(), x, create_graph=True)[0]
        return torch.autograd.grad(slope.square().sum(), x)[0]

    assert torch.allclose(penalty(Pool(relu=True)), penalty(nn.Sequential(nn.MaxPool2d(2), nn.ReLU())))


def test_what_does_not_fit_is_left_to_torch() -> None:
    pool = Pool(relu=True)
    for x in (torch.randn(2, 3, 6, 6), torch.randn(3, 6, 6), torch.randn(2, 3, 6, 6, dtype=torch.float64)):
        assert torch.equal(pool(x), max_pool2d(x, 2).relu())


def test_only_plain_two_by_two_pooling_is_replaced() -> None:
    watched = nn.MaxPool2d(2)
    watched.register_forward_hook(lambda *_: None)
    module = nn.Sequential(
        nn.MaxPool2d(2), nn.ReLU(), nn.ReLU(), nn.MaxPool2d((2, 2)), nn.MaxPool2d(2), nn.MaxPool2d(3), nn.ReLU(),
        nn.MaxPool2d(2, padding=1), nn.MaxPool2d(2, stride=1), nn.MaxPool2d(2, ceil_mode=True), watched, nn.ReLU(),
    )  # fmt: skip
    names = list(module.state_dict())
    quicken(module)
    assert list(module.state_dict()) == names
    kinds = [(type(m).__name__, getattr(m, "relu", None)) for m in module]
    assert kinds[:5] == [("Pool", True), ("Identity", None), ("Pool", True), ("Identity", None), ("Pool", False)]
    assert [kind for kind, _ in kinds[5:]] == ["MaxPool2d", "ReLU", *["MaxPool2d"] * 4, "ReLU"]


class Own(nn.Module):
    """A user's network: ReLU before pooling, a pooling layer outside any Sequential."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2))
        self.pool = nn.MaxPool2d(2)
        self.last = nn.Linear(4, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.pool(self.first(x.view(-1, 1, 8, 8))).flatten(1))


class Narrow(Own):
    """The same with a first layer of another kind."""

    def __init__(self) -> None:
        super().__init__()
        self.first[0] = nn.Conv2d(1, 4, (3, 2))


def trained(model: object) -> fedalpha.History:
    data: object = "digits"
    if model == "cnn":
        drawn = torch.Generator().manual_seed(0)
        data = (torch.rand(200, 1, 12, 12, generator=drawn), torch.randint(10, (200,), generator=drawn))
    crowd = fedalpha.federation(data, clients=3, seed=0)  # type: ignore[arg-type]
    return fedalpha.run(crowd, model, "FedSoftWorse(T=0.2)", rounds=2, engine="embedded(workers=1)")  # type: ignore[arg-type]


def test_training_gives_the_same_bytes_with_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Narrow()
    quick = trained(model)
    monkeypatch.setattr(layers, "numba_version", lambda: None)
    plain = trained(model)
    assert same_model(quick, plain)
    assert [row["loss"] for row in quick.rows] == [row["loss"] for row in plain.rows]


@pytest.mark.parametrize("model", ["cnn", Own()], ids=["cnn", "own"])
def test_a_first_layer_trains_as_in_torch_up_to_rounding(model: object, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = trained(model)
    monkeypatch.setattr(layers, "numba_version", lambda: None)
    plain = trained(model)
    for name, value in plain.model.items():
        assert torch.allclose(quick.model[name], value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(5, 1, 28, 28), (2, 1, 9, 12), (3, 1, 4, 5)])
def test_a_first_layer_joins_its_pooling(shape: tuple[int, ...], bias: bool, relu: bool) -> None:
    """Values, gradients, and the gradient of a penalty on gradients."""
    drawn = torch.Generator().manual_seed(0)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        plain = nn.Sequential(nn.Conv2d(1, 7, 3, bias=bias), *[nn.ReLU()] * relu, nn.MaxPool2d(2))
    quick = copy.deepcopy(plain)
    quicken(quick)
    assert isinstance(quick[0], PooledConv)
    assert list(quick.state_dict()) == list(plain.state_dict())
    x = torch.rand(shape, generator=drawn)
    outputs = [module(x) for module in (quick, plain)]
    assert torch.allclose(*outputs, atol=1e-6)
    with torch.no_grad():
        assert torch.equal(quick(x), outputs[0])
    slopes = [
        torch.autograd.grad(out.square().sum(), list(module.parameters()), create_graph=again)
        for again in (False, True)
        for out, module in zip((quick(x), plain(x)), (quick, plain), strict=True)
    ]
    for first in range(0, 4, 2):
        for ours, theirs in zip(slopes[first], slopes[first + 1], strict=True):
            assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    penalties = [
        torch.autograd.grad(sum(s.square().sum() for s in slope), list(module.parameters()))  # type: ignore[arg-type]
        for slope, module in zip(slopes[2:], (quick, plain), strict=True)
    ]
    for ours, theirs in zip(*penalties, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-3, atol=1e-4)


def test_a_first_layer_lets_gradients_of_its_input_through() -> None:
    plain = nn.Sequential(nn.Conv2d(1, 3, 3), nn.MaxPool2d(2))
    quick = copy.deepcopy(plain)
    quicken(quick)
    x = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()
    ours, theirs = (torch.autograd.grad(module(x).sum(), x)[0] for module in (quick, plain))
    assert torch.allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "kernel", "seen"),
    [
        ((64, 1, 28, 28), 3, (12, 12)),
        ((24, 1, 28, 28), 3, (12, 12)),
        ((3, 2, 28, 25), 3, (12, 10)),
        ((2, 3, 18, 22), (2, 3), (7, 10)),
        ((2, 1, 16, 16), 1, (6, 6)),
        ((2, 1, 14, 18), 5, (6, 8)),
    ],
)
def test_what_a_second_pooling_leaves_out_is_not_computed(
    shape: tuple[int, ...], kernel: int | tuple[int, int], seen: tuple[int, int]
) -> None:
    """The same values from a smaller image, up to rounding: torch may choose another way for another size."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        quick = nn.Sequential(
            nn.Conv2d(shape[1], 32, 3),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(32, 64, kernel),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    quicken(quick)
    whole = copy.deepcopy(quick)
    for layer in whole.modules():
        if isinstance(layer, Pool):
            layer.followed_by = None
    sizes: list[tuple[int, ...]] = []
    quick[3].register_forward_pre_hook(lambda _, inputs: sizes.append(tuple(inputs[0].shape[2:])))
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).contiguous(memory_format=torch.channels_last)
    outputs = [module(x) for module in (quick, whole)]
    assert sizes == [seen]
    assert torch.allclose(*outputs, rtol=1e-5, atol=1e-6)
    slopes = [
        torch.autograd.grad(out.square().sum(), list(module.parameters()))
        for out, module in zip(outputs, (quick, whole), strict=True)
    ]
    for ours, theirs in zip(*slopes, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_only_a_convolution_between_two_poolings_shortens_the_first() -> None:
    def first(*between: nn.Module) -> object:
        module = nn.Sequential(nn.MaxPool2d(2), *between, nn.MaxPool2d(2))
        quicken(module)
        return module[0].followed_by

    watched = nn.Conv2d(4, 4, 3)
    watched.register_forward_hook(lambda *_: None)
    assert first(nn.ReLU(), nn.Conv2d(4, 4, (3, 2))) == (3, 2)
    assert first() is None
    for layer in (
        nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, stride=2), nn.Conv2d(4, 4, 3, dilation=2), watched, nn.Tanh()
    ):  # fmt: skip
        assert first(layer) is None
    assert first(nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3)) is None


def test_a_sequence_with_a_way_of_its_own_is_left_alone() -> None:
    class Tapped(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            return self[0](x)  # type: ignore[no-any-return]

    module = Tapped(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2))
    quicken(module)
    assert module(torch.rand(2, 1, 8, 8)).shape == (2, 3, 6, 6)
