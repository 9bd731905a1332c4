"""Clipping on the client of a live federation, and what the server does with replies that are longer than they say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message

import fedalpha
from fedalpha.data import Pooled
from fedalpha.flower import FedAlpha, client_app, clipping, initial_arrays
from fedalpha.flower.client_clipping import shortened
from fedalpha.flower.names import CLIPPED
from fedalpha.flower.pytorch import to_parameters
from fedalpha.flower.sums import distance

CLIENTS = [0, 1, 2, 3]
PRIVATE = "noise(clip(mean, C=0.2), z=0, c=0.25)"


@pytest.fixture(scope="module")
def digits() -> Pooled:
    found = fedalpha.federation("digits", partition="shards(size=30)", clients=4, seed=5)
    assert isinstance(found, Pooled)
    return found


class Heard:
    """Keeps the norms of the updates that arrive; ``change`` may change a reply first."""

    def __init__(self, change: Any = None) -> None:
        self.change, self.norms = change, dict[int, float]()

    def __call__(self, node: int, message: Message, reply: Message) -> Message:
        if message.metadata.message_type == "train" and not reply.has_error():
            if self.change is not None:
                self.change(node, message, reply)
            sent, got = (next(iter(m.content.array_records.values())) for m in (message, reply))
            self.norms[node] = distance({k: a.numpy() for k, a in got.items()}, {k: a.numpy() for k, a in sent.items()})
        return reply


def live(digits: Pooled, grid_of: Any, norm: float | None, combine: str, change: Any = None) -> tuple[Any, Any, Heard]:
    app = client_app("softmax", lambda c: digits.client(int(c.node_config["partition-id"])), classes=10, seed=5)
    grid = grid_of(clipping(app, norm), CLIENTS)
    heard = grid.spoil = Heard(change)
    rule = FedAlpha("cap(FedAvg, 0.25)", seed=5, combine=combine, fraction_evaluate=0.0)
    found = rule.start(grid, initial_arrays("softmax", digits.shape, 10, seed=5), num_rounds=1, timeout=0.5)
    return rule, found, heard


def test_the_norm_of_the_server_is_kept_and_gives_what_clipping_there_gives(digits: Pooled, grid_of: Any) -> None:
    _, found, heard = live(digits, grid_of, None, PRIVATE)
    assert all(0.199 < norm <= 0.2 for norm in heard.norms.values())
    history = fedalpha.run(
        digits, "softmax", "cap(FedAvg, 0.25)", rounds=1, seed=5, engine="embedded(workers=1)", combine=PRIVATE
    )
    for name, value in to_parameters(found.arrays).items():
        assert float((value - history.model[name]).abs().max()) < 1e-6


@pytest.mark.parametrize("combine", ["mean", PRIVATE])
def test_a_client_has_a_norm_of_its_own_whatever_the_server_says(digits: Pooled, grid_of: Any, combine: str) -> None:
    rule, _, heard = live(digits, grid_of, 0.05, combine)
    assert all(0.0499 < norm <= 0.05 for norm in heard.norms.values())
    assert rule.rows[-1]["refused"] == []


def test_short_updates_are_sent_as_they_are(digits: Pooled, grid_of: Any) -> None:
    _, found, _ = live(digits, grid_of, 1e6, "mean")
    history = fedalpha.run(digits, "softmax", "cap(FedAvg, 0.25)", rounds=1, seed=5, engine="embedded(workers=1)")
    for name, value in to_parameters(found.arrays).items():
        assert value.numpy().tobytes() == history.model[name].numpy().tobytes()


def test_a_reply_that_is_longer_than_it_says_is_refused(digits: Pooled, grid_of: Any) -> None:
    def longer(node: int, message: Message, reply: Message) -> None:
        if node == 1000:
            arrays = reply.content.array_records["arrays"]
            reply.content["arrays"] = ArrayRecord({k: Array(a.numpy() + np.float32(0.1)) for k, a in arrays.items()})

    app_of = lambda c: digits.client(int(c.node_config["partition-id"]))  # noqa: E731
    grid = grid_of(clipping(client_app("softmax", app_of, classes=10, seed=5)), CLIENTS)
    grid.spoil = Heard(longer)
    rule = FedAlpha("FedAvg", seed=5, combine="clip(mean, C=0.2)", fraction_evaluate=0.0)
    rule.start(grid, initial_arrays("softmax", digits.shape, 10, seed=5), num_rounds=1, timeout=0.5)
    [refused] = rule.rows[-1]["refused"]
    assert refused["client"] == 0
    assert "its client says that it was clipped to 0.2" in refused["reason"]


def test_a_reply_that_does_not_say_so_is_clipped_by_the_server(digits: Pooled, grid_of: Any) -> None:
    def silent(node: int, message: Message, reply: Message) -> None:
        del reply.content[CLIPPED]

    rule, _, _ = live(digits, grid_of, None, PRIVATE, silent)
    assert rule.rows[-1]["refused"] == []


def test_a_senseless_norm_is_told(digits: Pooled, grid_of: Any) -> None:
    with pytest.raises(ValueError, match="norm = -1"):
        clipping(client_app("softmax", digits.client(0), classes=10), -1)
    with pytest.raises(RuntimeError, match="takes the norm from the server"):
        live(digits, grid_of, None, "mean")
    with pytest.raises(ValueError, match="not finite"):
        shortened({"w": np.array([np.nan])}, {"w": np.zeros(1)}, 1.0)


def test_rounding_does_not_make_an_update_longer() -> None:
    """Around a large model, float32 cannot hold a short update exactly: it is shortened until it fits, or left out."""
    rng = np.random.default_rng(0)
    for scale, most in ((1.0, 0.1), (1e3, 1e-2), (1e6, 1e-6)):
        sent = {"w": (scale * rng.normal(size=500)).astype(np.float32), "n": np.array(3)}
        model = {"w": (sent["w"] + rng.normal(size=500)).astype(np.float32), "n": np.array(4)}
        short = shortened(model, sent, most)
        assert distance(short, sent) <= most
        assert short["w"].dtype == np.float32
        assert short["n"] == 4
