"""Conversion between arrays and Flower's records, without copies if the memory can be shared."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from fedalpha.flower.forms import Form
from fedalpha.flower.replies import header_of
from fedalpha.flower.sums import Arrays

_RECORD = "flwr.app.ArrayRecord"


def record_of(arrays: Arrays) -> ArrayRecord:
    """Arrays as Flower carries them."""
    return ArrayRecord({name: _array(np.asarray(value)) for name, value in arrays.items()})


def _array(value: NDArray[Any]) -> Array:
    """The bytes of Flower's ``Array(value)``, copied once."""
    if value.flags.f_contiguous and not value.flags.c_contiguous:
        return Array(value)  # NumPy writes it in its own order
    flat = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    data = b"".join((header_of(value.dtype, value.shape), flat.data))
    return Array(str(value.dtype), tuple(value.shape), "numpy.ndarray", data)


def check_numbers(arrays: Arrays) -> None:
    """Raise ValueError if the initial arrays of a run can neither be averaged nor kept as buffers."""
    for name, value in arrays.items():
        dtype = value.dtype
        if dtype.kind not in "biuf" or dtype.itemsize > 8 or not dtype.isnative:
            raise ValueError(
                f"initial_arrays: {name!r} is {dtype}; arrays of a model are bool, integers or floats of at most 64 "
                "bits in the byte order of this machine. Convert it, for example a complex array to two real ones"
            )


def opened(record: ArrayRecord) -> Arrays:
    """The arrays of the server's own record. They share its memory and cannot be written to."""
    return {name: _view(array) for name, array in record.items()}


def _view(array: Array) -> NDArray[Any]:
    dtype = np.dtype(array.dtype)
    start = len(array.data) - dtype.itemsize * math.prod(array.shape)
    if array.stype != "numpy.ndarray" or b"'fortran_order': False" not in array.data[:start]:
        return array.numpy()
    return np.frombuffer(array.data, dtype=dtype, offset=start).reshape(array.shape)


def packed(form: Form, broadcast: Any) -> ArrayRecord:
    """The model of a new broadcast as a record; array by array the broadcast then shares the record's memory."""
    record = ArrayRecord()
    for name in list(broadcast.parameters):
        one = form.arrays({name: broadcast.parameters.pop(name)})
        record[name] = _array(np.ascontiguousarray(one[name]).reshape(one[name].shape))
        del one
        broadcast.parameters.update(form.parameters({name: _view(record[name])}))
    return record


def plain(value: Any) -> Any:
    """A value with each of Flower's array records as a dict of arrays, so that it can be saved."""
    match value:
        case ArrayRecord():
            return {_RECORD: {name: array.numpy() for name, array in value.items()}}
        case dict():
            return {key: plain(inner) for key, inner in value.items()}
        case list() | tuple():
            return type(value)(plain(inner) for inner in value)
    return value


def restored(value: Any) -> Any:
    """The value that `plain` was given."""
    match value:
        case dict() if _RECORD in value:
            return record_of(value[_RECORD])
        case dict():
            return {key: restored(inner) for key, inner in value.items()}
        case list() | tuple():
            return type(value)(restored(inner) for inner in value)
    return value
