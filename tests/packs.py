"""A study's folder as it is before its cells are packed."""

from __future__ import annotations

from pathlib import Path

from fedalpha.study import Store, tables


def unpack(folder: Path) -> list[Path]:
    """Put every cell of ``cells.parquet`` back into a file of its own; the files."""
    store = Store(folder)
    store.cells.mkdir()
    for key, table in store._tables().items():
        store.path(key).write_bytes(tables.content(table))
    store.packed.unlink()
    return sorted(store.cells.iterdir())
