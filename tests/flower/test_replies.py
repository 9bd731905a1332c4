"""Replies are refused by what they announce and by their headers, before an array is made."""

from __future__ import annotations

import tracemalloc
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from fedalpha.flower.replies import Rejected, arrays_of, content_of, finite, number

SENT = {"w": np.zeros((3, 4), dtype=np.float32), "n": np.zeros((), dtype=np.int64)}


def saved(value: np.ndarray) -> bytes:
    buffer = BytesIO()
    np.save(buffer, value, allow_pickle=False)
    return buffer.getvalue()


def reply(**arrays: Array) -> Message:
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
    record = ArrayRecord({name: Array(value) for name, value in SENT.items()} | arrays)
    return Message(RecordDict({"arrays": record}), dst_node_id=1, message_type="train")


def test_good_arrays_are_views_of_the_reply() -> None:
    value = np.arange(12, dtype=np.float32).reshape(3, 4)
    for layout in (value, np.asfortranarray(value)):
        message = reply(w=Array(layout))
        found = arrays_of(message, SENT)
        np.testing.assert_array_equal(found["w"], value)
        assert found["w"].dtype == np.float32
        data = np.frombuffer(message.content["arrays"]["w"].data, dtype=np.uint8)
        assert np.shares_memory(found["w"], data)
    assert found["n"].shape == ()


def announced(shape: tuple[int, ...], dtype: str, data: bytes, stype: str = "numpy.ndarray") -> Array:
    return Array(dtype, shape, stype, data)


HUGE = np.broadcast_to(np.float32(0), (5_000, 5_000))
GOOD = saved(SENT["w"])
BAD: dict[str, tuple[Array, str]] = {
    "announced shape": (announced((5_000, 5_000), "float32", GOOD), r"shape \(5000, 5000\), expected \(3, 4\)"),
    "announced dtype": (announced((3, 4), "float64", GOOD), "is float64, expected float32"),
    "longer data": (announced((3, 4), "float32", GOOD + b"\0" * 50_000), "bytes, expected 48 and a header"),
    "some more data": (announced((3, 4), "float32", GOOD + b"\0"), "49 bytes"),
    "less data": (announced((3, 4), "float32", GOOD[:-1]), "47 bytes"),
    "no data": (announced((3, 4), "float32", b""), "0 bytes, expected 48"),
    "other header": (
        announced((3, 4), "float32", saved(np.zeros((4, 3), dtype=np.float32))),
        r"holds float32 \(4, 3\)",
    ),
    "header of a giant": (announced((3, 4), "float32", GOOD.replace(b"(3, 4)", b"(9**9)")), "cannot be read"),
    "header of objects": (announced((3, 4), "float32", GOOD.replace(b"'<f4'", b"'|O' ")), "holds object"),
    "other byte order": (announced((3, 4), "float32", saved(SENT["w"].astype(">f4"))), "holds >f4"),
    "no header": (announced((3, 4), "float32", b"x" * 128), "cannot be read"),
    "other format": (announced((3, 4), "float32", GOOD, "torch.pickle"), "serialised as 'torch.pickle'"),
    "NaN": (Array(np.full((3, 4), np.nan, dtype=np.float32)), "NaN or infinity"),
}


@pytest.mark.parametrize("fault", BAD)
def test_what_was_not_sent_is_refused(fault: str) -> None:
    array, reason = BAD[fault]
    with pytest.raises(Rejected, match=reason):
        arrays_of(reply(w=array), SENT)


@pytest.mark.parametrize("shape", [(5_000, 5_000), (3, 4)])
def test_a_giant_is_refused_without_memory(shape: tuple[int, int]) -> None:
    """Whether or not it announces its true shape: 100 MB are refused with less than 1 MB of new memory."""
    message = reply(w=announced(shape, "float32", saved(HUGE)))
    tracemalloc.start()
    try:
        with pytest.raises(Rejected, match=r"shape|bytes"):
            arrays_of(message, SENT)
        assert tracemalloc.get_traced_memory()[1] < 1e6
    finally:
        tracemalloc.stop()


def test_reasons_stay_short() -> None:
    names = {f"layer{i}" * 100: Array(np.zeros(1)) for i in range(1_000)}
    with pytest.raises(Rejected) as refusal:
        arrays_of(reply(**names), SENT)
    assert len(str(refusal.value)) < 1_000
    with pytest.raises(Rejected, match="error 0: x") as refusal:
        content_of(Message(Error(code=0, reason="x" * 10_000_000), reply_to=reply()))
    assert len(str(refusal.value)) < 2_000


@pytest.mark.parametrize("value", [1e308, 10**400, -1, float("nan"), True, 2**53 + 2, [1]])
def test_sizes_are_bounded(value: Any) -> None:
    with pytest.raises(Rejected, match="size = "):
        number({"size": value}, "size")


def test_numbers_are_read() -> None:
    metrics = MetricRecord({"a": 3, "b": 2.5})
    assert (number(metrics, "a", whole=True), number(metrics, "b"), finite(metrics, "b")) == (3, 2.5, 2.5)
    with pytest.raises(Rejected, match="whole number"):
        number(metrics, "b", whole=True)
    with pytest.raises(Rejected, match=r"no metric 'c' among \['a', 'b'\]"):
        finite(metrics, "c")
