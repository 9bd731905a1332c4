"""Data sets by name: ``digits`` (embedded), ``mnist`` and ``fashion-mnist`` (see fetching.py)."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedalpha.data.fetching import cache_folder, obtain, whereabouts
from fedalpha.data.synthetic import MADE
from fedalpha.text import nearest

CLASS_NAMES: dict[str, tuple[str, ...]] = {
    "digits": tuple("0123456789"),
    "mnist": tuple("0123456789"),
    "fashion-mnist": (
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ),
}


@dataclass(frozen=True, eq=False)
class Source:
    """A data set as it was published: images (n, channels, height, width), integer labels.

    ``scale`` is the pixel value that maps to 1.0.
    """

    name: str
    train_x: NDArray[np.uint8]
    train_y: NDArray[np.int64]
    test_x: NDArray[np.uint8]
    test_y: NDArray[np.int64]
    scale: float
    class_names: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """A line of ``fedalpha data list``; ``origin`` is where the data is, or would come from."""

    name: str
    train: int
    test: int
    shape: tuple[int, ...]
    classes: int
    cached: bool
    origin: str
    megabytes: float


def load(name: str) -> Source:
    """The data set called ``name``, fetched first if need be.

    >>> digits = load("digits")
    >>> digits.train_x.shape, digits.test_x.shape, digits.scale
    ((1438, 1, 8, 8), (359, 1, 8, 8), 16.0)
    """
    _check(name)
    if name == "digits":
        return _digits()
    train_x, train_y, test_x, test_y = (_parse_idx(content) for content in obtain(name).values())
    return Source(
        name,
        train_x[:, None],
        train_y.astype(np.int64),
        test_x[:, None],
        test_y.astype(np.int64),
        255.0,
        CLASS_NAMES[name],
    )


def fetch(name: str) -> Path:
    """Make sure that the data set is on this machine, intact; where it is."""
    _check(name)
    if name == "digits":
        return _digits_file()
    obtain(name)
    return cache_folder(name)


def catalogue() -> list[Row]:
    """What can be loaded, and where it is or would come from.

    >>> [row.name for row in catalogue()]
    ['digits', 'mnist', 'fashion-mnist']
    """
    rows = [Row("digits", 1438, 359, (1, 8, 8), 10, True, "embedded", 0.1)]
    return rows + [
        Row(name, 60_000, 10_000, (1, 28, 28), 10, *whereabouts(name), 55.0) for name in CLASS_NAMES if name != "digits"
    ]


def check_dataset(name: str) -> None:
    """Refuse a data set that there is not, also among those that are made, such as ``synthetic(a=1, b=1)``."""
    if name.partition("(")[0] in MADE:
        MADE.parse(name)
    else:
        _check(name)


def _check(name: str) -> None:
    if name not in CLASS_NAMES:
        raise ValueError(f"unknown data set {name!r}; {nearest(str(name), CLASS_NAMES)}")


def _digits_file() -> Path:
    """The file in scikit-learn's package, found without importing it, which takes longer than a round."""
    package = importlib.util.find_spec("sklearn")
    for folder in (package and package.submodule_search_locations) or ():
        if (file := Path(folder) / "datasets" / "data" / "digits.csv.gz").is_file():
            return file
    raise FileNotFoundError("scikit-learn's digits are not there; pip install --force-reinstall scikit-learn")


def _digits() -> Source:
    """scikit-learn's digits; every fifth sample of the label-sorted set is the test part: fixed and stratified."""
    table = np.loadtxt(_digits_file(), delimiter=",", dtype=np.uint8)
    x, y = table[:, :-1].reshape(-1, 1, 8, 8), table[:, -1].astype(np.int64)
    test = np.zeros(len(y), dtype=bool)
    test[np.argsort(y, kind="stable")[2::5]] = True
    return Source("digits", x[~test], y[~test], x[test], y[test], 16.0, CLASS_NAMES["digits"])


def _parse_idx(content: bytes) -> NDArray[np.uint8]:
    """An idx file of bytes: two zeros, the type 8, the number of dimensions, the dimensions, the values."""
    dimensions = content[3]
    shape = np.frombuffer(content, ">u4", dimensions, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape).copy()
