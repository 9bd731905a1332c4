"""A small canonical encoding: equal values have equal bytes, so that signatures and hashes cover values.

A value is None, a bool, a whole number of 64 bits, a float, bytes, a text, a list of values, or a mapping from whole
numbers to values. `unpack` accepts exactly what `pack` writes; any other bytes raise `Malformed`.
"""

from __future__ import annotations

import struct
from typing import Any

_HEAD = struct.Struct("<cI")
_WHOLE, _REAL = struct.Struct("<q"), struct.Struct("<d")
_DEEPEST = 8


class Malformed(ValueError):  # noqa: N818
    """Bytes or fields that this protocol does not write."""


def pack(value: Any) -> bytes:
    """The bytes of a value.

    >>> unpack(pack([1, None, {7: b"key"}]))
    [1, None, {7: b'key'}]
    """
    parts: list[bytes] = []
    _write(value, parts)
    return b"".join(parts)


def unpack(data: bytes) -> Any:
    value, end = _read(memoryview(data), 0, 0)
    if end != len(data):
        raise Malformed(f"{len(data) - end} bytes follow the end of a message")
    return value


def _write(value: Any, parts: list[bytes]) -> None:
    match value:
        case None | bool():
            parts.append(_HEAD.pack(b"c", {None: 0, False: 1, True: 2}[value]))
        case int():
            parts += [_HEAD.pack(b"i", 8), _WHOLE.pack(value)]
        case float():
            parts += [_HEAD.pack(b"f", 8), _REAL.pack(value)]
        case bytes():
            parts += [_HEAD.pack(b"b", len(value)), value]
        case str():
            text = value.encode()
            parts += [_HEAD.pack(b"s", len(text)), text]
        case list() | tuple():
            parts.append(_HEAD.pack(b"l", len(value)))
            for item in value:
                _write(item, parts)
        case dict():
            parts.append(_HEAD.pack(b"d", len(value)))
            for key in sorted(value):
                parts.append(_WHOLE.pack(key))
                _write(value[key], parts)
        case _:
            raise TypeError(f"{type(value).__name__} cannot be packed")


def _read(data: memoryview, at: int, depth: int) -> tuple[Any, int]:
    if depth > _DEEPEST:
        raise Malformed(f"a message is nested more than {_DEEPEST} times")
    head, at = _take(data, at, _HEAD.size)
    kind, size = _HEAD.unpack(head)
    match kind:
        case b"c" if size < 3:
            return (None, False, True)[size], at
        case b"i" if size == 8:
            found, at = _take(data, at, 8)
            return _WHOLE.unpack(found)[0], at
        case b"f" if size == 8:
            found, at = _take(data, at, 8)
            return _REAL.unpack(found)[0], at
        case b"b":
            found, at = _take(data, at, size)
            return bytes(found), at
        case b"s":
            found, at = _take(data, at, size)
            try:
                return str(found, "utf-8"), at
            except UnicodeDecodeError:
                raise Malformed("a text is not UTF-8") from None
        case b"l":
            items = []
            for _ in range(size):
                item, at = _read(data, at, depth + 1)
                items.append(item)
            return items, at
        case b"d":
            found_items: dict[int, Any] = {}
            last = None
            for _ in range(size):
                raw, at = _take(data, at, 8)
                key = _WHOLE.unpack(raw)[0]
                if last is not None and key <= last:
                    raise Malformed("the keys of a mapping are not in order")
                found_items[key], at = _read(data, at, depth + 1)
                last = key
            return found_items, at
    raise Malformed("a message begins with an unknown tag")


def _take(data: memoryview, at: int, size: int) -> tuple[memoryview, int]:
    if size > len(data) - at:
        raise Malformed(f"a message ends after {len(data)} bytes; more were announced")
    return data[at : at + size], at + size
