"""One of five clients is hostile: no reply of its ends the run, ruins the model or reaches the terminal as it is."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict

from fedalpha import Evaluate
from fedalpha.flower import FedAlpha
from fedalpha.flower.replies import Rejected
from fedalpha.flower.reports import Wanted
from flower.test_strategy import logged, quadratic, start_arrays

__all__ = ["logged"]
HOSTILE = 3
Attack = Callable[[Message, Message], Message | None]


def told(**metrics: Any) -> Attack:
    """Other metrics; ``_`` in a name stands for ``-`` where Flower has that."""

    def attack(message: Message, reply: Message) -> Message:
        dashes = {"num_examples": "num-examples", "client_id": "client-id"}
        reply.content["metrics"].update({dashes.get(k, k): v for k, v in metrics.items()})
        return reply

    return attack


def sent(change: Callable[[Array], Array]) -> Attack:
    """Another array in training replies."""

    def attack(message: Message, reply: Message) -> Message:
        for record in reply.content.array_records.values():
            record["w"] = change(record["w"])
        return reply

    return attack


def as_(**fields: Any) -> Attack:
    def change(old: Array) -> Array:
        like = {"dtype": old.dtype, "shape": tuple(old.shape), "stype": old.stype, "data": old.data}
        return Array(**{**like, **fields})

    return sent(change)


def with_record(name: str, record: Any) -> Attack:
    def attack(message: Message, reply: Message) -> Message:
        reply.content[name] = record
        return reply

    return attack


def state(array: Array) -> Attack:
    """A client's state that nobody asked for."""

    def attack(message: Message, reply: Message) -> Message:
        reply.content["fedalpha.told"] = ConfigRecord({"tree": "[]"})
        reply.content["fedalpha.state"] = ArrayRecord({"\x1b[2J" + "a" * 1000: array})
        return reply

    return attack


def headed(header: str) -> Array:
    """An array whose header says this, without values."""
    text = f"{header:<117}\n".encode()
    return Array("float32", (4,), "numpy.ndarray", b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)


def npy(value: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, value, allow_pickle=True)
    return file.getvalue()


def many(message: Message, reply: Message) -> Message:
    arrays = {f"\x1b[2J{i}": Array(np.zeros(1, dtype=np.float32)) for i in range(2000)}
    content = RecordDict({"arrays": ArrayRecord(arrays), "metrics": MetricRecord({"num-examples": 1})})
    return Message(content, reply_to=message)


