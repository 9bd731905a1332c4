"""Checks of replies, one by one. A reply that fails a check raises `Rejected`; the others are used."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord
from numpy.lib import format as npy
from numpy.typing import NDArray

from fedalpha.flower.names import OURS, UPLOAD
from fedalpha.flower.sums import Arrays, all_finite, is_float
from fedalpha.text import plain, shown
from fedalpha.upload import Upload, added

LARGEST = 2.0**53
"""The largest size or count in a reply: larger whole numbers cannot be distinguished as floats."""
_NUMPY = "numpy.ndarray"
_LONGEST_HEADER = 10_000
_LONGEST_REASON = 2_000
_SAME = "send back the arrays that were received, under the same names"


class Rejected(Exception):  # noqa: N818 - it says what happened to a reply
    """A reply is not used. The message gives the reason; it may contain names of the reply, and is short."""

    def __init__(self, reason: str) -> None:
        super().__init__(shown(reason, _LONGEST_REASON))


def content_of(reply: Message | None) -> Any:
    """The content of a reply; raises `Rejected` if there is none."""
    if reply is None:
        raise Rejected("no reply in time")
    if reply.has_error():
        reason = (reply.error.reason or "").strip().splitlines()
        raise Rejected(f"error {reply.error.code}: {shown(reason[-1]) if reason else 'no reason given'}")
    return reply.content


def metrics_of(reply: Message | None) -> MetricRecord:
    """The one MetricRecord of a reply."""
    records: list[MetricRecord] = list(content_of(reply).metric_records.values())
    if len(records) != 1:
        raise Rejected(f"{len(records)} MetricRecords, expected exactly one")
    return records[0]


def number(metrics: Mapping[str, Any], key: str, *, whole: bool = False) -> Any:
    """A number from 0 to 2^53 under ``key`` (a whole number with ``whole``)."""
    value = finite(metrics, key)
    if not 0 <= value <= LARGEST or (whole and value != int(value)):
        raise Rejected(f"{key} = {_brief(value)}, expected a {'whole ' if whole else ''}number from 0 to 2^53")
    return int(value) if whole else value


def client_id(metrics: Mapping[str, Any], key: str) -> int:
    """A client's id under ``key``: an int64 ≥ 0, read without rounding."""
    value = metrics.get(key)
    if value is None:
        raise Rejected(f"no metric {key!r} among {_names(metrics)}")
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not 0 <= value < 2**63:
        raise Rejected(f"{key} = {_brief(value)}, expected a whole number from 0 to 2^63 - 1")
    return int(value)


def finite(metrics: Mapping[str, Any], key: str) -> float:
    """A finite number under ``key``."""
    value = metrics.get(key)
    if value is None:
        raise Rejected(f"no metric {key!r} among {_names(metrics)}")
    try:
        found = math.nan if isinstance(value, bool) or not isinstance(value, int | float) else float(value)
    except OverflowError:  # a whole number above the largest float
        found = math.inf
    if not math.isfinite(found):
        raise Rejected(f"{key} = {_brief(value)}, expected a finite number")
    return found


def arrays_of(reply: Message | None, sent: Arrays, check: bool = True) -> Arrays:
    """The arrays of a reply: the names, shapes and dtypes that were sent, and finite (with ``check``).

    The announced form, the header and the length of the data are checked before an array is created. The arrays are
    read-only views of the reply's bytes.
    """
    record = _model_of(reply)
    if record.keys() != sent.keys():
        extra, missing = record.keys() - sent.keys(), sent.keys() - record.keys()
        raise Rejected(f"arrays missing: {_names(missing)}, unknown: {_names(extra)}; {_SAME}")
    arrays = _all_opened(record, sent)
    if check:
        _check_finite(arrays)
    return arrays


def uploaded_of(reply: Message | None, sent: Arrays, upload: Upload, check: bool = True) -> tuple[Arrays, int]:
    """The arrays of a reply in which some are encoded by an upload, and the number of bytes that were sent.

    Arrays under their own names are used without decoding; buffers and integers are always sent in this way. The
    upload encodes the others. Its announced form is checked before an array is created, its values when it is decoded.
    """
    whole = _model_of(reply)
    written = content_of(reply).array_records.get(UPLOAD)
    if written is None:
        raise Rejected(f"its update is not written as {upload}; let the nodes run client_app of this version")
    extra = whole.keys() - sent.keys()
    missing = {name for name, old in sent.items() if name not in whole and not is_float(old)}
    if extra or missing:
        raise Rejected(f"arrays missing: {_names(missing)}, unknown: {_names(extra)}; {_SAME}")
    packed = {name: old for name, old in sent.items() if name not in whole}
    size = sum(old.size for old in packed.values())
    forms = {name: np.broadcast_to(np.zeros((), dtype), (n,)) for name, (dtype, n) in upload.forms(size).items()}
    if written.keys() != forms.keys():
        raise Rejected(f"its upload holds {_names(written.keys())}, expected {_names(forms)} of {upload}")
    found = _all_opened(written, forms, f"its update is to be written as {upload}")
    kept = _all_opened(whole, {name: sent[name] for name in whole})
    try:
        read = added(upload.decode(found, size), packed)
    except ValueError as error:
        raise Rejected(f"its upload cannot be read: {shown(error)}") from None
    arrays = {name: read[name] if name in read else kept[name] for name in sent}
    if check:
        _check_finite(arrays)
    return arrays, sum(value.nbytes for value in (*found.values(), *kept.values()))


