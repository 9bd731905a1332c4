"""PFNM and FedDist: models whose widths change."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

import fedalpha
from fedalpha.combine import COMBINES, Reports, feddist, pfnm
from fedalpha.data import Pooled
from fedalpha.engine.backends.embedded import Embedded
from fedalpha.fast.threads import single_thread
from fedalpha.models import Parameters, initial
from fedalpha.round import Train
from fedalpha.task import Task
from fedalpha.update import Broadcast, Report, sgd
from histories import same_model, without_times


def start(hidden: str = "12", seed: int = 0) -> Broadcast:
    return Broadcast(*initial(f"mlp(hidden={hidden})", (64,), 10, seed))


def reports(models: list[Parameters]) -> Reports:
    return Reports([Report(i, m, {"train": 0.0}, 1, 1, labels=[1] * 10) for i, m in enumerate(models)])


def outputs(broadcast: Broadcast) -> torch.Tensor:
    module = broadcast.architecture.build()
    module.load_state_dict(broadcast.parameters)
    x = torch.rand(50, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return module(x)


def permuted(parameters: Parameters, rng: np.random.Generator) -> Parameters:
    """The same function with its hidden units in another order."""
    found = dict(parameters)
    names = [name.removesuffix(".bias") for name in parameters if name.endswith(".bias")]
    for here, there in itertools.pairwise(names):
        order = torch.from_numpy(rng.permutation(len(parameters[f"{here}.bias"])))
        found[f"{here}.weight"] = found[f"{here}.weight"][order]
        found[f"{here}.bias"] = found[f"{here}.bias"][order]
        found[f"{there}.weight"] = found[f"{there}.weight"][:, order]
    return found


@pytest.mark.parametrize("hidden", ["12", "[10, 8]"])
def test_pfnm_recovers_permuted_copies_where_the_mean_fails(hidden: str) -> None:
    common, rng = start(hidden), np.random.default_rng(0)
    for value in common.parameters.values():
        value *= 5  # neurons apart from each other, as training makes them
    truth = outputs(common)
    copies = reports([permuted(common.parameters, rng) for _ in range(5)])
    alpha = np.full(5, 0.2)
    matched, _ = pfnm(sigma=0.1, shrink=False).combine({}, common, copies, alpha, True)
    plain, _ = COMBINES.parse("mean").combine({}, common, copies, alpha, True)
    torch.testing.assert_close(outputs(matched), truth, rtol=1e-4, atol=1e-4)
    assert (outputs(plain) - truth).abs().mean() > 0.3 * truth.abs().mean()


def one_unit(outputs: list[float]) -> Parameters:
    """A client with one hidden unit, which all clients share, and two classes."""
    layers = {"layer1.weight": [[4.0, 4.0]], "layer1.bias": [1.0], "output.weight": [[o] for o in outputs]}
    return {k: torch.tensor(v) for k, v in {**layers, "output.bias": outputs}.items()}


def test_pfnm_weighs_outputs_by_class_counts_as_the_authors_do() -> None:
    """Client 0 has class 0 only, client 1 class 1 only: each class is taken from the client that has seen it."""
    common = Broadcast(*initial("mlp(hidden=1)", (2,), 2, 0))
    models = [one_unit([3.0, -3.0]), one_unit([-3.0, 3.0])]

    def told(*labels: list[int]) -> Reports:
        return Reports([Report(i, models[i], {}, 1, 1, labels=row) for i, row in enumerate(labels)])

    alpha, apart = np.array([0.5, 0.5]), told([7], [0, 5])  # last classes may be left out
    found, _ = pfnm(sigma=1.0, sigma0=1.0).combine({}, common, apart, alpha, True)
    assert found.parameters["output.weight"].flatten().tolist() == [1.5, 1.5]  # n_jk/Σ n_jk, then 1/(1 + σ/σ0)
    assert found.parameters["output.bias"].tolist() == [1.5, 1.5]
    assert found.parameters["layer1.weight"].flatten().tolist() == pytest.approx([4 * 2 / 3, 4 * 2 / 3])
    plain, _ = pfnm(sigma=1.0, sigma0=1.0, shrink=False).combine({}, common, apart, alpha, True)
    assert plain.parameters["output.weight"].flatten().tolist() == [3.0, 3.0]
    even, _ = pfnm(shrink=False).combine({}, common, told([3], [3]), alpha, True)  # nobody has class 1
    assert even.parameters["output.bias"].tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match="class counts of every client"):
        pfnm().combine({}, common, Reports([Report(0, models[0], {}, 1, 1)]), np.ones(1), True)


def test_pfnm_keeps_neurons_that_only_one_client_has() -> None:
    """Client 1 has 8 of client 0's neurons, in another order, and 4 of its own."""
    a, b = start(), start(seed=1)
    for value in (*a.parameters.values(), *b.parameters.values()):
        value *= 5
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    mixed = dict(b.parameters)
    for name, dim in (("layer1.weight", 0), ("layer1.bias", 0), ("output.weight", 1)):
        parts = [a.parameters[name].narrow(dim, 0, 8), b.parameters[name].narrow(dim, 8, 4)]
        mixed[name] = torch.cat(parts, dim).index_select(dim, order)
    found, _ = pfnm(sigma=0.1, shrink=False).combine({}, a, reports([a.parameters, mixed]), np.array([0.5, 0.5]), True)
    assert found.parameters["layer1.weight"].shape == (16, 64)
    assert str(found.architecture.model) == "mlp(hidden=[16])"  # type: ignore[attr-defined]
    known = torch.cat([a.parameters["layer1.weight"], b.parameters["layer1.weight"][8:]])
    nearest = torch.cdist(known, found.parameters["layer1.weight"]).min(dim=1).values
    assert nearest.max() < 1e-4


