"""Data sets in MNIST's format: four idx files with pictures and labels."""

from __future__ import annotations

import math
from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from fedalpha.data.fetching import Files
from fedalpha.data.sets.base import Partitioned, Samples
from fedalpha.text import shown

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


class IdxPictures(Partitioned):
    """Grey pictures of 28×28 pixels, 60,000 to train and 10,000 to test, in `FILES`."""

    shape = (1, 28, 28)
    samples = (60_000, 10_000)
    scale = 255.0
    megabytes = 55.0
    model = "cnn"

    @property
    @abstractmethod
    def files(self) -> Files: ...

    def load(self) -> Samples:
        train_x, train_y, test_x, test_y = (parse_idx(content) for content in self.files.obtain().values())
        return Samples(train_x[:, None], train_y.astype(np.int64), test_x[:, None], test_y.astype(np.int64))


def parse_idx(content: bytes) -> NDArray[np.uint8]:
    """An idx file of bytes: two zeros, the type 8, the number of dimensions, the dimensions, the values.

    >>> parse_idx(bytes([0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 2, 7, 9]))
    array([[7, 9]], dtype=uint8)
    """
    if len(content) < 4 or content[:3] != b"\0\0\x08" or len(content) < 4 + 4 * content[3]:
        raise ValueError("it is not an idx file of bytes; fetch the data set again")
    start = 4 + 4 * content[3]
    shape = tuple(np.frombuffer(content[4:start], ">u4").tolist())
    if len(shape) > 4 or math.prod(shape) != len(content) - start:
        raise ValueError(f"an idx file announces {shown(shape)} values and has {len(content) - start} bytes")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy()
