"""Replies of Flower clients."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fuzzing.base import Target
from fuzzing.mutations import changed_bytes


class Replies(Target):
    """Replies of Flower clients: metrics and arrays."""

    name, share = "Flower replies", 12
    readers: ClassVar = {
        "flower/replies.py": (
            *("content_of", "metrics_of", "number", "client_id", "finite", "arrays_of", "_check_announced", "_opened"),
            *("_names", "_brief"),
        )
    }

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        from flwr.app import Array
        from flwr.supercore.task_identity import TaskIdentity

        from fedalpha.flower.replies import Rejected

        TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1  # what Flower sets in a server app
        type(self).errors = (Rejected,)
        self.sent = {"w": np.zeros((2, 3), np.float32), "b": np.zeros(3, np.float64)}
        self.arrays = {name: Array(value) for name, value in self.sent.items()}

    def make(self, draw: random.Random) -> Any:
        metrics = {"loss": 0.5, "num-examples": 10, "id": 3}
        if draw.random() < 0.05:
            del metrics[draw.choice(("loss", "num-examples", "id"))]
        for _ in range(draw.randrange(3)):
            extremes = (float("nan"), -1, 2**63 - 1, 1e308, 0.5, 2**53 + 1, [1, 2], [0.5] * 99)
            metrics[draw.choice(("loss", "num-examples", "id", "x\x1b"))] = draw.choice(extremes)  # type: ignore[assignment]
        arrays = {name: (a.dtype, list(a.shape), a.stype, a.data) for name, a in self.arrays.items()}
        for _ in range(draw.randrange(3)):
            name = draw.choice(("w", "b"))
            dtype, shape, stype, data = arrays.pop(
                name, arrays.get("w", next(iter(arrays.values()), ("", [], "", b"")))
            )
            match draw.randrange(6):
                case 0:
                    dtype = draw.choice(("float64", "object", "<U8", "int8", "\x1b", "f" * 9_000))
                case 1:
                    shape = draw.choice(([], [2, 3, 1], [-1], [10**9, 10**9], [6], [3]))
                case 2:
                    stype = draw.choice(("torch.Tensor", "", "\x1b"))
                case 3 | 4:
                    data = changed_bytes(data, draw)
                case 5:
                    name = draw.choice(("w", "b", "x", "y" * 9_000))
            arrays[name] = (dtype, shape, stype, data)
        return metrics, arrays, draw.randrange(20)

    def first(self, given: Any) -> bool:
        return set(given[1]) == set(self.sent)

    def read(self, given: Any) -> None:
        from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord, RecordDict

        from fedalpha.flower.replies import arrays_of, client_id, finite, metrics_of, number

        metrics, arrays, kind = given
        asked = Message(RecordDict({}), dst_node_id=1, message_type="train")
        asked.metadata.__dict__["_message_id"] = "m"
        if kind == 0:
            reply = Message(Error(1, "x\x1b" * 9_000), reply_to=asked)
        elif kind == 3:
            reply = None
        else:
            records: dict[str, Any] = {"metrics": MetricRecord(metrics)} if kind != 1 else {}
            if kind != 2:
                made = {n: Array(dtype=d, shape=tuple(s), stype=t, data=b) for n, (d, s, t, b) in arrays.items()}
                records["arrays"] = ArrayRecord(made)
            reply = Message(RecordDict(records), reply_to=asked)
        reply_metrics = metrics_of(reply)
        finite(reply_metrics, "loss")
        number(reply_metrics, "num-examples", whole=True)
        client_id(reply_metrics, "id")
        found = arrays_of(reply, self.sent)
        assert all(np.isfinite(value).all() for value in found.values())


class Uploads(Target):
    """Replies of Flower clients whose updates are compressed."""

    name, share = "compressed uploads", 12
    readers: ClassVar = {
        "flower/replies.py": ("uploaded_of", "_model_of", "_all_opened"),
        "upload/bfloat.py": ("bfloat16.decode",),
        "upload/sparse.py": ("sparse.decode", "sparse._as_bits", "sparse.forms"),
        "upload/quantised.py": ("quantised.decode", "quantised._pieces", "_unpacked"),
    }
    texts = ("quantised(block=4)", "quantised(bits=2)", "sparse(share=0.02)", "feedback(sparse(share=0.5))", "bfloat16")

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        from flwr.app import Array
        from flwr.supercore.task_identity import TaskIdentity

        from fedalpha.flower.replies import Rejected
        from fedalpha.upload import UPLOADS

        TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
        type(self).errors = (Rejected,)
        self.sent = {"w": np.ones((9, 11), np.float32), "b": np.ones(3, np.float64), "count": np.array(7)}
        self.whole = {"count": Array(self.sent["count"])}
        self.uploads = [UPLOADS.parse(text) for text in self.texts]
        values = np.linspace(-1, 1, 102, dtype=np.float32)
        self.packed = [upload.encode(values, np.random.default_rng(0)) for upload in self.uploads]

    def make(self, draw: random.Random) -> Any:
        from flwr.app import Array

        which = draw.randrange(len(self.uploads))
        written = {name: value.copy() for name, value in self.packed[which].items()}
        for _ in range(draw.randrange(3)):
            value = written[draw.choice(list(written))]
            extremes = (
                (0, 1, 101, 102, 127, 255) if value.dtype.kind == "u" else (np.nan, np.inf, -1.0, 3e38, 0.0, -0.0)
            )
            value[draw.randrange(len(value))] = draw.choice(extremes)
        arrays = {name: (str(v.dtype), list(v.shape), Array(v).data) for name, v in written.items()}
        if draw.random() < 0.2:
            name = draw.choice(list(arrays))
            dtype, shape, data = arrays.pop(name)
            data = changed_bytes(data, draw) if draw.random() < 0.5 else data
            arrays[draw.choice((name, name, "x" * 9_000, "\x1b"))] = draw.choice(
                [(dtype, shape, data), ("float32", shape, data), (dtype, [10**9, 10**9], data), (dtype, [0], b"")]
            )
        return which, arrays, draw.choice(("count", "count", "count", "", "w", "x\x1b")), draw.random() < 0.02

    def first(self, given: Any) -> bool:
        which, arrays, whole, absent = given
        return arrays.keys() == self.packed[which].keys() and whole in ("count", "w") and not absent

    def read(self, given: Any) -> None:
        from flwr.app import Array, ArrayRecord, Message, RecordDict

        from fedalpha.flower.names import UPLOAD
        from fedalpha.flower.replies import uploaded_of

        which, arrays, whole, absent = given
        asked = Message(RecordDict({}), dst_node_id=1, message_type="train")
        asked.metadata.__dict__["_message_id"] = "m"
        kept = dict(self.whole) if whole else {}
        if whole and whole != "count":
            kept[whole] = Array(self.sent["w"])
        made = {n: Array(dtype=d, shape=tuple(s), stype="numpy.ndarray", data=b) for n, (d, s, b) in arrays.items()}
        records = {"arrays": ArrayRecord(kept)} | ({} if absent else {UPLOAD: ArrayRecord(made)})
        found, _ = uploaded_of(Message(RecordDict(records), reply_to=asked), self.sent, self.uploads[which])
        assert found.keys() == self.sent.keys()
        assert all(np.isfinite(value).all() for value in found.values())