def test_the_assignment_is_the_best_of_all_by_the_papers_cost() -> None:
    """Two clients with 3 neurons in R²: every injective map into 3 old and 3 new ones, by equation 8."""
    rng = np.random.default_rng(5)
    rule = pfnm(gamma=2.0, sigma=0.5, sigma0=4.0)
    for _ in range(10):
        vectors = [rng.normal(size=(3, 2)), rng.normal(size=(3, 2))]
        precision = rng.uniform(0.2, 2.0, size=(2, 2)) / 0.5  # of each coordinate
        sums, weights = precision[0] * vectors[0], precision[0] + 1 / 4.0

        def gain(places: tuple[int, ...]) -> float:
            total = 0.0
            for row, i in enumerate(places):
                own = precision[1] * vectors[1][row]  # noqa: B023
                if i < 3:
                    total += ((sums[i] + own) ** 2 / (weights + precision[1])).sum()  # noqa: B023
                    total += -(sums[i] ** 2 / weights).sum() + 2 * math.log(1 / (2 - 1))  # noqa: B023
                else:
                    total += (own**2 / (1 / 4.0 + precision[1])).sum() + 2 * math.log(2.0 / 2)  # noqa: B023
                    total -= 2 * math.log(i - 2)
            return total

        best = max(itertools.permutations(range(6), 3), key=gain)
        found = rule._assign(1, vectors, precision, {0: [0, 1, 2], 1: []}, 3)
        assert [i if i < 3 else 3 for i in found] == [i if i < 3 else 3 for i in best]


def test_widths_that_change_between_rounds_go_through_engine_history_and_workers(digits: Pooled) -> None:
    for combine in ("pfnm(sigma=0.001, limit=90)", "feddist(spread=2.5, limit=90)"):
        same = {"rounds": 4, "combine": combine, "update": "sgd(lr=0.2, epochs=2)"}
        runs = [fedalpha.run(digits, "mlp(hidden=[32])", **same, engine=f"embedded(workers={w})") for w in (1, 2)]
        assert same_model(*runs)
        assert without_times(runs[0]) == without_times(runs[1])
        width = runs[0].model["layer1.bias"].shape[0]
        assert 32 < width <= 90
        assert runs[0].model["output.weight"].shape == (10, width)
        assert runs[0].rows[-1]["bytes_down"] > runs[0].rows[1]["bytes_down"]
        assert runs[0].accuracy[-1] > runs[0].accuracy[0]


def test_growth_with_a_server_optimiser_and_control_variates(digits: Pooled) -> None:
    """What has memory of shapes starts anew where they change."""
    history = fedalpha.run(
        digits,
        "mlp(hidden=[16])",
        rounds=3,
        combine="feddist(spread=2.5)",
        apply="fedavgm(lr=1, beta=0.5)",
        update="scaffold(lr=0.1)",
        engine="embedded(workers=1)",
    )
    assert history.model["layer1.bias"].shape[0] > 16
    assert np.isfinite(history.loss).all()


def rare() -> Pooled:
    """11 clients with the digits 0–4, and client 11 with 8 and 9, which nobody else has seen."""
    whole = fedalpha.federation("digits", partition="iid", clients=1, seed=0)
    x, y = whole.client(0).x, whole.client(0).y
    easy, hard = (y < 5).nonzero().flatten(), (y >= 8).nonzero().flatten()[:60]
    return fedalpha.federation([(x[g], y[g]) for g in (*easy.chunk(11), hard)], test=(whole.test.x, whole.test.y))


def test_feddist_adds_neurons_for_a_client_with_unseen_classes() -> None:
    data = rare()
    broadcast = Broadcast(*initial("mlp(hidden=[20])", data.shape, 10, 3))
    engine = Embedded(data, Task(), sgd(lr=0.2, epochs=5), seed=0, workers=1)
    with single_thread():
        found = engine.update(broadcast, Train(0, np.arange(12)))
    alpha = np.full(12, 1 / 12)
    rule = feddist(spread=2.5)
    grown, state = rule.combine(rule.init(), broadcast, found, alpha, True)
    assert state == {"round": 1}
    added = grown.parameters["layer1.weight"][20:]
    assert len(added) >= 3
    models = torch.stack([m["layer1.weight"] for m in found.models()])  # client × neuron × input
    owners = [int((models - row).norm(dim=2).min(dim=1).values.argmin()) for row in added]
    assert owners.count(11) > 0.5 * len(owners)
    plain, _ = COMBINES.parse("mean").combine({}, broadcast, found, alpha, True)
    assert torch.equal(grown.parameters["layer1.weight"][:20], plain.parameters["layer1.weight"])


def test_feddist_of_equal_models_is_their_mean() -> None:
    common = start()
    found, _ = feddist().combine(feddist().init(), common, reports([common.parameters] * 12), np.full(12, 1 / 12), True)
    assert found.parameters["layer1.bias"].shape == (12,)
    torch.testing.assert_close(found.parameters, common.parameters)


def test_other_architectures_and_bad_arguments_are_refused(digits: Pooled) -> None:
    for text in ("pfnm", "feddist"):
        with pytest.raises(ValueError, match=f"{text} works on fully connected networks"):
            fedalpha.run(digits, "softmax", rounds=1, combine=text, engine="embedded(workers=1)")
        with pytest.raises(ValueError, match="limit = 0"):
            COMBINES.parse(f"{text}(limit=0)")
    with pytest.raises(ValueError, match="needs weights on the simplex"):
        fedalpha.run(digits, "mlp", "FedNova", rounds=1, combine="pfnm", engine="embedded(workers=1)")
    with pytest.raises(ValueError, match="gamma = 0"):
        COMBINES.parse("pfnm(gamma=0)")
