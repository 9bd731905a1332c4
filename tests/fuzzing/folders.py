"""Files of run folders and of studies: checkpoints, cells, plans, logs, histories."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fuzzing.base import Target
from fuzzing.mutations import changed_bytes, changed_tree


class Checkpoints(Target):
    """Generations with valid checksums and changed contents, or with changed bytes."""

    name, share = "checkpoints", 3
    readers: ClassVar = {
        "store/generations.py": (
            *("Generations.load", "Generations._read", "_unpacked", "_records", "_checked", "_verified"),
        ),
        "store/tree.py": ("unpack", "unpack.decode", "_tensor"),
        "runs/folder.py": ("Folder._accepted",),
        "runs/saved_state.py": ("check_state", "_models", "_alike", "restored"),
    }

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        import fedalpha
        from fedalpha.round import Algorithm
        from fedalpha.runs.experiment import Experiment
        from fedalpha.runs.folder import Folder
        from fedalpha.runs.saved_state import state_tree
        from fedalpha.store import DamagedError, FormatError
        from fedalpha.store.tree import pack
        from fedalpha.strategies import STRATEGIES

        type(self).errors = (ValueError, DamagedError, FormatError)
        digits = fedalpha.federation("digits", partition="iid", clients=3)
        algorithm = Algorithm(weigh=STRATEGIES.parse("switch(FedSoftWorse(optima=estimated), FedAvg, at=3)"))
        experiment = Experiment(digits, algorithm, "softmax", 3, 0)
        self.start = experiment.start()
        self.run = Folder(self.folder, {"clients": 3, "rounds": 3})
        kept = {0: {"x": [np.float64(1), float("inf"), (1, None), np.int64(3), "y"], "array": np.zeros(2)}}
        text, self.arrays = pack(state_tree(dataclasses.replace(self.start, round=2, accuracy=0.5, clients=kept)))
        self.tree = json.loads(text)
        self.rows = [{"round": r, "accuracy": 0.5, "alpha": [0.5, 0.5], "cohort": [0, 2]} for r in range(3)]

    def make(self, draw: random.Random) -> Any:
        tree, rows, manifest = self.tree, self.rows, {}
        kind = draw.randrange(5)
        if kind <= 1:
            tree = changed_tree(tree, draw)
        elif kind == 2 and draw.random() < 0.1:
            rows = draw.choice((rows * 3, [*rows[:2], {"round": 2, "x": "x" * 2**21}]))
        elif kind == 2:
            rows = changed_tree(rows, draw)
        elif kind == 3:
            manifest = {draw.choice(("format", "number", "files", "round", "x")): draw.choice((0, None, [], "2", {}))}
        raw = (draw.choice(("data", "rows", "manifest")), draw.getrandbits(32)) if kind == 4 else None
        return tree, rows, manifest, raw

    def first(self, given: Any) -> bool:
        return given[3] is None

    def read(self, given: Any) -> None:
        from safetensors.numpy import save

        from fedalpha.store.generations import FORMAT, _facts, _packed, _signed

        tree, rows, change, raw = given
        text = json.dumps(tree).encode()
        content = {
            "data": save({**self.arrays, "tree": np.frombuffer(text, dtype=np.uint8)}),
            "rows": b"".join(map(_packed, rows if isinstance(rows, list) else [rows])),
        }
        files = {"000002.safetensors": _facts(content["data"]), "even.rows": _facts(content["rows"])}
        manifest = {"format": FORMAT, "number": 2, "round": 2, "files": files}
        content["manifest"] = _signed({**manifest, **change})
        if raw is not None:
            content[raw[0]] = changed_bytes(content[raw[0]], random.Random(raw[1]))
        place = self.folder / "checkpoint"
        place.mkdir(exist_ok=True)
        for name, part in zip(("000002.safetensors", "even.rows", "000002.json"), content.values(), strict=True):
            (place / name).write_bytes(part)
        self.run.resume(self.start)


class Cells(Target):
    """Parquet files of cells."""

    name, share = "cells (Parquet)", 3
    readers: ClassVar = {
        "study/tables.py": ("read", "_without_dictionaries", "split", "result_of", "_about", "_kind", "check_format"),
        "study/store.py": ("Store.get", "Store._tables", "Store._read"),
    }
    key = "0123456789abcdef"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        from fedalpha.analysis.columns import stored
        from fedalpha.study.tables import content

        self.form = {c.name: (c.dtype, c.per_client) for c in stored()}
        self.tables = [self._table(dict(self._columns())), self._table(dict(self._columns(rows=1)))]
        self.files = [content(table) for table in self.tables]

    def _columns(self, rows: int = 4) -> Any:
        facts = {"ended": "rounds", "versions": {"torch": "2", "python": "3"}, "hash": self.key, "config": {}}
        about = json.dumps({**facts, "shares": {"cell": self.key, "rounds": 2}})
        yield from {"cell": [self.key] * rows, "strategy": ["FedAvg"] * rows, "seed": [0] * rows}.items()
        for name, (_, per_client) in self.form.items():
            empty = None if name == "cohort" and rows == 1 else [0.0, 1.0]
            yield name, list(range(rows)) if name == "round" else [empty if per_client else 0.5] * rows
        yield "about", [about] + [None] * (rows - 1)

    def _table(self, columns: dict[str, Any]) -> Any:
        import pyarrow

        made = {}
        for name, values in columns.items():
            dtype, per_client = self.form.get(name, ("int64" if name == "seed" else "string", False))
            kind = getattr(pyarrow, dtype)()
            try:
                made[name] = pyarrow.array(values, pyarrow.list_(kind) if per_client else kind)
            except (pyarrow.ArrowException, TypeError, OverflowError, ValueError):
                made[name] = pyarrow.array([repr(v)[:100].encode(errors="replace").decode() for v in values])
        shortest = min(map(len, made.values()), default=0)
        return pyarrow.table({name: values[:shortest] for name, values in made.items()})

    def make(self, draw: random.Random) -> Any:
        from fedalpha.study.tables import content

        if draw.random() < 0.4:
            return changed_bytes(draw.choice(self.files), draw)
        columns = dict(self._columns(draw.choice((1, 4))))
        for _ in range(draw.choice((1, 1, 2))):
            name = draw.choice(list(columns))
            if draw.random() < 0.2 and len(columns) > 2:
                del columns[name]
            elif name == "about" and draw.random() < 0.7:
                columns[name] = [json.dumps(changed_tree(json.loads(columns[name][0]), draw)), *columns[name][1:]]
            else:
                found = changed_tree(columns[name], draw)
                columns[name] = found if isinstance(found, list) else [found] * 4
        return content(self._table(columns))

    def first(self, given: Any) -> bool:
        import pyarrow
        from pyarrow import parquet

        try:
            parquet.read_schema(pyarrow.BufferReader(given))
        except (pyarrow.ArrowException, OSError, ValueError):
            return False
        return True

    def read(self, given: Any) -> None:
        from fedalpha.study import Store

        store = Store(self.folder)
        store.packed.write_bytes(given)
        for _ in range(2):  # the second one is not read again
            found = store.get(self.key)
        assert found.last >= 0


class Plans(Target):
    """The ``study.json`` and the logs of a study's folder."""

    name, share = "plans and logs (JSON)", 3
    readers: ClassVar = {
        "study/status.py": ("load_study", "status", "_left", "_record", "_times"),
        "study/store.py": ("Store.plan",),
        "study/cells.py": ("Cell.from_entry",),
        "text/shown.py": ("cleaned", "plain", "shown"),
    }

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        from fedalpha.study import study
        from fedalpha.study.runner import plan

        values = {"name": "x", "strategies": ["FedAvg", "FedWorse"], "seeds": 1, "note": "n", "settings": {"rounds": 2}}
        found = study({**values, "cases": [{"name": "a", "clients": 4}, {"name": "b"}], "zoom": [{"rounds": [0, 1]}]})
        self.plan = json.loads(json.dumps({"format": 2, **plan(found, found.cells())}))
        key = self.plan["cells"][0]["cell"]
        self.running = {"pid": 1, "label": "x", "started": 1.0, "time": 2.0, "begun": 0, "round": 1, "rounds": 2}
        self.times = {"cell": self.plan["cells"][1]["cell"], "rounds": 2, "seconds": 1.5, "label": "y"}
        self.running_file = f"{key}.running"

    def make(self, draw: random.Random) -> Any:
        parts = {"study.json": self.plan, f"log/{self.running_file}": self.running, "log/times.jsonl": self.times}
        name = draw.choice(("study.json", "study.json", *parts))
        changed = json.dumps(changed_tree(parts[name], draw)).encode()
        if draw.random() < 0.2:
            changed = changed_bytes(changed, draw)
        return {n: json.dumps(p).encode() for n, p in parts.items()} | {name: changed}

    def first(self, given: Any) -> bool:
        try:
            return bool([json.loads(part) for part in given.values()])
        except (ValueError, RecursionError):
            return False

    def read(self, given: Any) -> None:
        from fedalpha.study import status

        (self.folder / "log").mkdir(exist_ok=True)
        for name, content in given.items():
            (self.folder / name).write_bytes(content)
        status(self.folder)


class Histories(Target):
    """``history.jsonl`` of a run folder."""

    name, share = "histories (JSON lines)", 12
    readers: ClassVar = {"analysis/history.py": ("read", "_row", "_lines")}
    rows = tuple({"round": r, "accuracy": 0.5, "loss": 1.5, "alpha": [0.5, 0.5]} for r in range(3))

    def make(self, draw: random.Random) -> Any:
        rows = changed_tree(self.rows, draw) if draw.random() < 0.6 else list(self.rows)
        lines = "\n".join(json.dumps(row) for row in (rows if isinstance(rows, list) else [rows])).encode()
        return changed_bytes(lines, draw) if draw.random() < 0.5 else lines

    def first(self, given: Any) -> bool:
        try:
            return bool([json.loads(line) for line in given.splitlines()])
        except (ValueError, RecursionError):
            return False

    def read(self, given: Any) -> None:
        from fedalpha.analysis.history import read

        (self.folder / "history.jsonl").write_bytes(given)
        found = read(self.folder)
        _ = [row["round"] for row in found.rows]
