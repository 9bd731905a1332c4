"""Finished cells as Arrow tables, the content of a study's Parquet files.

One layout for a single cell and for many: the columns ``cell``, ``strategy`` and ``seed``, the columns of the
history, and ``about``, the facts of a cell as JSON in its first row (null in the others).
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedalpha.analysis.columns import Column, stored
from fedalpha.store import FormatError
from fedalpha.store.files import read_bytes
from fedalpha.study.cells import Cell
from fedalpha.study.parquet_pages import announced
from fedalpha.text import cleaned, shown

FORMAT = 2
"""The version of the format of a study's folder and of its Parquet files."""
_FIRST = ("cell", "strategy", "seed")
LARGEST = 2**32
"""The largest size of a file of cells, in bytes."""
_FREE, _RATIO = 2**26, 100
"""Cells may take 64 MB of memory, or 100 times the bytes of their file."""
_ROWS_AT_ONCE = 2**12


@dataclass(frozen=True, eq=False)
class Result:
    """A finished cell: ``columns`` by name, and the facts in its file."""

    key: str
    columns: dict[str, list[Any]]
    about: dict[str, Any]

    @property
    def stopped(self) -> bool:
        """Whether the cell ended early because its ``stop_at`` was reached."""
        return bool(self.about["ended"] == "stop_at")

    @property
    def last(self) -> int:
        return int(self.columns["round"][-1])

    def clients(self) -> tuple[int, dict[int, float]]:
        """The last evaluated round, and the accuracy there of each client that has a test part of its own."""
        ids, accuracies = (self.columns.get(name) or [] for name in ("tested_clients", "client_accuracy"))
        last = max((i for i, found in enumerate(ids) if found), default=None)
        if last is None:
            return 0, {}
        return self.columns["round"][last], dict(zip(ids[last], accuracies[last], strict=True))


def table_of(cell: Cell, columns: dict[str, list[Any]], about: dict[str, Any]) -> Any:
    """A finished cell as a table."""
    pyarrow, _ = arrow()
    rows = len(columns["round"])
    # Nothing that is not in the key: a case may be renamed, a strategy written in another way.
    names: dict[str, Any] = {
        "cell": pyarrow.array([cell.key] * rows),
        "strategy": pyarrow.array([cell.settings.strategy] * rows),
        "seed": pyarrow.array([cell.seed] * rows, pyarrow.int64()),
    }
    for column in stored():
        if column.name in columns:
            names[column.name] = pyarrow.array(columns[column.name], _kind(column))
    text = json.dumps({**about, "config": cell.config, "hash": cell.key}, sort_keys=True, ensure_ascii=False)
    names["about"] = pyarrow.array([text] + [None] * (rows - 1), pyarrow.string())
    return pyarrow.table(names)


def result_of(key: str, table: Any) -> Result:
    """A finished cell from its rows, without per-client columns that it does not have."""
    about = _about(json.loads(table["about"][0].as_py()))
    columns = {}
    for column in stored():
        if column.name in table.column_names:
            values = table[column.name].cast(_kind(column))
            if not column.per_client or values.null_count < len(values):
                columns[column.name] = values.to_pylist()
    if columns["round"] != list(range(len(table))):
        raise ValueError("its rows are not those of rounds 0, 1, 2 …")
    return Result(key, columns, about)


def _kind(column: Column) -> Any:
    """The Arrow type of a column."""
    pyarrow, _ = arrow()
    kind = getattr(pyarrow, str(column.dtype))()
    return pyarrow.list_(kind) if column.per_client else kind


def _about(about: Any) -> dict[str, Any]:
    """The facts of a cell, checked: they are shown in reports."""
    found: dict[str, Any] = cleaned(about)
    shares = found.get("shares", {"cell": "", "rounds": 0})
    versions = found["versions"]
    good = isinstance(versions, dict) and all(isinstance(text, str) for text in versions.values())
    good = good and isinstance(found["ended"], str) and isinstance(found.get("coincides_with", ""), str)
    if not (good and isinstance(shares["cell"], str) and isinstance(shares["rounds"], int)):
        raise ValueError("its facts are not those of a cell")
    return found