OBJECTS = npy(np.array([print] * 4, dtype=object))
ATTACKS: dict[str, Attack] = {
    "size 1e18": told(num_examples=10**18),
    "size 2^63 - 1": told(num_examples=2**63 - 1),
    "size NaN": told(num_examples=float("nan")),
    "size -1": told(num_examples=-1),
    "a list as size": told(num_examples=[1, 2]),
    "loss 1e308": told(loss=1e308, train_loss=1e308),
    "loss -inf": told(loss=float("-inf"), train_loss=float("-inf")),
    "a list as loss": told(loss=[1.0], train_loss=[1.0]),
    "id 1e308": told(client_id=1e308),
    "id 2^63 - 1": told(client_id=2**63 - 1),
    "another client's id": told(client_id=0),
    "accuracy 1e308": told(accuracy=1e308),
    "steps 1e300": told(steps=1e300),
    "names for a terminal": told(**{"\x1b[31mx": 1.0, "a" * 100_000: 2.0}),
    "no metrics": lambda message, reply: Message(RecordDict({}), reply_to=message),
    "two records of metrics": with_record("more", MetricRecord({"a": 1})),
    "a state that nobody asked for": with_record("fedalpha.told", ConfigRecord({"tree": "[" * 1_000_000})),
    "a state that cannot be read": state(Array("float32", (4,), "numpy.ndarray", b"x" * 200)),
    "a state that its node is said to keep": with_record("fedalpha.told", ConfigRecord({})),
    "a state of 4 TB": state(headed("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,)}")),
    "a state of a negative shape": state(headed("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 0)}")),
    "a state of texts": state(Array("<U4", (4,), "numpy.ndarray", npy(np.array(["abcd"] * 4)))),
    "a state of objects": state(Array("object", (4,), "numpy.ndarray", OBJECTS)),
    "a state in another serialisation": state(Array("float32", (4,), "torch.pickle", b"x")),
    "a state larger than 32 models": state(Array(np.zeros(600_000))),
    "extras that nobody asked for": with_record("fedalpha.extras", ArrayRecord({"x": Array(np.zeros(9))})),
    "an error for a terminal": lambda message, reply: Message(
        Error(code=2, reason="\x1b]0;owned\x07" + "x" * 10**6), reply_to=message
    ),
    "an error without reason": lambda message, reply: Message(Error(code=2, reason=""), reply_to=message),
    "no reply": lambda message, reply: None,
    "values of 3e38": as_(data=npy(np.full(4, 3e38, dtype=np.float32))),
    "a shape of 1e12": as_(shape=(10**12,)),
    "a shape of -1": as_(shape=(-1,)),
    "objects": as_(dtype="object", data=OBJECTS),
    "objects under a good dtype": as_(data=OBJECTS),
    "a header of 2 GB": as_(data=b"\x93NUMPY\x02\x00" + (2**31).to_bytes(4, "little") + b"{" * 200),
    "a nested header": as_(data=b"\x93NUMPY\x01\x00" + (9000).to_bytes(2, "little") + b"(" * 9000 + b"\0" * 16),
    "no data": as_(data=b""),
    "another serialisation": as_(stype="\x1b[31m" * 10**5),
    "other names": many,
}


EVERYWHERE = [name for name in ATTACKS if not ATTACKS[name].__qualname__.startswith(("sent", "many"))]
"""Attacks on answers to queries and evaluations, too."""


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_hostile_client_is_refused_or_bounded(grid_of: Any, logged: Any, attack: str) -> None:
    for text, rules in (
        ("FedSoftWorse(T=2)", {"evaluate": Evaluate(shadow=["FedAvg"])}),
        (
            "FedAvg",
            {"losses": "evaluate", "fraction_evaluate": 1.0, "evaluate": Evaluate(shadow=["FedSoftWorse(T=2)"])},
        ),
        ("FedSoftWorse(T=2, loss=train)", {"combine": "median"}),
    ):
        grid = grid_of(quadratic(), range(5))

        def spoil(node: int, message: Message, reply: Message, grid: Any = grid) -> Message | None:
            spoils = grid.client(node) == HOSTILE and (message.metadata.message_type == "train" or attack in EVERYWHERE)
            return ATTACKS[attack](message, reply) if spoils else reply

        grid.spoil = spoil
        rule = FedAlpha(text, **{"fraction_evaluate": 0.0, "query_timeout": 0.05, "wait_for_nodes": 1.0, **rules})
        found = rule.start(grid, start_arrays(), num_rounds=2, timeout=0.05).arrays["w"].numpy()
        assert np.abs(found).max() < 100
        assert {0, 1, 2, 4} <= set(rule.rows[2]["cohort"])
    assert "\x1b[2J" not in logged.text
    assert "\x1b]0" not in logged.text
    assert max(map(len, logged.text.splitlines())) < 2000


def test_a_refusal_is_short_whatever_names_the_reply_has() -> None:
    """Reasons are in the rows and in the log."""
    record = ArrayRecord({"x\x1b" * 100_000: Array(np.zeros(1))})
    with pytest.raises(Rejected, match="extras differ") as error:
        Wanted("num-examples", {}, frozenset(), {"w": np.zeros(1)})._extras(record)
    assert len(str(error.value)) <= 2_000
    assert "\x1b" not in str(error.value)
