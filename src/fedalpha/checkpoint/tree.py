"""A tree of arrays, tensors and JSON scalars as JSON text and named tensors.

Nothing that is read back can run code. Tuples, integer keys, NumPy scalars and non-finite floats
come back as what they were.

>>> import numpy as np
>>> text, tensors = pack({"seen": np.arange(3), 7: (1.5, None)})
>>> unpack(text, tensors)
{'seen': array([0, 1, 2]), 7: (1.5, None)}
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor


def pack(tree: Any) -> tuple[str, dict[str, Tensor]]:
    """JSON text that refers to tensors by name; a value of another kind is a TypeError that says where it is."""
    import torch

    tensors: dict[str, Tensor] = {}

    def keep(value: Tensor) -> str:
        name = f"{len(tensors):06d}"
        # A copy: safetensors refuses tensors that share memory, and the state must not.
        tensors[name] = value.detach().to("cpu", copy=True).contiguous()
        return name

    def encode(value: Any, where: str) -> Any:
        match value:
            case None | bool() | str():
                return value
            case torch.Tensor():
                return {"tensor": keep(value)}
            case np.ndarray() | np.generic():
                if value.dtype.kind not in "biuf":
                    raise TypeError(f"{where} is an array of {value.dtype}; a state holds numbers only")
                kind = "array" if isinstance(value, np.ndarray) else "scalar"
                return {kind: keep(torch.from_numpy(np.array(value, order="C")))}
            case int():
                return value
            case float():
                return value if math.isfinite(value) else {"float": repr(value)}
            case Mapping():
                return {"map": [[encode(k, where), encode(v, f"{where}[{k!r}]")] for k, v in value.items()]}
            case list():
                return {"list": [encode(v, f"{where}[{i}]") for i, v in enumerate(value)]}
            case tuple():
                return {"tuple": [encode(v, f"{where}[{i}]") for i, v in enumerate(value)]}
        raise TypeError(
            f"{where} is a {type(value).__name__}; a state is a tree of arrays, tensors and JSON scalars, "
            "so that it can be saved without pickling"
        )

    return json.dumps(encode(tree, "state"), allow_nan=False), tensors


def unpack(text: str, tensors: Mapping[str, Tensor]) -> Any:
    """The tree that `pack` was given."""

    def decode(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        ((kind, content),) = value.items()
        match kind:
            case "tensor":
                return tensors[content]
            case "array":
                return tensors[content].numpy()
            case "scalar":
                return tensors[content].numpy()[()]
            case "float":
                return float(content)
            case "map":
                return {decode(k): decode(v) for k, v in content}
            case "list":
                return [decode(v) for v in content]
            case "tuple":
                return tuple(decode(v) for v in content)
        raise ValueError(f"unknown kind of value {kind!r}")

    return decode(json.loads(text))
