"""Runs whose clients send their updates through an upload: the bytes, the counts, the memory of clients, refusals."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedalpha
from fedalpha.data import Pooled
from fedalpha.runs.settings import Settings
from fedalpha.store import Generations
from fedalpha.upload import UPLOADS
from histories import same_model, without_times

OPTIONS: dict[str, Any] = {"rounds": 3, "seed": 3, "update": "sgd(lr=0.1, batch=20)", "select": "uniform(C=0.6)"}


class Counting(torch.nn.Module):
    """A model with buffers: of floats, and of integers."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 12), torch.nn.BatchNorm1d(12))
        self.head = torch.nn.Linear(12, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))  # type: ignore[no-any-return]


def run(digits: Pooled, upload: str | None, engine: str = "embedded(workers=1)", **options: Any) -> Any:
    given = {"strategy": "FedSoftWorse(T=0.2)", "model": "softmax", **OPTIONS, **options}
    return fedalpha.run(digits, upload=upload, engine=engine, **given)


@pytest.mark.parametrize("upload", [text for entry in UPLOADS for text in entry.examples])
def test_workers_change_no_byte(digits: Pooled, upload: str) -> None:
    one, two = (run(digits, upload, f"embedded(workers={n})") for n in (1, 2))
    assert without_times(one) == without_times(two)
    assert same_model(one, two)
    assert not same_model(one, run(digits, None)) or upload == "sparse(share=1)"


def test_one_model_for_another_way_of_summing_it(digits: Pooled) -> None:
    """A fault that never happens makes the engine collect the models instead of summing them."""
    upload = "feedback(quantised(bits=4))"
    one, two = run(digits, upload), run(digits, upload, fault="drop(p=0.0)")
    assert same_model(one, two)
    assert [row["bytes_up"] for row in one.rows] == [row["bytes_up"] for row in two.rows]


