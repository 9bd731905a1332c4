"""What the pages of a Parquet file announce, read before anything is decoded.

A page of a few bytes can stand for two billion values, all of them in one row, and the sizes in a file's metadata
need not be true. Each page begins with a header of its own, by which Arrow decodes it: a struct of Thrift's compact
protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_BYTES = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "BYTE_ARRAY": 4}
"""Of a value in memory; texts are numbers of a dictionary."""
_UNPACKED, _PACKED, _COUNTED = 2, 3, (5, 7, 8)
"""Fields of a header: the sizes of the page, and the headers of data, of a dictionary, and of data of version 2."""
_DEEPEST = 4
_PAGE = 64
"""What a page counts at least: a forged file may name the same pages in many columns."""


def announced(content: bytes, metadata: Any, most: int) -> int:
    """How many bytes of memory the pages of a file say that they take, counted until they are more than ``most``.

    ``metadata`` is pyarrow's. Raises IndexError or KeyError where a header ends early, or lacks a size.
    """
    if not str(metadata.created_by).startswith("parquet-cpp"):  # other writers end their pages elsewhere
        raise ValueError("it was not written by Arrow")
    found = 0
    for place in range(metadata.num_row_groups):
        group = metadata.row_group(place)
        for number in range(group.num_columns):
            column = group.column(number)
            if column.physical_type not in _BYTES:
                raise ValueError("it has a column of another kind")
            for unpacked, values in _pages(content, column):
                found += _PAGE + unpacked + values * _BYTES[column.physical_type]
                if found > most:
                    return found
    return found


def _pages(content: bytes, column: Any) -> Iterator[tuple[int, int]]:
    """The unpacked bytes and the number of values of each page of a column."""
    place = column.data_page_offset
    if column.has_dictionary_page and 0 < column.dictionary_page_offset < place:
        place = column.dictionary_page_offset
    end = place + column.total_compressed_size
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
    """The numbers and structs in a struct by the ids of their fields, and where it ends."""
    found: dict[int, Any] = {}
    id = 0
    while (head := content[place]) != 0:
        kind, place = head & 15, place + 1
        if head >> 4:
            id += head >> 4
        else:
            id, place = _whole(content, place)
        match kind:
            case 1 | 2:  # a truth value, which is the kind itself
                continue
            case 3:
                place += 1
            case 4 | 5 | 6:
                found[id], place = _whole(content, place)
            case 7:
                place += 8
            case 8:
                length, place = _varint(content, place)
                place += length
            case 12 if depth < _DEEPEST:
                found[id], place = _struct(content, place, depth + 1)
            case _:
                raise ValueError("the header of a page cannot be read")
    return found, place + 1


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
    raise ValueError("the header of a page cannot be read")
