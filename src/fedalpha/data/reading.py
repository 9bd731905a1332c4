"""Samples in the forms that users have them in, read into tensors: pairs, rows of a ``Dataset``, columns by name."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedalpha.data.federations import Examples

Raw = tuple[Tensor, Tensor | NDArray[Any]]
"""Samples and targets; the targets are an array where they are words, which are numbered when all are known."""

_TARGETS = ("label", "labels", "target", "targets", "y", "class", "fine_label")
_LOOKED_AT_TWICE = 16


@dataclass(frozen=True)
class Reader:
    """Reads samples; ``fields`` names the fields of x and y where rows are mappings (Hugging Face's data sets)."""

    fields: tuple[str, str] | None = None

    def read(self, data: Any) -> Raw:
        """(x, y) from a pair, a mapping of columns, or a map-style ``Dataset``."""
        if isinstance(data, Examples):
            return data.x, data.y
        if isinstance(data, tuple | list) and len(data) == 2 and not _is_row(data[0]):
            return samples(data[0]), targets(data[1])
        if isinstance(data, Mapping):
            x, y = self._fields(data)
            return samples(data[x]), targets(data[y])
        if isinstance(data, Tensor | np.ndarray | str):
            what = repr(data) if isinstance(data, str) else f"an array of shape {tuple(data.shape)}"
            raise ValueError(f"cannot read {what} as data; give a pair (X, y): samples, and one target for each")
        if hasattr(data, "__len__") and hasattr(data, "__getitem__"):
            return self._rows(data)
        raise TypeError(
            f"cannot read data of type {type(data).__name__}; give a data set's name, a map-style Dataset, "
            "a pair (X, y) or a list with one (X, y) per client"
        )

    def _rows(self, data: Any) -> Raw:
        """All rows of a map-style ``Dataset``, read once. One that changes its samples at random is refused."""
        rows = [self._row(data[i], i) for i in range(len(data))]
        if not rows:
            raise ValueError("the data set is empty; pass at least one sample")
        for i in range(min(len(rows), _LOOKED_AT_TWICE)):
            again = self._row(data[i], i)[0]
            if again.shape != rows[i][0].shape or not torch.equal(again, rows[i][0]):
                raise ValueError(
                    f"sample {i} of the Dataset differs when it is read again: it is transformed at random. A Dataset "
                    "is read once, so take its random transform out and pass transform=… to federation, which draws "
                    "it again in every round"
                )
        shapes = {tuple(x.shape): i for i, (x, _) in reversed(list(enumerate(rows)))}
        if len(shapes) > 1:
            (one, i), (other, j) = sorted(shapes.items(), key=lambda item: item[1])[:2]
            raise ValueError(f"sample {i} has shape {one} and sample {j} {other}; crop or pad them all to one shape")
        return samples(torch.stack([x for x, _ in rows])), targets([y for _, y in rows])

    def _row(self, row: Any, place: int) -> tuple[Tensor, Any]:
        if isinstance(row, Mapping):
            x, y = self._fields(row)
            return _sample(row[x]), row[y]
        if isinstance(row, tuple | list) and len(row) == 2:
            return _sample(row[0]), row[1]
        raise ValueError(
            f"row {place} of the data is a {type(row).__name__}, not a pair (x, y) or a mapping with fields; "
            "wrap the data set so that data[i] is (x, y)"
        )

    def _fields(self, row: Mapping[str, Any]) -> tuple[str, str]:
        """The names of the fields x and y: as given, or one that is called a label and the only other one."""
        names = list(row)
        found = self.fields
        if found is None and all(isinstance(value, tuple) for value in row.values()):
            raise ValueError(
                "the data are a mapping of clients; give a list with one (X, y) per client: list(data.values())"
            )
        if found is None:
            ys = [name for name in names if name.lower() in _TARGETS]
            xs = [name for name in names if name not in ys]
            found = (xs[0], ys[0]) if len(xs) == len(ys) == 1 else ("", "")
        if found[0] not in row or found[1] not in row:
            raise ValueError(
                f"rows have the fields {', '.join(names)}; say which are the sample and its label: "
                f"fields=({names[0]!r}, {names[-1]!r})"
            )
        return found


def _is_row(value: Any) -> bool:
    """Whether a list of two holds rows rather than X and y."""
    return isinstance(value, Mapping) or (isinstance(value, tuple) and len(value) == 2)


def _sample(value: Any) -> Tensor:
    """One sample as a tensor; a PIL picture as channels × height × width."""
    if hasattr(value, "getbands"):
        picture = np.asarray(value)
        return torch.from_numpy(
            np.ascontiguousarray(picture[None] if picture.ndim == 2 else picture.transpose(2, 0, 1))
        )
    return torch.as_tensor(value)


def _tensor(values: Any) -> Tensor:
    with warnings.catch_warnings():  # nothing is written to the data, so a column of pandas or a mapped file will do
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return torch.as_tensor(values)


def samples(x: Any) -> Tensor:
    """X as a tensor: float64 becomes float32, whole numbers stay whole (int64), uint8 stays for pictures."""
    if hasattr(x, "to_numpy"):  # a table of pandas
        x = np.array(x.to_numpy())
    try:
        found = _tensor(np.asarray(x) if isinstance(x, list | tuple) else x)
    except (TypeError, ValueError) as error:
        raise ValueError(f"cannot read X: {error}; give an array or a tensor of numbers, one sample per row") from None
    if found.dim() == 0:
        raise ValueError("X is a single number; give one sample per row")
    _check_finite("X", found)
    if found.dtype == torch.float64 or found.dtype == torch.bool:
        return found.to(torch.float32)
    return found if found.is_floating_point() or found.dtype == torch.uint8 else found.to(torch.int64)


def _check_finite(name: str, values: Tensor) -> None:
    if values.is_floating_point() and not (finite := torch.isfinite(values)).all():
        row = int((~finite).reshape(len(values), -1).any(dim=1).nonzero()[0, 0])
        raise ValueError(
            f"{name} holds NaN or infinite values, the first in sample {row}; fill them in, or leave these samples out"
        )


def targets(y: Any) -> Tensor | NDArray[Any]:
    """The targets: labels as int64 of shape (n,), words as an array, other numbers as they are."""
    if not isinstance(y, Tensor):
        array = np.asarray(y)
        if array.dtype.kind in "US" or (array.dtype.kind == "O" and all(isinstance(v, str) for v in array.flat)):
            return array.astype(str).reshape(len(array))
        if array.dtype.kind not in "biuf":
            raise ValueError(f"cannot read y: {_unread(array)}; give one label per sample, numbers or words")
        y = _tensor(array)
    if y.dim() == 0:
        raise ValueError("y is a single number; give one target per sample")
    _check_finite("y", y)
    found: Tensor = y if y.is_floating_point() else y.to(torch.int64)
    return found if y.is_floating_point() or found.dim() != 2 or found.shape[1] != 1 else found[:, 0]


def _unread(array: NDArray[Any]) -> str:
    """What is wrong with targets that are neither numbers nor words: often a missing label among words."""
    if not array.size:
        return "it is empty"
    missing = [i for i, value in enumerate(array.flat) if not isinstance(value, str | int | float) or value != value]
    if missing:
        return f"{array.flat[missing[0]]!r} in sample {missing[0]} is not a number or a word"
    return "it holds both words and numbers"


def numbered(parts: Sequence[Raw]) -> tuple[list[Examples], tuple[str, ...] | None]:
    """The parts with words numbered 0, 1, 2 … in alphabetical order, the same in all parts; and the words."""
    worded = [i for i, (_, y) in enumerate(parts) if not isinstance(y, Tensor)]
    if not worded:
        return [Examples(x, y) for x, y in parts if isinstance(y, Tensor)], None
    if len(worded) < len(parts):
        other = next(i for i in range(len(parts)) if i not in worded)
        raise ValueError(f"part {worded[0]} of the data has words as labels and part {other} numbers; use one of them")
    words = np.unique(np.concatenate([np.asarray(y) for _, y in parts]))
    found = [Examples(x, torch.from_numpy(np.searchsorted(words, np.asarray(y)))) for x, y in parts]
    return found, tuple(words.tolist())
