"""The sizes in the page headers of a Parquet file, read before the file is decoded.

A page of a few bytes can decompress to two billion values, all of them in one row, and the sizes in a file's metadata
may be false. Each page begins with its own header, which Arrow uses for decoding. Headers and metadata are structs
of Thrift's compact protocol. This module reads them, because pyarrow ends the process for some damaged ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_BYTES = {0: 1, 1: 4, 2: 8, 4: 4, 5: 8, 6: 4}
"""Of a value in memory, by the type of a column: truth values, integers, floats; texts are numbers of a dictionary."""
_WRITER, _GROUPS, _COLUMNS, _ABOUT = 6, 4, 1, 3
"""Fields of the metadata: who wrote the file, its row groups, their columns, and what is said of a column."""
_TYPE, _LENGTH, _DATA, _DICTIONARY = 1, 7, 9, 11
"""What is said of a column: its type, the bytes of its pages, where its data begin, and where its dictionary does."""
_UNPACKED, _PACKED, _COUNTED = 2, 3, (5, 7, 8)
"""Fields of a header: the sizes of the page, and the headers of data, of a dictionary, and of data of version 2."""
_DEEPEST = 12
_PAGE = 64
"""The smallest size that is counted for a page: a forged file may name the same pages in many columns."""


def announced(content: bytes, most: int) -> int:
    """The bytes of memory that the pages of a file need according to their headers, counted until they exceed ``most``.

    Raises IndexError, KeyError or TypeError if a part is cut off, missing, or of another kind.
    """
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    if content[-4:] != b"PAR1" or start < 0:
        raise ValueError("it has no metadata")
    metadata, _ = _struct(content, start)
    if not metadata[_WRITER].startswith(b"parquet-cpp"):  # pages of some other writers end elsewhere
        raise ValueError("it was not written by Arrow")
    found = 0
    for group in metadata[_GROUPS]:
        for column in group[_COLUMNS]:
            about = column[_ABOUT]
            if about[_TYPE] not in _BYTES:
                raise ValueError("it has a column of another kind")
            for unpacked, values in _pages(content, about):
                found += _PAGE + unpacked + values * _BYTES[about[_TYPE]]
                if found > most:
                    return found
    return found


def _pages(content: bytes, about: dict[int, Any]) -> Iterator[tuple[int, int]]:
    """The unpacked bytes and the number of values of each page of a column."""
    place = about[_DATA]
    if 0 < about.get(_DICTIONARY, 0) < place:
        place = about[_DICTIONARY]
    end = place + about[_LENGTH]
    if not 0 <= place <= end <= len(content):
        raise ValueError("its columns are outside of it")
    while place < end:
        header, place = _struct(content, place)
        place += header[_PACKED]
        counts = [header[kind][1] for kind in _COUNTED if kind in header]
        if header[_PACKED] < 0 or header[_UNPACKED] < 0 or min(counts, default=0) < 0:
            raise ValueError("a page has a negative size")
        yield header[_UNPACKED], sum(counts)


def _struct(content: bytes, place: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """The numbers, structs and lists in a struct by the ids of their fields, and the position of its end."""
    found: dict[int, Any] = {}
    id = 0
    while (head := content[place]) != 0:
        kind, place = head & 15, place + 1
        if head >> 4:
            id += head >> 4
        else:
            id, place = _whole(content, place)
        if kind > 2:  # 1 and 2 are truth values, which the kind says
            found[id], place = _value(content, place, kind, depth)
    return found, place + 1


def _value(content: bytes, place: int, kind: int, depth: int) -> tuple[Any, int]:
    """A number, a text, a struct or a list of these, and the position of its end; None for other values."""
    if depth > _DEEPEST:
        raise ValueError("its metadata are nested too deeply")
    match kind:
        case 1 | 2 | 3:  # a truth value in a list, or a byte
            return None, place + 1
        case 4 | 5 | 6:
            return _whole(content, place)
        case 7:
            return None, place + 8
        case 8:
            length, place = _varint(content, place)
            return content[place : place + length], place + length
        case 9 | 10:
            count, inner, place = content[place] >> 4, content[place] & 15, place + 1
            if count == 15:
                count, place = _varint(content, place)
            items = []
            for _ in range(count):
                item, place = _value(content, place, inner, depth + 1)
                items.append(item)
                if place > len(content):
                    raise ValueError("its metadata are cut off")
            return items, place
        case 12:
            return _struct(content, place, depth + 1)
    raise ValueError("its metadata cannot be read")


def _whole(content: bytes, place: int) -> tuple[int, int]:
    number, place = _varint(content, place)
    return (number >> 1) ^ -(number & 1), place


def _varint(content: bytes, place: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 70, 7):
        byte = content[place]
        place += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, place
    raise ValueError("its metadata cannot be read")
