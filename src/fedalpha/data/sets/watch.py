"""Exercises that people did with a smartwatch on: a federation of people."""

from __future__ import annotations

import codecs
import io
import pickle
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedalpha.data.archives import Pip
from fedalpha.data.fetching import Files
from fedalpha.data.sets.base import DATASETS, Natural, Samples

_FILE = "watch_dataset.npy"
_DIGEST = "eb122f23cdf06ef6bd6c6c5312958ec5cf9d038e2e6d457b8081662c75a42537"
_SHA256 = "ec6b952c85c9627050102854b372d85951563d3b990df677d7c55547e87413dd"
_FILES = Files("watch", {_FILE: _DIGEST}, (Pip("seglearn==1.2.5", _SHA256, "seglearn/data"),))
_CHANNELS = 6


@DATASETS.register(
    formula="x: 6 channels (acceleration, rotation) of ``length`` readings at 50 Hz, y: the exercise",
    reference="Burns et al., Shoulder physiotherapy exercise recognition, 2018, 1802.01489",
    examples=("watch", "watch(length=50)"),
)
class watch(Natural):
    """Seven shoulder exercises of ten people, each done with the left and with the right arm; a client is an arm.

    A recording (one exercise, one arm) is cut into windows of ``length`` readings, 2 seconds by default. The last
    fifth of each recording is in the client's test part, so that a test window never overlaps a training window.
    """

    length: int = 100

    class_names = ("PEN", "ABD", "FEL", "IR", "ER", "TRAP", "ROW")
    classes = 7
    population = 20
    megabytes = 18.1
    model = "mlp"
    files = _FILES

    def __post_init__(self) -> None:
        if isinstance(self.length, bool) or not isinstance(self.length, int) or not 2 <= self.length <= 200:
            raise ValueError(f"watch: length = {self.length!r}; give a number of readings from 2 to 200")

    @property
    def shape(self) -> tuple[int, ...]:
        return (_CHANNELS, self.length)

    def make(self, clients: int, seed: int) -> list[Samples]:
        series, exercise, person, side = _recordings()
        who = sorted(set(zip(person.tolist(), side.tolist(), strict=True)))
        names = [f"person {one}, {'right' if right else 'left'} arm" for one, right in who]
        found = []
        for i in self.choose(names, clients, seed):
            mine = np.flatnonzero((person == who[i][0]) & (side == who[i][1]))
            parts = [self._windows(series[k], int(exercise[k])) for k in mine.tolist()]
            x, y, test_x, test_y = (np.concatenate(some) for some in zip(*parts, strict=True))
            found.append(Samples(x, y, test_x, test_y, names[i]))
        return found

    def _windows(self, series: NDArray[np.float32], label: int) -> tuple[NDArray[Any], ...]:
        """Training windows and their labels, test windows and theirs."""
        count = len(series) // self.length
        x = series[: count * self.length].reshape(count, self.length, _CHANNELS).transpose(0, 2, 1)
        train = count - max(1, round(count / 5))
        y = np.full(count, label, dtype=np.int64)
        return x[:train], y[:train], x[train:], y[train:]


@lru_cache(maxsize=1)
def _recordings() -> tuple[list[NDArray[np.float32]], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The recordings, standardised per channel over all of them; their exercises, people and sides."""
    content = io.BytesIO(_FILES.obtain()[_FILE])
    np.lib.format.read_magic(content)
    np.lib.format.read_array_header_1_0(content)
    found = _Arrays(content).load().item()
    everything = np.concatenate(found["X"])
    mean, deviation = everything.mean(axis=0), everything.std(axis=0)
    series = [((one - mean) / deviation).astype(np.float32) for one in found["X"]]
    return series, found["y"], found["subject"], found["side"]


class _Arrays(pickle.Unpickler):
    """Reads pickled arrays and nothing else: no name outside this table is looked up, so no code of the file runs."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, encoding="latin1")

    def find_class(self, module: str, name: str) -> Any:
        known = {
            ("numpy.core.multiarray", "_reconstruct"): _empty,
            ("numpy", "ndarray"): np.ndarray,
            ("numpy", "dtype"): np.dtype,
            ("_codecs", "encode"): codecs.encode,
        }
        if (module, name) not in known:
            raise pickle.UnpicklingError(f"{module}.{name} is not part of an array")
        return known[module, name]


def _empty(kind: type, shape: tuple[int, ...], dtype: object) -> NDArray[Any]:
    """An array whose content follows in the file."""
    return np.ndarray.__new__(np.ndarray, shape, "b")
