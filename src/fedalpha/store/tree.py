"""A tree of arrays, tensors and JSON scalars as JSON text and named NumPy arrays.

Nothing that is read back can run code. Tuples, integer keys, NumPy scalars and non-finite floats come back as
what they were, and so do torch tensors, where torch is used; bfloat16 and float8, which NumPy does not have, are
stored as integers of the same bits.

>>> text, arrays = pack({"seen": np.arange(3), 7: (1.5, None)})
>>> unpack(text, arrays)
{'seen': array([0, 1, 2]), 7: (1.5, None)}
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor


def pack(tree: Any) -> tuple[str, dict[str, NDArray[Any]]]:
    """JSON text that refers to arrays by name. Raises TypeError, with its place, for a value of another kind.

    The arrays share their memory with the tree where they can.
    """
    arrays: dict[str, NDArray[Any]] = {}
    torch = sys.modules.get("torch")  # without it no value can be a tensor

    def keep(value: NDArray[Any] | np.generic, where: str) -> str:
        if value.dtype.kind not in "biuf" or value.dtype.itemsize > 8:
            raise TypeError(f"{where} is an array of {value.dtype}; a state holds numbers only")
        name = f"{len(arrays):06d}"
        arrays[name] = np.asarray(value, dtype=value.dtype.newbyteorder("="), order="C")
        return name

    def encode(value: Any, where: str) -> Any:
        match value:
            case None | bool() | str():
                return value
            case np.ndarray():
                return {"array": keep(value, where)}
            case np.generic():
                return {"scalar": keep(value, where)}
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
        if torch is not None and isinstance(value, torch.Tensor):
            return {"tensor": [keep(_array(value), where), str(value.dtype).removeprefix("torch.")]}
        raise TypeError(
            f"{where} is a {type(value).__name__}; a state is a tree of arrays, tensors and JSON scalars, "
            "so that it can be saved without pickling"
        )

    return json.dumps(encode(tree, "state"), allow_nan=False), arrays


def unpack(text: str, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """The tree that `pack` was given.

    Every array is named once, as `pack` does: a small file must not stand for many copies of a large array.
    """
    left = dict(arrays)

    def decode(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        ((kind, content),) = value.items()
        match kind:
            case "tensor":
                return _tensor(left.pop(content[0]), content[1])
            case "array":
                return left.pop(content)
            case "scalar":
                return left.pop(content)[()]
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


def _array(tensor: Tensor) -> NDArray[Any]:
    """The numbers of a tensor, not copied where it is dense and in main memory."""
    import torch

    found = tensor.detach().cpu().contiguous()
    if found.is_floating_point() and found.dtype not in (torch.float16, torch.float32, torch.float64):
        found = found.view(torch.int16 if found.element_size() == 2 else torch.uint8)
    array: NDArray[Any] = found.numpy()
    return array


def _tensor(array: NDArray[Any], dtype: str) -> Tensor:
    import torch

    kind = getattr(torch, dtype)
    if not isinstance(kind, torch.dtype):
        raise ValueError(f"{dtype} is not a dtype")
    return torch.from_numpy(array).view(kind)