def test_the_bytes_are_those_of_what_is_sent(digits: Pooled) -> None:
    plain, packed = run(digits, None, model=Counting), run(digits, "quantised(bits=4, block=100)", model=Counting)
    whole = {name for name in packed.model if "running" in name or "tracked" in name}
    trained = sum(value.numel() for name, value in packed.model.items() if name not in whole)
    buffers = sum(packed.model[name].nbytes for name in whole)
    sent = -(-trained // 2) + 4 * -(-trained // 100) + buffers
    model = 4 * trained + buffers
    for row, other in zip(packed.rows[1:], plain.rows[1:], strict=True):
        clients = len(row["cohort"])
        assert other["bytes_up"] - row["bytes_up"] == clients * (model - sent)
        assert row["bytes_down"] == other["bytes_down"]
    assert int(packed.model["body.2.num_batches_tracked"]) == int(plain.model["body.2.num_batches_tracked"]) > 0


def test_an_upload_that_loses_nothing_gives_the_updates(digits: Pooled) -> None:
    plain, packed = run(digits, None), run(digits, "sparse(share=1)")
    for name, value in plain.model.items():
        assert torch.allclose(value, packed.model[name], rtol=0, atol=1e-6)


def test_what_is_lost_is_sent_later(digits: Pooled) -> None:
    """e_{t+1} = x_t + e_t − sent_t for a client, with the models that the server has read."""
    found: list[Any] = []

    class Look(fedalpha.Callback):
        def on_round(self, row: Any, state: Any) -> None:
            found.append(state)

    alone = fedalpha.federation("digits", partition="iid", clients=1)
    run(alone, "feedback(sparse(share=0.05))", callbacks=[Look()], strategy="FedAvg", select="uniform")
    lost = [state.clients.get(0, {}).get("upload") for state in found]
    assert lost[0] is None
    for before, after, old, new in zip(found, found[1:], lost, lost[1:], strict=False):
        read = np.concatenate(
            [
                (after.model[name].double() - before.model[name].double()).numpy().reshape(-1)
                for name in sorted(after.model)
            ]
        )
        k = np.ceil(0.05 * len(new))
        assert 0 < np.count_nonzero(np.abs(read) > 1e-9) <= k
        sent = np.abs(read) > 1e-9
        assert not new[sent].any()  # what was sent is not owed any more
        assert old is None or np.abs(old).sum() > 0


class Killed(fedalpha.Callback):
    """Ends its process in round 2, before the folder has saved it."""

    def on_round(self, row: Any, state: Any) -> None:
        if row["round"] == 2:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the process that is killed is forked")
@pytest.mark.parametrize("update", ["sgd(lr=0.1, batch=20)", "scaffold(lr=0.1, batch=20)"])
def test_a_run_that_was_killed_is_resumed_to_the_same_bytes(digits: Pooled, tmp_path: Path, update: str) -> None:
    options = {"update": update, "upload": "feedback(quantised(bits=2))"}
    whole = run(digits, **options)
    context = multiprocessing.get_context("fork")
    killed = context.Process(target=run, args=(digits,), kwargs={**options, "out": tmp_path, "callbacks": [Killed()]})
    killed.start()
    killed.join(60)
    assert killed.exitcode == -signal.SIGKILL
    saved = Generations(tmp_path / "checkpoint").load()
    assert saved is not None
    assert saved[0]["round"] == 1
    assert all(isinstance(state["upload"], np.ndarray) for state in saved[0]["clients"].values())
    resumed = run(digits, out=tmp_path, **options)
    assert without_times(resumed) == without_times(whole)
    assert same_model(resumed, whole)


def test_many_clients_at_once_are_sent_through_it_too() -> None:
    """Stacked training differs in the last bits, so a code may differ by one; the memory and the bytes are there."""
    many = fedalpha.federation("digits", partition="iid", clients=260)
    stacked, alone = (
        run(
            many,
            "feedback(quantised)",
            f"embedded(workers=1, vectorise={v})",
            strategy="FedAvg",
            select="uniform",
            rounds=2,
        )
        for v in ("true", "false")
    )
    assert [row["bytes_up"] for row in stacked.rows] == [row["bytes_up"] for row in alone.rows]
    assert len(stacked.state.clients) == len(alone.state.clients) == 260
    for id in (0, 259):
        ours, theirs = (history.state.clients[id]["upload"] for history in (stacked, alone))
        assert np.corrcoef(ours, theirs)[0, 1] > 0.9
    for name, value in alone.model.items():
        assert torch.allclose(stacked.model[name], value, atol=1e-4)


def test_a_model_that_is_not_finite_is_refused_as_without_an_upload(digits: Pooled) -> None:
    options = {"update": "sgd(lr=1e38, batch=20)", "rounds": 1, "strategy": "FedAvg"}
    plain, packed = run(digits, None, **options), run(digits, "feedback(sparse(share=0.1))", **options)
    assert packed.rows[1]["refused"] == plain.rows[1]["refused"] != []
    assert not packed.state.clients


@pytest.mark.parametrize("server", ["synchronous(take=4)", "buffered(K=2, concurrency=4)"])
def test_stale_updates_are_differences_to_what_was_sent(digits: Pooled, server: str) -> None:
    options = {"clock": "lognormal(sigma=1)", "server": server, "strategy": "FedAvg"}
    plain, packed = run(digits, None, **options), run(digits, "quantised(bits=8)", **options)
    assert [row["cohort"] for row in plain.rows] == [row["cohort"] for row in packed.rows]
    for name, value in plain.model.items():
        assert torch.allclose(value, packed.model[name], atol=2e-2)


def test_secure_sums_are_refused(digits: Pooled) -> None:
    with pytest.raises(ValueError, match=r"upload = quantised: secure = masked adds masked words"):
        run(digits, "quantised", secure="masked", strategy="FedAvg")


def test_the_setting_is_checked_and_kept(tmp_path: Path) -> None:
    own = fedalpha.federation("digits", clients=2, seed=0)
    for upload in (None, "quantised(bits=4)"):
        fedalpha.run(own, "softmax", rounds=0, upload=upload, out=tmp_path / str(upload))
        config = json.loads((tmp_path / str(upload) / "config.json").read_text())
        assert config.get("upload") == config["settings"].get("upload") == upload
        assert ("upload" in config) == ("upload" in config["settings"]) == (upload is not None)
    with pytest.raises(ValueError, match="unknown upload 'quantized'; did you mean 'quantised'"):
        Settings(upload="quantized").resolved()
    assert Settings(upload="quantised(bits=4)").resolved().stored()["upload"] == "quantised(bits=4)"
    assert "upload" not in Settings().resolved().stored()
