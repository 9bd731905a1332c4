"""The interface of uploads. It needs only NumPy: the server of a live federation decodes them without torch.

A client encodes x = w_i − w_t, the difference between its model and the model that it received. x is one float32
vector of all trained parameters, sorted by their names. The server decodes x and adds it to w_t. Buffers, integers
and the extras of a client update are sent without encoding.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedalpha.strategies.plug_point import AnyAlgorithm, PlugPoint
from fedalpha.text import Registry, Spelled

Vector = NDArray[np.float32]
Packed = dict[str, NDArray[Any]]
"""The encoded form of a vector: flat arrays by name."""


class Upload(Spelled, PlugPoint, ABC):
    """The *upload* plug point: encode a float32 vector as a few small arrays, and decode it.

    ``encode`` and ``decode`` are pure. The lengths and dtypes of the arrays follow from the length of the vector
    alone, so that a server can check a reply before it makes an array of it.
    """

    remembers: ClassVar[bool] = False
    """Whether a client adds the error of its last upload to its update; the error is part of its state."""

    @property
    def unbiased(self) -> bool:
        """Whether the mean of ``decode(encode(x, rng))`` over the draws of ``rng`` is x, up to float32's rounding."""
        return False

    @abstractmethod
    def forms(self, size: int) -> dict[str, tuple[np.dtype[Any], int]]:
        """The dtype and the length of every array that a vector of ``size`` values is sent as."""

    @abstractmethod
    def encode(self, values: Vector, rng: np.random.Generator) -> Packed:
        """The arrays of a vector of finite values."""

    @abstractmethod
    def decode(self, packed: Packed, size: int) -> Vector:
        """The vector in arrays that have the right `forms`; raises ValueError for values that `encode` never gives."""

    def nbytes(self, size: int) -> int:
        """The bytes in which a vector of ``size`` values is sent.

        >>> UPLOADS.parse("quantised(bits=8)").nbytes(1024)
        1032
        """
        return sum(dtype.itemsize * length for dtype, length in self.forms(size).values())

    def check(self, algorithm: AnyAlgorithm) -> None:
        if (secure := getattr(algorithm, "secure", None)) is not None:
            raise ValueError(
                f"upload = {self}: secure = {secure} adds masked words of all clients, which must be written alike; "
                "leave one of them out (masked(bits=16) sends half of the bytes)"
            )


UPLOADS: Registry[Upload] = Registry("upload", Upload, package=__package__)  # type: ignore[type-abstract]


def difference(model: Mapping[str, NDArray[Any]], sent: Mapping[str, NDArray[Any]]) -> Vector:
    """w_i − w_t over the arrays of ``model``, sorted by name, as float32. A difference beyond float32 is infinite.

    >>> difference({"b": np.ones(1), "a": np.array([[2.0], [3.0]])}, {"a": np.ones((2, 1)), "b": np.ones(1)})
    array([1., 2., 0.], dtype=float32)
    """
    found = np.empty(sum(value.size for value in model.values()), np.float32)
    start = 0
    with np.errstate(over="ignore", invalid="ignore"):
        for name in sorted(model):
            part = found[start : start + model[name].size]
            part[:] = (model[name].astype(np.float64) - sent[name].astype(np.float64)).reshape(-1)
            start += len(part)
    return found


def added(values: Vector, sent: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """w_t + x over the arrays of ``sent``, sorted by name, each in its dtype.

    >>> added(np.array([1, 2, 0], np.float32), {"a": np.ones((2, 1)), "b": np.ones(1)})["a"].tolist()
    [[2.0], [3.0]]
    """
    found: dict[str, NDArray[Any]] = {}
    start = 0
    for name in sorted(sent):
        old = sent[name]
        total = old.astype(np.float64)
        total += values[start : start + old.size].reshape(old.shape)
        found[name] = total.astype(old.dtype)
        start += old.size
    return found


def check_finite(owner: str, values: Vector) -> None:
    if not np.isfinite(values).all():
        raise ValueError(f"{owner}: the update is not finite, so it cannot be sent; use a smaller learning rate")
