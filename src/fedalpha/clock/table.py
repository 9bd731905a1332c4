"""Tables of numbers in files: a header, then one line of numbers each, the first one a client's id."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

import numpy as np

from fedalpha import trust
from fedalpha.store.files import read_bytes
from fedalpha.strategies import Array
from fedalpha.text import shown

MOST_BYTES = 2**22
"""The largest size of a table."""

Lines = list[tuple[int, list[float]]]


def read_table(file: str, sha256: str, kind: str) -> tuple[tuple[str, ...], Lines, str]:
    """The columns, the lines as (client, other values), and the SHA-256 of the file.

    Raises ValueError if the file is not such a table, or not the one with this ``sha256`` (if it is given). Errors
    name lines by their number and never repeat what the file holds.
    """
    if not isinstance(file, str) or not isinstance(sha256, str):
        raise ValueError(f"trace: {file!r} is not the name of a file; write trace('file.csv')")
    content = _content(file, kind)
    digest = hashlib.sha256(content).hexdigest()
    if sha256 and sha256 != digest:
        raise ValueError(f"trace: {shown(file)} is not the file with which this {kind} was first used; restore it")
    try:
        header, *body = content.decode().splitlines()
    except (UnicodeDecodeError, ValueError):
        raise ValueError(f"trace: {shown(file)} is not a table in UTF-8 with a header") from None
    columns = tuple(name.strip() for name in header.split(","))
    if columns[0] != "client" or not 2 <= len(columns) <= 3 or not all(name.isidentifier() for name in columns):
        raise ValueError(f"trace: the first line of {shown(file)} must name the columns, client first")
    lines = []
    for number, line in enumerate(body, 2):
        if line.strip():
            lines.append(_values(line, len(columns), f"line {number} of {shown(file)}"))
    if not lines:
        raise ValueError(f"trace: {shown(file)} has no line below its header")
    return columns, lines, digest


def by_client(lines: Lines, file: str) -> dict[int, Array]:
    """A matrix for each client, its lines in the order of the file."""
    found: dict[int, list[list[float]]] = {}
    for id, values in lines:
        found.setdefault(id, []).append(values)
    return {id: np.array(values) for id, values in found.items()}


def _content(file: str, kind: str) -> bytes:
    """The bytes of a regular file. If its name came from a file, the user must have consented before it is opened."""
    try:
        path = Path(file).resolve()
        own_word = f"in run and compare name it yourself: --{kind} \"trace('{shown(file)}')\""
        trust.need("trace", str(path), f"read {shown(path)} as its {kind}; its numbers then decide the rows", own_word)
        if not path.is_file():
            raise FileNotFoundError(2, "there is no such file")
        return read_bytes(path, most=MOST_BYTES)
    except trust.UntrustedError:
        raise
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: links in a circle
        reason = getattr(error, "strerror", None) or shown(error)
        raise ValueError(f"trace: cannot read the {kind} {shown(file)}: {reason}") from None


def _values(line: str, columns: int, where: str) -> tuple[int, list[float]]:
    parts = line.split(",")
    try:
        id, values = int(parts[0]), [float(part) for part in parts[1:]]
    except ValueError:
        id, values = -1, []
    if len(parts) != columns or not 0 <= id < 2**63 or not all(math.isfinite(value) for value in values):
        raise ValueError(f"trace: {where} is not a client's id and {columns - 1} finite numbers")
    return id, values