def _model_of(reply: Message | None) -> ArrayRecord:
    """The one ArrayRecord of a reply that is not ours."""
    found = content_of(reply).array_records.items()
    records: list[ArrayRecord] = [record for name, record in found if not name.startswith(OURS)]
    if len(records) != 1:
        raise Rejected(f"{len(records)} ArrayRecords, expected exactly one")
    return records[0]


def _all_opened(record: ArrayRecord, like: Arrays, remedy: str = _SAME) -> Arrays:
    """The arrays with the names of ``like``. All are checked before one of them is created."""
    for name, old in like.items():
        _check_announced(name, record[name], old, remedy)
    return {name: _opened(name, record[name], old, remedy) for name, old in like.items()}


def array_of(name: str, array: Array, old: NDArray[Any]) -> NDArray[Any]:
    """An array of a reply, which must have the form of ``old`` and be finite."""
    _check_announced(name, array, old)
    value = _opened(name, array, old)
    _check_finite({name: value})
    return value


def state_array(name: str, array: Array) -> NDArray[Any]:
    """An array of a client's state, which may have any form: numbers that its data holds completely."""
    if array.stype != _NUMPY:
        raise Rejected(f"array {_brief(name)} of its state is serialised as {_brief(array.stype)}, expected {_NUMPY}")
    start, shape, fortran, dtype = _parsed(_brief(name), array)
    length = math.prod(shape) * dtype.itemsize
    if dtype.kind not in "biuf" or dtype.itemsize > 8 or min(shape, default=0) < 0 or len(array.data) - start != length:
        found = f"{_brief(dtype, str)} {_brief(shape)}, {len(array.data) - start} bytes"
        raise Rejected(f"array {_brief(name)} of its state holds {found}; expected numbers in a whole array")
    return _view(array, start, shape, fortran, dtype)


def _check_finite(arrays: Arrays) -> None:
    for name, value in arrays.items():
        if not all_finite(value):
            raise Rejected(f"array {name!r} holds NaN or infinity")


def _check_announced(name: str, array: Array, old: NDArray[Any], remedy: str = _SAME) -> None:
    if array.stype != _NUMPY:
        raise Rejected(f"array {name!r} is serialised as {_brief(array.stype)}, expected {_NUMPY}")
    if tuple(array.shape) != old.shape:
        raise Rejected(f"array {name!r} has shape {_brief(tuple(array.shape))}, expected {old.shape}; {remedy}")
    if array.dtype != str(old.dtype):
        raise Rejected(f"array {name!r} is {_brief(array.dtype, str)}, expected {old.dtype}; {remedy}")
    if not old.nbytes < len(array.data) <= old.nbytes + _LONGEST_HEADER:
        raise Rejected(f"array {name!r} has {len(array.data)} bytes, expected {old.nbytes} and a header")


def _opened(name: str, array: Array, old: NDArray[Any], remedy: str = _SAME) -> NDArray[Any]:
    """The array in the data, which must hold what was announced."""
    header = header_of(old.dtype, old.shape)
    if array.data.startswith(header):  # nothing to parse
        start, shape, fortran, dtype = len(header), old.shape, False, old.dtype
    else:
        start, shape, fortran, dtype = _parsed(repr(name), array)
    if shape != old.shape or dtype != old.dtype or len(array.data) - start != old.nbytes:
        found = f"{dtype} {_brief(shape)}, {len(array.data) - start} bytes"
        raise Rejected(f"array {name!r} holds {found}, expected {old.dtype} {old.shape}, {old.nbytes} bytes; {remedy}")
    return _view(array, start, shape, fortran, dtype)


def _view(array: Array, start: int, shape: tuple[int, ...], fortran: bool, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The array that begins at ``start`` of the data, not copied."""
    flat = np.frombuffer(array.data, dtype=dtype, offset=start)
    value = flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)
    return value if value.flags.aligned else value.copy()


def _parsed(name: str, array: Array) -> tuple[int, tuple[int, ...], bool, np.dtype[Any]]:
    """The length of the header, and its content."""
    try:
        data = io.BytesIO(array.data)
        read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[npy.read_magic(data)]
        shape, fortran, dtype = read(data)
        return data.tell(), shape, fortran, dtype
    except Exception as error:
        raise Rejected(f"array {name} cannot be read: {type(error).__name__}: {shown(error)}") from None


@lru_cache(maxsize=10_000)
def header_of(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """The bytes that NumPy writes before the values of an array in C order."""
    header = io.BytesIO()
    npy.write_array_header_1_0(header, {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape})
    return header.getvalue()


def _names(names: Collection[str]) -> str:
    """Some of the names, for a message; a reply may have any number of them."""
    some = [_brief(name) for name in sorted(names)[:5]]
    return f"[{', '.join(some)}{f' and {len(names) - 5} more' if len(names) > 5 else ''}]" if names else "no names"


def _brief(value: object, form: Callable[[Any], str] = repr) -> str:
    text = form(value) if not isinstance(value, int) or abs(value) < 2**64 else f"a number of {value.bit_length()} bits"
    return plain(text if len(text) <= 80 else f"{text[:80]}…")
