"""Uploads of a live federation: what a hostile client can send, what is refused, and what the server needs for it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message

import fedalpha
from fedalpha.data import Pooled
from fedalpha.flower import FedAlpha, client_app, clipping, initial_arrays
from fedalpha.flower.names import UPLOAD
from fedalpha.flower.pytorch import to_parameters
from flower.test_equality import Net

HOSTILE = 3
Attack = Callable[[Message], None]


def live(digits: Pooled, grid_of: Any, upload: str | None, spoil: Any = None, app: Any = None, **rules: Any) -> Any:
    made = client_app(
        Net, lambda c: digits.client(int(c.node_config["partition-id"])), "sgd(lr=0.1, batch=20)", classes=10, seed=5
    )
    grid = grid_of(made if app is None else app(made), range(5))
    if spoil is not None:
        grid.spoil = lambda node, message, reply: spoil(grid.client(node), message, reply)
    rule = FedAlpha("FedAvg", upload=upload, seed=5, fraction_evaluate=0.0, **rules)
    found = rule.start(grid, initial_arrays(Net, digits.shape, 10, seed=5), num_rounds=2, timeout=0.2)
    return rule, found


def packed(name: str, make: Callable[[Any], Any], **fields: Any) -> Attack:
    """Another array in the record of the upload."""

    def attack(reply: Message) -> None:
        record = reply.content.array_records[UPLOAD]
        old = record[name]
        new = Array(make(old.numpy().copy()))
        about = {"dtype": new.dtype, "shape": tuple(new.shape), "stype": new.stype, "data": new.data}
        record[name] = Array(**{**about, **fields})

    return attack


def put(place: int, value: float) -> Callable[[Any], Any]:
    def change(array: Any) -> Any:
        array[place] = value
        return array

    return change


def in_model(name: str, value: Any) -> Attack:
    def attack(reply: Message) -> None:
        record = next(r for key, r in reply.content.array_records.items() if not key.startswith("fedalpha."))
        if value is None:
            del record[name]
        else:
            record[name] = Array(value)

    return attack


def without_upload(reply: Message) -> None:
    del reply.content[UPLOAD]


def renamed(reply: Message) -> None:
    record = reply.content.array_records[UPLOAD]
    reply.content[UPLOAD] = ArrayRecord({f"\x1b[2J{name}": array for name, array in record.items()})


def same(array: Any) -> Any:
    return array


QUANTISED: dict[str, tuple[Attack, str]] = {
    "no upload": (without_upload, "its update is not written as quantised"),
    "other names": (renamed, "its upload holds"),
    "a scale of NaN": (packed("scales", put(0, np.nan)), "a scale is negative or not finite"),
    "a scale below 0": (packed("scales", put(0, -1.0)), "a scale is negative or not finite"),
    "a scale of 3e38": (packed("scales", put(0, 3e38)), "at most 10000 is accepted"),
    "a code that there is not": (packed("codes", put(1, 0xFF)), "a code is 15; at most 14 is sent"),
    "too few codes": (
        packed("codes", lambda a: a[:-1]),
        r"expected \(749,\); its update is to be written as quantised",
    ),
    "2^40 codes announced": (packed("codes", same, shape=(2**40,)), "has shape"),
    "codes of 8 bytes": (packed("codes", lambda a: a.astype(np.int64)), "is int64, expected uint8"),
    "objects announced as codes": (packed("codes", same, dtype="object"), "is object, expected uint8"),
    "a header that lies": (
        packed("scales", same, data=b"\x93NUMPY\x01\x00" + b"\x10\x00" + b"{" * 60),
        "cannot be read",
    ),
    "another serialisation": (packed("scales", same, stype="pickle"), "is serialised as 'pickle'"),
    "a counter is missing": (in_model("body.1.num_batches_tracked", None), "arrays missing"),
    "an array that was not sent": (in_model("\x1b[2J", np.zeros(3)), "unknown"),
    "a buffer of another shape": (in_model("body.1.running_mean", np.zeros(9, np.float32)), "has shape"),
    "a buffer of NaN": (in_model("body.1.running_var", np.full(4, np.nan, np.float32)), "NaN"),
    "a parameter sent whole": (in_model("head.bias", np.zeros(10, np.float32)), "has shape"),
}
SPARSE: dict[str, tuple[Attack, str]] = {
    "a place beyond the end": (packed("places", put(-1, 2**31)), "increasing numbers below 1498"),
    "a place twice": (packed("places", lambda a: np.full_like(a, a[0])), "increasing numbers below 1498"),
    "places from the last to the first": (packed("places", lambda a: a[::-1].copy()), "increasing numbers below 1498"),
    "an infinite value": (packed("values", put(0, np.inf)), "a value is not finite"),
    "a value of 1e30": (packed("values", put(0, 1e30)), "at most 10000 is accepted"),
    "one value too many": (packed("values", lambda a: np.append(a, a[:1])), r"has shape \(16,\), expected \(15,\)"),
}
ATTACKS = {("quantised(bits=4)", k): v for k, v in QUANTISED.items()} | {
    ("sparse(share=0.01)", k): v for k, v in SPARSE.items()
}


@pytest.mark.parametrize(("upload", "name"), ATTACKS)
def test_a_hostile_client_costs_its_reply_alone(digits: Pooled, grid_of: Any, upload: str, name: str) -> None:
    attack, reason = ATTACKS[upload, name]

    def spoil(client: int, message: Message, reply: Message) -> Message:
        if message.metadata.message_type == "train" and client == HOSTILE:
            attack(reply)
        return reply

    rule, found = live(digits, grid_of, upload, spoil)
    for row in rule.rows[1:]:
        assert [refusal["client"] for refusal in row["refused"]] == [HOSTILE]
        assert pytest.approx(0) == row["alpha"][HOSTILE]
        assert row["kept"] is None
    assert re.search(reason, rule.rows[1]["refused"][0]["reason"])
    assert all(np.isfinite(value.numpy()).all() for value in found.arrays.values())


def test_a_client_may_send_more_arrays_whole_and_pays_for_them(digits: Pooled, grid_of: Any) -> None:
    """Which arrays are buffers is known on the client alone; the size of what is packed follows from what is not."""
    upload = fedalpha.upload.quantised(bits=8)

    def spoil(client: int, message: Message, reply: Message) -> Message:
        if message.metadata.message_type == "train":
            record = reply.content.array_records[UPLOAD]
            whole = next(r for key, r in reply.content.array_records.items() if not key.startswith("fedalpha."))
            sent = next(iter(message.content.array_records.values()))
            codes, scales = record["codes"].numpy(), record["scales"].numpy()
            values = upload.decode({"codes": codes, "scales": scales}, 1498)
            bias = sent["body.0.bias"].numpy() + values[:4]
            whole["body.0.bias"] = Array(bias.astype(np.float32))
            again = upload.encode(values[4:], np.random.default_rng(0))
            reply.content[UPLOAD] = ArrayRecord({key: Array(value) for key, value in again.items()})
        return reply

    plain, _ = live(digits, grid_of, "quantised")
    rule, found = live(digits, grid_of, "quantised", spoil)
    assert not rule.rows[1]["refused"]
    assert rule.rows[1]["bytes_up"] - plain.rows[1]["bytes_up"] == 5 * (4 * 4 - 4)
    assert all(np.isfinite(value.numpy()).all() for value in found.arrays.values())


def test_without_an_upload_nothing_is_told_and_nothing_more_is_sent(digits: Pooled, grid_of: Any) -> None:
    seen: list[set[str]] = []

    def spoil(client: int, message: Message, reply: Message) -> Message:
        config = next(iter(message.content.config_records.values()))
        seen.append(
            {key for key in config if key.startswith("fedalpha.")}
            | {n for n in reply.content if n.startswith("fedalpha.")}
        )
        return reply

    live(digits, grid_of, None, spoil)
    assert set().union(*seen) == set()


def test_a_packed_reply_is_smaller_on_the_wire(digits: Pooled, grid_of: Any) -> None:
    sizes: dict[str | None, int] = {}
    for upload in (None, "quantised(bits=4)", "feedback(sparse(share=0.01))"):

        def spoil(client: int, message: Message, reply: Message, upload: str | None = upload) -> Message:
            if message.metadata.message_type == "train":
                arrays = [
                    a for name, r in reply.content.array_records.items() if name != "fedalpha.state" for a in r.values()
                ]
                sizes[upload] = sum(len(array.data) for array in arrays)
            return reply

        live(digits, grid_of, upload, spoil)
    assert sizes["quantised(bits=4)"] < 0.5 * sizes[None]  # a small model: headers of 128 bytes are much of it
    assert sizes["feedback(sparse(share=0.01))"] < sizes["quantised(bits=4)"]


def test_clipping_on_the_client_is_refused_there(digits: Pooled, grid_of: Any) -> None:
    with pytest.raises(RuntimeError, match="no client has trained"):
        live(digits, grid_of, "quantised", app=lambda app: clipping(app, 1.0))


def test_clipping_on_the_server_works_on_what_was_read(digits: Pooled, grid_of: Any) -> None:
    rule, found = live(digits, grid_of, "quantised(bits=4)", combine="clip(mean, C=0.01)")
    first = to_parameters(initial_arrays(Net, digits.shape, 10, seed=5))
    moved = sum(
        float(((v - first[k]).double() ** 2).sum()) for k, v in to_parameters(found.arrays).items() if "1." not in k
    )
    assert not rule.rows[1]["refused"]
    assert 0 < moved**0.5 <= 2 * 0.01 * 1.01


def test_secure_sums_and_wrappers_are_refused(digits: Pooled) -> None:
    with pytest.raises(ValueError, match="adds masked words"):
        FedAlpha("FedAvg", upload="quantised", secure="masked")
    from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping as Wrapper

    rule = FedAlpha("FedAvg", upload="quantised")
    wrapper = Wrapper(rule, noise_multiplier=0.1, clipping_norm=1.0, num_sampled_clients=2)
    with pytest.raises(RuntimeError, match=r"upload = quantised needs FedAlpha\.start"):
        list(wrapper.configure_train(1, initial_arrays("softmax", digits.shape, 10), Any, Any))  # type: ignore[arg-type]


def test_a_server_reads_uploads_without_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from fedalpha.flower import FedAlpha\n"
        "print(FedAlpha('FedAvg', upload='feedback(sparse(share=0.1))').rules.algorithm.upload)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "feedback(sparse(share=0.1))", done.stderr