def joined(tables: Iterable[Any]) -> Any:
    """Many cells in one table; the order of its columns does not depend on the order of the cells."""
    pyarrow, _ = arrow()
    table = pyarrow.concat_tables(tables, promote_options="default").combine_chunks()
    known = (*_FIRST, *(column.name for column in stored()))
    names = [name for name in known if name in table.column_names]
    others = sorted(set(table.column_names) - {*names, "about"})  # columns of a plugin that is not loaded
    return table.select([*names, *others, "about"])


def split(table: Any) -> dict[str, Any]:
    """The table of each cell, by key: a cell begins where ``about`` is not null."""
    starts = [i for i, there in enumerate(table["about"].is_valid().to_pylist()) if there]
    keys = table["cell"].to_pylist()
    return {keys[i]: table.slice(i, end - i) for i, end in zip(starts, [*starts[1:], len(table)], strict=True)}


def content(table: Any) -> bytes:
    """A table as a Parquet file, with the version of the format."""
    pyarrow, parquet = arrow()
    file = io.BytesIO()
    floats = [field.name for field in table.schema if pyarrow.types.is_floating(field.type)]
    parquet.write_table(
        table.replace_schema_metadata({"fedalpha": json.dumps({"format": FORMAT})}),
        file,
        compression="zstd",
        compression_level=19,
        use_dictionary=[name for name in table.column_names if name not in floats],
        use_byte_stream_split=floats,
    )
    return file.getvalue()


def read(path: Path, root: Path | None = None) -> Any:
    """The table of a Parquet file; ValueError for one of another format, or of a size that cells cannot have.

    A few bytes can encode any number of equal values. Therefore the sizes in the pages are added up first, texts are
    read as indices of a dictionary, and the table is read in batches as long as its size is in proportion to the file.
    """
    pyarrow, parquet = arrow()
    content = read_bytes(path, root, most=LARGEST)
    most = max(_FREE, _RATIO * len(content))
    there = parquet.read_schema(pyarrow.BufferReader(content)).names
    texts = [name for name in ("cell", "strategy", "about") if name in there]
    file = parquet.ParquetFile(pyarrow.BufferReader(content), read_dictionary=texts)
    metadata = (file.schema_arrow.metadata or {}).get(b"fedalpha", b"{}")
    check_format(json.loads(metadata).get("format", 1), path)
    try:
        size = announced(content, most)
    except (IndexError, KeyError, TypeError, AttributeError):  # what is cut off, or not of the kind that it should be
        raise ValueError("its pages cannot be read") from None
    if size > most:
        raise ValueError(f"it would take more than {most:,} bytes of memory")
    batches, taken = [], 0
    for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE):
        taken += batch.nbytes
        if taken > most:
            raise ValueError(f"it takes more than {most:,} bytes of memory")
        batches.append(batch)
    return _without_dictionaries(pyarrow.Table.from_batches(batches, file.schema_arrow), most)


def _without_dictionaries(table: Any, most: int) -> Any:
    """The table with plain texts, unless they would take too much memory."""
    pyarrow, _ = arrow()
    for place, field in enumerate(table.schema):
        if pyarrow.types.is_dictionary(field.type):
            column = table[field.name]
            longest = max((len(text) for chunk in column.chunks for text in chunk.dictionary.to_pylist()), default=0)
            if 4 * longest * len(column) > most:
                raise ValueError(f"its texts would take more than {most:,} bytes of memory")
            table = table.set_column(place, field.name, column.cast(field.type.value_type))
    return table.replace_schema_metadata(None)


def check_format(found: Any, path: Path) -> None:
    """Raise an error for another format, written by another version of fedalpha."""
    if found != FORMAT:
        raise FormatError(
            f"{path} has format {shown(found)}, and this version of fedalpha reads and writes format {FORMAT}; use the "
            "version that wrote it, or run the study in another folder"
        )


def arrow() -> tuple[Any, Any]:
    """pyarrow and its Parquet module."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise RuntimeError('studies need pyarrow; install it with: pip install "fedalpha[studies]"') from None
    return pyarrow, parquet
